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
from ue_rl.bridges.hosting import PolicyInterface
from ue_rl.bridges.reset_options import blames_options
from ue_rl.buffers import ActionBatch
from ue_rl.errors import ConfigurationError, MalformedMessage, WrongCount
from ue_rl.spec import AgentGroup, Channel, EnvSpec

Numbers = Sequence[float] | NDArray[Any]


def agents_spec(groups: Sequence[AgentGroup], num_envs: int = 1, features: Iterable[str] = ()) -> EnvSpec:
    """The spec of envs that hold these groups of agents.

    Args:
        groups: in the order of their rows. features: of FEATURES in ue_rl/spec.py.

    Raises:
        ConfigurationError: no groups, or they contradict each other.
    """
    if not groups:
        raise ConfigurationError("agents stand in groups", fault="caller", field="AGENTS", expected="a group or more")
    sizes = [(group.spec.obs_size, group.spec.act_size) for group in groups]
    return EnvSpec(
        obs_size=max(obs for obs, _ in sizes),
        act_size=max(act for _, act in sizes),
        num_envs=num_envs,
        channel=Channel.SHARED,
        features=frozenset(features),
        groups=tuple(groups),
    )


def one_policy_for_all(spec: EnvSpec) -> None:
    """Raises ConfigurationError where one policy cannot act for all agents: their groups have different spaces."""
    first = spec.groups[0].spec
    if any(group.spec != first for group in spec.groups):
        raise ConfigurationError(
            "inference mode has one policy, but the groups of agents have different spaces", fault="caller",
            field="AGENTS", got=", ".join(group.name for group in spec.groups),
            cure="run one exported model for each group in the game itself",
        )  # fmt: skip


