"""AgentsEnv: one env with its agents as dicts by their names; what the envs for PettingZoo and RLlib are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.connections.base.checks import live_agents
from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.agents.agent_rows import AgentRows, agents_of
from ue_rl.envs.controls import not_pickled
from ue_rl.envs.infos import put_arrays
from ue_rl.envs.observations import Observations
from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.envs.stepper import Stepper
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.transport import Transport, owns_transport
from ue_rl.system.errors import ActionError, ConfigurationError, UnexpectedMessage


@dataclass
class Answers:
    """What one step gave, by agent: those that acted, and those that have just come (reward 0, nothing over)."""

    observations: dict[str, Any] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    terminations: dict[str, bool] = field(default_factory=dict)
    truncations: dict[str, bool] = field(default_factory=dict)
    infos: dict[str, dict[str, Any]] = field(default_factory=dict)


class _Group:
    """One group's spaces, and the helpers that are made for them."""

    def __init__(self, engine: Any, name: str) -> None:
        self.part = AgentRows(engine, agents_of(engine, name))
        self.writer = ActionWriter(replace(self.part.spec, num_envs=1))
        self.observations = Observations(self.part.spec, copy=False)


class AgentsEnv:
    """One env of an engine.

    Args:
        transport: connected here if it is not yet; owned from now on and closed by `close()`.

    Attributes:
        possible_agents: every agent's name, in the order of the handshake. agents: those that can act now.
        observation_spaces, action_spaces: by agent; each has objects of its own.

    Raises:
        ConfigurationError: the engine has more than one env, or no agents. Also what transport.connect() raises.
    """

    @owns_transport
    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.stepper = Stepper(transport)
        self.engine_spec = engine = self.stepper.spec
        if engine.num_envs != 1 or not engine.groups:
            raise ConfigurationError(
                "this env is one env with agents",
                field="ENV_COUNT and AGENTS",
                expected="ENV_COUNT=1, and AGENTS in the handshake",
                got=f"{engine.num_envs} envs, {len(engine.groups)} groups",
                cure="for several envs use ue_rl.envs.agents.GroupVecEnv, or an engine for each; without agents "
                "UnrealEnv",
            )
        self.possible_agents = list(engine.agent_names)
        self.agents: list[str] = []
        self._groups = {group.name: _Group(engine, group.name) for group in engine.groups}
        self._places = {
            engine.agent_names[row]: (group, place, row)
            for group in self._groups.values()
            for place, row in enumerate(group.part.rows.tolist())
        }
        self.observation_spaces: dict[str, spaces.Space[Any]] = {}
        self.action_spaces: dict[str, spaces.Space[Any]] = {}
        for name, (group, _, _) in self._places.items():
            one = replace(group.part.spec, num_envs=1)
            self.observation_spaces[name] = observation_space(one)
            self.action_spaces[name] = action_space(one)
        self._actions: NDArray[np.float32] = np.zeros((engine.num_rows, engine.act_size), np.float32)

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begins an episode: observations and infos of the agents that are there.

        A seed or options go to an engine that takes them; another one is left alone.
        """
        seeds = None
        if seed is not None:
            seeds = [seed]
        all_options = None
        if options:
            all_options = [dict(options)]
        buffers = self.stepper.start(None, seeds, all_options)
        live = live_agents(buffers)
        for group in self._groups.values():
            group.part.take_start(buffers, np.ones_like(live), live)
        answers = self._answers(live, np.zeros_like(live), buffers)
        return answers.observations, answers.infos

    def step(self, actions: Mapping[str, Any]) -> Answers:
        """One step of all agents that can act.

        Args:
            actions: one for each of `agents`.

        Raises:
            ActionError: an agent's action is missing, is for somebody who cannot act, or is not of its space.
            UnexpectedMessage: nobody can act any more: reset first.
        """
        if not self.agents:
            raise UnexpectedMessage("nobody in this env can act", fault="caller", cure="call reset() first")
        if set(actions) != set(self.agents):
            what = "there must be one action for each agent that can act"
            raise ActionError(what, field="ACT", expected=sorted(self.agents), got=sorted(map(str, actions)))
        for name, action in actions.items():
            group, _, row = self._places[name]
            try:
                self._actions[row, : group.part.spec.act_size] = group.writer.one(action)[0]
            except ActionError as error:
                error.message = f"agent {name}: {error.message}"
                error.env_id = 0
                raise
        acted = np.zeros(self.engine_spec.num_rows, np.bool_)
        acted[[self._places[name][2] for name in self.agents]] = True
        self.stepper.ask(self._actions)
        buffers = self.stepper.receive()
        live = live_agents(buffers)
        for group in self._groups.values():
            group.part.take_step(buffers, acted, live)
        return self._answers(live, acted, buffers)

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self.transport.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refused, as by the other envs."""
        raise not_pickled(self)

    def _answers(self, live: NDArray[np.bool_], acted: NDArray[np.bool_], buffers: StepBuffers) -> Answers:
        answers = Answers()
        seen = {group: group.observations.read(group.part.buffers) for group in self._groups.values()}
        for name, (group, place, row) in self._places.items():
            if not (live[row] or acted[row]):
                continue
            mine = group.part.buffers
            done = bool(mine.dones[place])
            truncated = bool(mine.truncated[place])
            answers.observations[name] = group.observations.row(seen[group], place)
            answers.rewards[name] = float(mine.rewards[place])
            answers.terminations[name] = done and not truncated
            answers.truncations[name] = truncated
            info = dict(mine.infos.get(place, {}))
            put_arrays(info)
            if "MASK" in self.engine_spec.features and mine.masks.shape[1]:
                info["action_mask"] = _mask(self.action_spaces[name], mine.masks[place])
            answers.infos[name] = info
        self.agents = [name for name, (_, _, row) in self._places.items() if live[row]]
        return answers


def _mask(space: spaces.Space[Any], flags: NDArray[np.uint8]) -> Any:
    """The flags as `space.sample(mask=..)` takes them: an array, for MultiDiscrete a tuple of one for each number."""
    mask = flags.astype(np.int8)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(np.split(mask, np.cumsum(space.nvec.reshape(-1))[:-1]))
    return mask
