"""UnrealMultiAgentEnv: one env of an engine with agents as an RLlib MultiAgentEnv. Needs ray[rllib].

    register_env("arena", lambda config: UnrealMultiAgentEnv(open_transport("tcp://127.0.0.1:7777")))

Source: RLlib's MultiAgentEnv (ray.rllib.env.multi_agent_env), whose dicts have an "__all__" beside the agents.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

from ue_rl.agents.multi_agent_env import AgentsEnv
from ue_rl.transport import Transport

try:
    from ray.rllib.env.multi_agent_env import MultiAgentEnv
except ImportError as error:
    raise ImportError("UnrealMultiAgentEnv needs RLlib: pip install 'ray[rllib]'") from error


class UnrealMultiAgentEnv(MultiAgentEnv):  # type: ignore[misc]
    """One env of a game engine.

    RLlib counts an agent that ended as gone for the rest of the episode: an engine that lets agents come back should
    give them to RLlib as others.

    Args:
        transport: an engine's with agents and ENV_COUNT=1; owned from now on and closed by `close()`.

    Attributes:
        possible_agents, agents, observation_spaces, action_spaces: as RLlib has them, by agent.

    Raises:
        ConfigurationError: see AgentsEnv.
    """

    def __init__(self, transport: Transport) -> None:
        self._env = AgentsEnv(transport)
        self.engine_spec = self._env.engine_spec
        self.possible_agents = list(self._env.possible_agents)
        self.agents = list(self.possible_agents)
        super().__init__()
        self.observation_spaces, self.action_spaces = self._env.observation_spaces, self._env.action_spaces
        self._truncated: set[str] = set()
        self._ended: set[str] = set()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode: observations and infos of the agents that are there."""
        answer = self._env.reset(seed, options)
        self.agents = list(self._env.agents)
        self._truncated, self._ended = set(), set()
        return answer

    def step(
        self, action_dict: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """One step of all of `agents`: observations, rewards, terminateds, truncateds, infos.

        "__all__" in terminateds: nobody can act any more. It is in truncateds instead where every agent that took part
        was cut off by a limit, so that values are bootstrapped.

        Raises:
            ActionError, UnexpectedMessage: see AgentsEnv.step.
        """
        given = self._env.step(action_dict)
        self.agents = list(self._env.agents)
        self._truncated |= {name for name, cut in given.truncations.items() if cut}
        self._ended |= {name for name, over in given.terminations.items() if over}
        over, cut = not self.agents, not self.agents and not self._ended
        terminateds = {**given.terminations, "__all__": over and not cut}
        truncateds = {**given.truncations, "__all__": cut}
        return given.observations, given.rewards, terminateds, truncateds, given.infos

    def render(self) -> None:
        """The engine draws its own window: nothing here."""

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self._env.close()
