"""UnrealMultiAgentEnv: one env of an engine with agents as an RLlib MultiAgentEnv (docs/rllib.md).

Source: RLlib's MultiAgentEnv and MultiAgentEpisode (ray.rllib.env, Ray 2.60).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

from ue_rl.envs.agents.multi_agent_env import AgentsEnv
from ue_rl.protocol.transport import Transport

try:
    from ray.rllib.env.multi_agent_env import MultiAgentEnv
except ImportError as error:
    raise ImportError("UnrealMultiAgentEnv needs RLlib: pip install 'ue_rl[rllib]'") from error


class UnrealMultiAgentEnv(MultiAgentEnv):  # type: ignore[misc]
    """One env of a game engine.

    In an episode of RLlib's no agent comes back, and it is over when all agents that it knows have ended. Where the
    engine goes on nevertheless (an agent comes back, or others come just as the last one ends), RLlib's episode is
    cut: agents that could go on are truncated, and the next `reset()` gives what the engine shows now, without
    resetting it. With a seed or options it does reset.

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
        self.observation_spaces = self._env.observation_spaces
        self.action_spaces = self._env.action_spaces
        self._ended: set[str] = set()  # in this episode of RLlib's
        self._going_on: tuple[dict[str, Any], dict[str, Any]] | None = None  # what the next one begins with

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode: observations and infos of the agents that are there."""
        answer = self._going_on
        self._going_on = None
        if answer is None or seed is not None or options:
            answer = self._env.reset(seed, options)
        self.agents = list(self._env.agents)
        self._ended = set()
        return answer

    def step(
        self, action_dict: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """One step of all of `agents`: observations, rewards, terminateds, truncateds, infos.

        An agent that has just come is in them with its first observation and reward 0. "__all__" is in truncateds where
        a last agent was cut off, so that its value is bootstrapped, else in terminateds. Then it alone says who was
        truncated: RLlib takes an episode whose agents are all marked on their own for a terminated one.

        Raises:
            ActionError, UnexpectedMessage: see AgentsEnv.step.
        """
        given = self._env.step(action_dict)
        self.agents = live = list(self._env.agents)
        terminateds = dict(given.terminations)
        truncateds = dict(given.truncations)
        ended = {name for name in action_dict if terminateds[name] or truncateds[name]}
        over = ended == set(action_dict) or any(name in self._ended for name in live)
        self._ended |= ended
        if not over:
            kept = set(given.observations)
            whole = cut = False
        else:
            kept = set(action_dict)
            cut = not all(terminateds[name] for name in kept)
            whole = not cut
            truncateds = dict.fromkeys(kept, False)
            if live:
                self._going_on = (
                    {name: given.observations[name] for name in live},
                    {name: given.infos[name] for name in live},
                )
        return (
            _of(kept, given.observations),
            _of(kept, given.rewards),
            {**_of(kept, terminateds), "__all__": whole},
            {**_of(kept, truncateds), "__all__": cut},
            _of(kept, given.infos),
        )

    def render(self) -> None:
        """The engine draws its own window: nothing here."""

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self._env.close()


def _of(names: set[str], values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}
