"""UnrealParallelEnv: one env of an engine with agents as a PettingZoo ParallelEnv. Needs pettingzoo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.envs.agents.multi_agent_env import AgentsEnv
from ue_rl.envs.controls import render_mode_of, render_modes
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.protocol.transport import Transport

try:
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise ImportError("UnrealParallelEnv needs PettingZoo: pip install 'ue_rl[agents]'") from error


class UnrealParallelEnv(ParallelEnv[str, Any, Any]):
    """One env of a game engine; several envs behind one connection are for ue_rl.envs.agents.GroupVecEnv.

    Agents come and go: `agents` holds those that can act now. PettingZoo's own test forbids that an agent comes back
    in the same episode; an engine may do it, and the agent is then in `agents` again.

    Args:
        transport: an engine's with agents and ENV_COUNT=1; owned from now on and closed by `close()`.
        render_mode: "rgb_array": `render` gives the engine's pictures (FEATURES=RENDER). None: that, where the engine
            sends pictures.

    Attributes:
        possible_agents: every agent's name: of a group of one the group's, else group_0, group_1, ..

    Raises:
        ConfigurationError: see AgentsEnv; an unknown render_mode. UnsupportedByEngine: the engine sends no pictures.
    """

    def __init__(self, transport: Transport, render_mode: str | None = None) -> None:
        self._env = AgentsEnv(transport)
        self.engine_spec = self._env.engine_spec
        self.render_mode = render_mode_of(self.engine_spec, render_mode)
        self.metadata = {
            "name": "ue_rl", "render_modes": render_modes(self.engine_spec), "is_parallelizable": True,
            "render_fps": self.engine_spec.render_fps,
        }  # fmt: skip
        self.possible_agents = self._env.possible_agents
        self.agents: list[str] = []
        self._begun = False
        self.observation_spaces = self._env.observation_spaces
        self.action_spaces = self._env.action_spaces

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Always the same object for an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Always the same object for an agent."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begins an episode; see AgentsEnv.reset. `infos[agent]["action_mask"]` where the engine sends masks."""
        answer = self._env.reset(seed, options)
        self._begun = True
        self.agents = list(self._env.agents)
        return answer

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """One step of all of `agents`: observations, rewards, terminations, truncations, infos by agent.

        Where the episode has ended for all, `step({})` gives five empty dicts, as in PettingZoo's own envs, and as its
        wrappers ask.

        Raises:
            ActionError: see AgentsEnv.step. UnexpectedMessage: before the first reset, or with an action where nobody
                is left.
        """
        if self._begun and not self._env.agents and not actions:
            return {}, {}, {}, {}, {}
        given = self._env.step(actions)
        self.agents = list(self._env.agents)
        return given.observations, given.rewards, given.terminations, given.truncations, given.infos

    def render(self) -> NDArray[np.uint8] | None:
        """The engine's picture, uint8 [height, width, channels]; None where it sends none."""
        if self.render_mode is None:
            return None
        return EngineCalls(self._env.transport).render(0)

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self._env.close()