class MultiAgentBridge(BaseBridge):
    """N envs of agents; implement the four callbacks.

    Agents are called by their names (`bridge.agent_names`): `name_0`, `name_1`, .. of a group; of a group of one, its
    own name. An action is applied in the tick that sees the request, and answered in the first tick, that one included,
    in which `is_action_running` says False. In inference mode one policy acts for all agents.

    Args:
        groups: of agents. num_envs: how many envs.
        features: what the game offers, see FEATURES in ue_rl/spec.py; None: SEED, OPTIONS and TRUNC, MASK and INFO
            where `action_masks` and `infos` are overridden.

    Raises:
        ConfigurationError: the groups contradict each other.
    """

    def __init__(
        self, groups: Sequence[AgentGroup], num_envs: int = 1, features: Iterable[str] | None = None
    ) -> None:  # fmt: skip
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
        if not spec.groups:
            raise ConfigurationError("this bridge has agents", fault="caller", field="AGENTS", expected="groups")
        with self.lock:
            self.agent_names = spec.agent_names
            self._place = {name: i for i, name in enumerate(spec.agent_names)}
            specs = [group.spec for group in spec.groups for _ in range(group.count)]
            self._obs_sizes = [one.obs_size for one in specs]
            self._act_sizes = [one.act_size for one in specs]
            self._mask_sizes = [one.action_spec.mask_size for one in specs]
            self._live = np.zeros(
                (spec.num_envs, spec.agents_per_env), np.bool_
            )  # there, and their episode is not over
            self._running = np.zeros(spec.num_envs, np.bool_)
            self._over = np.zeros(spec.num_envs, np.bool_)
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

    # -- the tick

    def tick_training(self, delta: float) -> None:
        """See BaseBridge."""
        inbox, agents = self.inbox, len(self.agent_names)
        command = inbox.command.reshape(-1, agents)
        for env in np.flatnonzero(command.any(axis=1)).tolist():
            first = env * agents
            if command[env, 0] == ActionBatch.RESET:
                seed = int(inbox.seeds[first])
                self._clear(env)
                self._begin(env, None if seed < 0 else seed, inbox.options.pop(first, None))
                inbox.seeds[first] = -1
            else:
                if not self._running[env]:
                    self._check_asked(env, command[env])
                    self._apply(env, inbox.actions)
                if self.is_action_running(env):
                    continue
                self._clear(env)
                self._end_step(env)
            command[env] = ActionBatch.NOTHING
            self.answered[first : first + agents] = self.outbox.present[first : first + agents]

    def tick_inference(self, delta: float) -> None:
        """See BaseBridge: one batched call for all agents of all envs whose actions have ended."""
        out, agents = self.outbox, len(self.agent_names)
        out.rewards[:] = 0
        out.dones[:] = 0
        out.truncated[:] = 0
        ready = [env for env in range(self.num_envs) if not (self._running[env] and self.is_action_running(env))]
        for env in ready:
            if self._running[env]:
                self._end_step(env)
                self._over[env] = not self._live[env].any()
            if self._over[env]:
                self._begin(env, self.first_seed(env), None)
                self.new_episodes(list(range(env * agents, (env + 1) * agents)))
        rows = [env * agents + agent for env in ready for agent in np.flatnonzero(self._live[env]).tolist()]
        if rows:
            actions = np.zeros((self.spec.num_rows, self.spec.act_size), np.float32)
            actions[rows] = self.decide(out.obs[rows], rows)
            for env in ready:
                self._apply(env, actions)

    def begin_episodes(self) -> None:
        """See BaseBridge."""
        self._running[:] = False
        self._over[:] = True

    def forget_requests(self) -> None:
        """See BaseBridge."""
        super().forget_requests()
        self._running[:] = False

    def set_inference_interface(self, interface: PolicyInterface) -> None:
        """See BridgeCore.

        Raises:
            ConfigurationError: the groups have different spaces, so that one policy cannot act for all.
        """
        one_policy_for_all(self.spec)
        super().set_inference_interface(interface)

    def _check_asked(self, env: int, command: NDArray[np.uint8]) -> None:
        """A step asks every agent that can act."""
        forgotten = self._live[env] & (command != ActionBatch.STEP)
        if forgotten.any() or not self._live[env].any():
            what = "an agent that can act was not asked" if forgotten.any() else "nobody in this env can act any more"
            raise MalformedMessage(
                what, fault="trainer", env_id=env, field="AGENT", expected=self._names(self._live[env]) or "ACT=RESET",
                got=self._names(command == ActionBatch.STEP),
            )  # fmt: skip

    def _apply(self, env: int, actions: NDArray[np.float32]) -> None:
        first = env * len(self.agent_names)
        self._running[env] = True
        self.step_env(
            env,
            {
                self.agent_names[agent]: actions[first + agent, : self._act_sizes[agent]].copy()
                for agent in np.flatnonzero(self._live[env]).tolist()
            },
        )

    def _begin(self, env: int, seed: int | None, options: dict[str, Any] | None) -> None:
        with blames_options(options, env):
            self.reset_env(env, seed, options)
        self._running[env] = self._over[env] = False
        self._live[env] = False
        self._see(env)
        if not self._live[env].any():
            raise ConfigurationError(
                "an episode begins without any agent", fault="engine", env_id=env, field="AGENT",
                expected="observe() names one agent or more after reset_env()",
            )  # fmt: skip

    def _end_step(self, env: int) -> None:
        """What the agents that acted got, and who is there now."""
        acted = np.flatnonzero(self._live[env]).tolist()
        out, first = self.outbox, env * len(self.agent_names)
        self._running[env] = False
        self._live[env] = False
        self._see(env)
        results = self.results(env)
        for agent in acted:
            name = self.agent_names[agent]
            if name not in results or not self._live[env, agent]:
                missing, given = "result", sorted(results)
                if name in results:
                    missing, given = "observation", self._names(self._live[env])
                raise ConfigurationError(
                    f"{name} acted, but there is no {missing} of it", fault="engine", env_id=env, field="AGENT",
                    expected="of all that acted, those that ended among them", got=given,
                )  # fmt: skip
            reward, terminated, truncated = results[name]
            out.rewards[first + agent] = reward
            out.dones[first + agent] = terminated or truncated
            out.truncated[first + agent] = truncated and not terminated
            self._live[env, agent] = not (terminated or truncated)

    def _clear(self, env: int) -> None:
        rows = slice(env * len(self.agent_names), (env + 1) * len(self.agent_names))
        for values in (self.outbox.rewards, self.outbox.dones, self.outbox.truncated):
            values[rows] = 0

    def _see(self, env: int) -> None:
        """Writes who is there and what they see; they can act as far as it says."""
        out, first = self.outbox, env * len(self.agent_names)
        rows = slice(first, first + len(self.agent_names))
        out.present[rows] = 0
        out.masks[rows] = 1
        for name, numbers in self.observe(env).items():
            agent = self._agent(env, name)
            values = self._values(env, name, numbers, self._obs_sizes[agent], "OBS")
            out.obs[first + agent, : len(values)] = values
            out.present[first + agent] = 1
            self._live[env, agent] = True
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
                "there is no such agent", fault="engine", env_id=env, field="AGENT",
                expected=", ".join(self.agent_names), got=name,
            )  # fmt: skip
        return self._place[name]

    def _values(self, env: int, name: str, numbers: Numbers, size: int, field: str) -> NDArray[np.float32]:
        values = np.asarray(numbers, np.float32).reshape(-1)
        if values.size != size:
            raise WrongCount(
                f"the game gave {name} a wrong number of numbers", fault="engine", env_id=env, field=field,
                expected=size, got=values.size,
            )  # fmt: skip
        return values

    def _names(self, which: NDArray[np.bool_]) -> list[str]:
        return [self.agent_names[agent] for agent in np.flatnonzero(which).tolist()]
