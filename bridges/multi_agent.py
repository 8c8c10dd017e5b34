"""MultiAgentBridge: N envs in which agents come and go, with one callback each per event.

What stands on the wire is docs/protocol.md, section 7: a row is an agent's; an env is reset and answered as a whole.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.game import PerEnv
from ue_rl.protocol.spec import AgentGroup, Channel, EnvSpec
from ue_rl.system.errors import ConfigurationError, WrongCount

Numbers = Sequence[float] | NDArray[Any]


def agents_spec(groups: Sequence[AgentGroup], num_envs: int = 1, features: Iterable[str] = ()) -> EnvSpec:
    """The spec of envs that hold these groups of agents.

    Args:
        groups: in the order of their rows. features: of FEATURES in ue_rl/protocol/spec.py.

    Raises:
        ConfigurationError: no groups, or they contradict each other.
    """
    if not groups:
        raise ConfigurationError("agents stand in groups", field="AGENTS", expected="a group or more")
    sizes = [(group.spec.obs_size, group.spec.act_size) for group in groups]
    return EnvSpec(
        obs_size=max(obs for obs, _ in sizes),
        act_size=max(act for _, act in sizes),
        num_envs=num_envs,
        channel=Channel.SHARED,
        features=frozenset(features),
        groups=tuple(groups),
    )


def require_agents(spec: EnvSpec) -> EnvSpec:
    """`spec`; raises ConfigurationError where it has no agents."""
    if not spec.groups:
        raise ConfigurationError("this bridge has agents", field="AGENTS", expected="groups")
    return spec


class MultiAgentBridge(BaseBridge):
    """N envs of agents; implement the four callbacks.

    Agents are called by their names (`bridge.agent_names`): `name_0`, `name_1`, .. of a group; of a group of one, its
    own name. An action is applied in the tick that sees the request, and answered in the first tick, that one included,
    in which `is_action_running` says False. In inference mode one policy acts for all agents.

    Args:
        groups: of agents. num_envs: how many envs.
        features: what the game offers, see FEATURES in ue_rl/protocol/spec.py; None: SEED, OPTIONS and TRUNC, MASK and
        INFO
            where `action_masks` and `infos` are overridden.

    Raises:
        ConfigurationError: the groups contradict each other.
    """

    def __init__(self, groups: Sequence[AgentGroup], num_envs: int = 1, features: Iterable[str] | None = None) -> None:
        if features is None:
            features = {"SEED", "OPTIONS", "TRUNC"}
            for feature, callback in (("MASK", "action_masks"), ("INFO", "infos")):
                if getattr(type(self), callback) is not getattr(MultiAgentBridge, callback):
                    features.add(feature)
        super().__init__(agents_spec(groups, num_envs, features))

    def configure(self, spec: EnvSpec) -> None:
        """See BaseBridge.configure.

        Raises:
            ConfigurationError: a spec without agents.
        """
        with self.lock:
            self.agent_names = require_agents(spec).agent_names
            self._place = {name: i for i, name in enumerate(spec.agent_names)}
            specs = [group.spec for group in spec.groups for _ in range(group.count)]
            self._obs_sizes = [one.obs_size for one in specs]
            self._act_sizes = [one.act_size for one in specs]
            self._mask_sizes = [one.action_spec.mask_size for one in specs]
            super().configure(spec)
            self.outbox.present[:] = 0

    # -- callbacks

    @abc.abstractmethod
    def reset_env(self, env_id: int, seed: int | None, options: dict[str, Any] | None) -> None:
        """Begins a new episode of the env."""

    @abc.abstractmethod
    def step_env(self, env_id: int, actions: dict[str, NDArray[np.float32]]) -> None:
        """Applies the actions, float32 [act_size of the group] each, of all agents that are there and not done."""

    @abc.abstractmethod
    def observe(self, env_id: int) -> Mapping[str, Numbers]:
        """The observations of the agents that are there, obs_size of the group numbers each.

        After a reset: of those that begin, one at least. After a step: of all that acted, those that ended among them,
        and of those that have just come. An agent that has ended and is named again in a later step has come back.
        """

    @abc.abstractmethod
    def results(self, env_id: int) -> Mapping[str, tuple[float, bool, bool]]:
        """(reward, terminated, truncated) of every agent that acted; of others it is ignored."""

    def action_masks(self, env_id: int) -> Mapping[str, Numbers]:
        """Flags of the agents' choices, 1 for legal, as many as the group has (docs/protocol.md, section 5).

        Of an agent that is left out every choice is legal.
        """
        return {}

    def infos(self, env_id: int) -> Mapping[str, Mapping[str, Any]]:
        """Infos (JSON-able) of agents that have any."""
        return {}

    def is_action_running(self, env_id: int) -> bool:
        """Do the applied actions still run? Until they do not, the env is not answered for."""
        return False

    # -- for the driver

    def begin_in(self, envs: int, seeds: PerEnv, options: PerEnv) -> None:
        """See Game."""
        self.reset_env(envs, seeds[0], options[0])

    def act_in(self, envs: int, actions: NDArray[np.float32]) -> None:
        """See Game."""
        first = envs * len(self.agent_names)
        acting = np.flatnonzero(self.lockstep.roster.live[envs]).tolist()
        self.step_env(envs, {self.agent_names[i]: actions[first + i, : self._act_sizes[i]].copy() for i in acting})

    def running_in(self, envs: int) -> bool:
        """See Game."""
        return self.is_action_running(envs)

    def read_in(self, envs: int, begun: bool) -> None:
        """See Game: what the agents that acted got, and who is there now."""
        self._see(envs)
        if begun:
            return
        results = self.results(envs)
        states = self.lockstep.roster.states
        for values in (states.rewards, states.dones, states.truncated):
            values[envs] = 0
        for agent in np.flatnonzero(self.lockstep.roster.live[envs]).tolist():
            name = self.agent_names[agent]
            if name not in results or not states.present[envs, agent]:
                missing = "result"
                given = sorted(results)
                if name in results:
                    missing = "observation"
                    given = [self.agent_names[i] for i in np.flatnonzero(states.present[envs]).tolist()]
                raise ConfigurationError(
                    f"{name} acted, but there is no {missing} of it",
                    fault="engine",
                    env_id=envs,
                    field="AGENT",
                    expected="of all that acted, those that ended among them",
                    got=given,
                )
            reward, terminated, truncated = results[name]
            states.rewards[envs, agent] = reward
            states.dones[envs, agent] = bool(terminated or truncated)
            states.truncated[envs, agent] = truncated and not terminated

    def _see(self, env: int) -> None:
        """Writes who is there and what they see."""
        out = self.outbox
        first = env * len(self.agent_names)
        rows = slice(first, first + len(self.agent_names))
        out.present[rows] = 0
        out.masks[rows] = 1
        for name, numbers in self.observe(env).items():
            agent = self._agent(env, name)
            values = self._values(env, name, numbers, self._obs_sizes[agent], "OBS")
            out.obs[first + agent, : len(values)] = values
            out.present[first + agent] = 1
        if out.masks.shape[1]:
            for name, flags in self.action_masks(env).items():
                agent = self._agent(env, name)
                values = self._values(env, name, flags, self._mask_sizes[agent], "MASK")
                out.masks[first + agent, : len(values)] = values != 0
        if "INFO" in self.spec.features:
            for name, info in self.infos(env).items():
                if info:
                    self.write_info(first + self._agent(env, name), info)

    def _agent(self, env: int, name: str) -> int:
        if name not in self._place:
            raise ConfigurationError(
                "there is no such agent",
                fault="engine",
                env_id=env,
                field="AGENT",
                expected=", ".join(self.agent_names),
                got=name,
            )
        return self._place[name]

    def _values(self, env: int, name: str, numbers: Numbers, size: int, field: str) -> NDArray[np.float32]:
        values = np.asarray(numbers, np.float32).reshape(-1)
        if values.size != size:
            what = f"the game gave {name} a wrong number of numbers"
            raise WrongCount(what, env_id=env, field=field, expected=size, got=values.size)
        return values
