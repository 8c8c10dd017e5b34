"""Field: a PettingZoo env whose agents come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

BOX = spaces.Box(-1, 1, (2,), np.float64)


class Field(ParallelEnv):  # type: ignore[misc]
    """Wolves and a sheep; wolf_1 dies at the second step and `returns` at the fourth, the end is at the sixth."""

    metadata = {"name": "field"}  # noqa: RUF012
    possible_agents = ["wolf_0", "wolf_1", "sheep"]  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, speed: float = 1.0, returns: bool = True) -> None:
        self.render_mode, self.speed, self.returns, self.closed = render_mode, speed, returns, False
        wolf = spaces.Dict({"at": BOX, "mode": spaces.Discrete(3)})
        act = spaces.Tuple([spaces.Discrete(4, start=2), spaces.Box(-1, 1, (2,), np.float32)])
        self.all = {"wolf_0": (wolf, act), "wolf_1": (wolf, act), "sheep": (BOX, spaces.MultiDiscrete([2, 3]))}

    def observation_space(self, agent: Any) -> Any:
        return self.all[agent][0]

    def action_space(self, agent: Any) -> Any:
        return self.all[agent][1]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.rng, self.steps, self.agents = np.random.default_rng(seed), 0, list(self.possible_agents)
        self.options = options
        return self._seen(), {agent: {} for agent in self.agents}

    def _seen(self) -> dict[Any, Any]:
        """All that may ever be there, dead or alive, as some envs do it."""
        drawn = {agent: self.rng.uniform(-1, 1, 2) for agent in self.possible_agents}
        return {name: at if name == "sheep" else {"at": at, "mode": self.steps % 3} for name, at in drawn.items()}

    def step(self, actions: dict[Any, Any]) -> Any:
        assert list(actions) == self.agents
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), action
        self.steps += 1
        acted, over = list(self.agents), {"wolf_1": self.steps == 2}
        rewards = {agent: self.speed * self.steps + i for i, agent in enumerate(acted)}
        terminated = {agent: over.get(agent, False) for agent in acted}
        truncated = {agent: self.steps == 6 for agent in acted}
        there = set() if self.steps == 6 else {"wolf_0", "sheep"}
        if self.steps in (1, 4, 5) and (self.returns or self.steps == 1):
            there.add("wolf_1")
        self.agents = [agent for agent in self.possible_agents if agent in there]
        infos = {a: {"action_mask": (np.array([0, 1]), np.array([1, 1, 0])), "n": self.steps} for a in ("sheep",)}
        return self._seen(), rewards, terminated, truncated, infos

    def render(self) -> Any:
        return np.full((2, 3, 3), self.steps, np.uint8)

    def close(self) -> None:
        self.closed = True
