"""UnrealParallelEnv: one env of an engine with agents as a PettingZoo ParallelEnv. Needs pettingzoo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from ue_rl.agents.multi_agent_env import AgentsEnv
from ue_rl.transport import Transport

try:
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise ImportError("UnrealParallelEnv needs PettingZoo: pip install 'ue_rl[agents]'") from error


class UnrealParallelEnv(ParallelEnv[str, Any, Any]):
    """One env of a game engine; several envs behind one connection are for ue_rl.agents.GroupVecEnv.

    Agents come and go: `agents` holds those that can act now. PettingZoo's own test forbids that an agent comes back
    in the same episode; an engine may do it, and the agent is then in `agents` again.

    Args:
        transport: an engine's with agents and ENV_COUNT=1; owned from now on and closed by `close()`.

    Attributes:
        possible_agents: every agent's name: of a group of one the group's, else group_0, group_1, ..

    Raises:
        ConfigurationError: see AgentsEnv.
    """

    def __init__(self, transport: Transport) -> None:
        self._env = AgentsEnv(transport)
        self.engine_spec = self._env.engine_spec
        self.metadata = {"name": "ue_rl", "render_modes": [], "is_parallelizable": True}
        self.render_mode = None
        self.possible_agents = self._env.possible_agents
        self.agents: list[str] = []
        self.observation_spaces, self.action_spaces = self._env.observation_spaces, self._env.action_spaces

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
        self.agents = list(self._env.agents)
        return answer

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """One step of all of `agents`: observations, rewards, terminations, truncations, infos by agent.

        Raises:
            ActionError, UnexpectedMessage: see AgentsEnv.step.
        """
        given = self._env.step(actions)
        self.agents = list(self._env.agents)
        return given.observations, given.rewards, given.terminations, given.truncations, given.infos

    def render(self) -> None:
        """The engine draws its own window: nothing here."""

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self._env.close()
