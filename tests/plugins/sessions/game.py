"""Drift: a small game for the tests of carriers: rows that drift, tools, an interrupt, a result, a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from ue_rl.bridges import VectorBridge
from ue_rl.bridges.tools import tool
from ue_rl.plugins.sessions.realtime import Interrupts
from ue_rl.protocol.spec import EnvSpec

FEATURES = frozenset({"SEED", "OPTIONS", "INFO", "TRUNC"})
LIMIT = 40  # ticks of an episode


class Drift(VectorBridge):
    """The number drifts, and the first number of an action pushes it. Beyond 4 you win, below -4 you lose."""

    def __init__(self, num_envs: int = 1, obs_size: int = 3, crash_at: int = 0) -> None:
        super().__init__(EnvSpec(obs_size=obs_size, act_size=2, num_envs=num_envs, features=FEATURES))
        self.interrupts = Interrupts(("crossed_zero",), num_envs)
        self.rngs = [np.random.default_rng() for _ in range(num_envs)]
        self.x = np.zeros(num_envs)
        self.ticks = np.zeros(num_envs, int)
        self.crash_at = crash_at
        self.applied: list[tuple[int, float]] = []

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        for env, seed, given in zip(env_ids.tolist(), seeds, options, strict=True):
            self.rngs[env] = np.random.default_rng(seed)
            self.x[env] = self.rngs[env].normal() + (given or {}).get("start", 0)
            self.ticks[env] = 0
        self._show(env_ids)

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        for env in env_ids.tolist():
            before = self.x[env]
            self.x[env] += float(actions[env, 0]) / 7 + self.rngs[env].normal() / 10
            self.ticks[env] += 1
            if before * self.x[env] < 0:
                self.interrupts.raise_in(env, "crossed_zero")
            if self.crash_at and self.ticks[env] == self.crash_at:
                raise RuntimeError("a bug of the game")
            self.write_info(env, {"pushed": float(actions[env, 0])})
        self._show(env_ids)
        out = self.outbox
        out.rewards[env_ids] = self.x[env_ids] / 3
        out.dones[env_ids] = np.abs(self.x[env_ids]) > 4
        out.truncated[env_ids] = (self.ticks[env_ids] >= LIMIT) & (np.abs(self.x[env_ids]) <= 4)

    def _show(self, env_ids: Any) -> None:
        obs = self.outbox.obs
        obs[env_ids] = 0
        obs[env_ids, 0], obs[env_ids, 1] = self.x[env_ids], self.ticks[env_ids]
        obs[env_ids, 2] = 1 / (1 + self.ticks[env_ids])

    def apply_action(self, env_id: int, action: Any) -> None:
        self.applied.append((env_id, float(action[0])))

    def result(self, env_id: int) -> str:
        return "draw" if abs(self.x[env_id]) <= 4 else "win" if self.x[env_id] > 0 else "lose"

    def describe(self, env_id: int) -> str:
        return f"x is {self.x[env_id]:.3f}"

    def map_info(self, env_id: int) -> dict[str, Any]:
        return {"left": -4, "right": 4}

    @tool
    def nudge(self, env_id: int, by: float, times: int = 1) -> float:
        """Push the number at once.

        Args:
            by: how far. times: how often.
        """
        self.x[env_id] += by * times
        return float(self.x[env_id])

    @tool
    def break_down(self, env_id: int) -> None:
        """Fails."""
        raise ValueError("it broke")


class Endless(Drift):
    """Its episodes do not end."""

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        super().step_envs(actions, env_ids)
        self.outbox.dones[env_ids] = self.outbox.truncated[env_ids] = 0


class Talks(Drift):
    """Prints."""

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        print("a game that prints")
        super().step_envs(actions, env_ids)


class Half(Drift):
    """Says half a character wherever it may."""

    rules = "half \ud800"

    def result(self, env_id: int) -> str:
        return f"{super().result(env_id)} \ud800"

    def describe(self, env_id: int) -> str:
        return "half \ud800"

    def map_info(self, env_id: int) -> dict[str, Any]:
        return {"name": "half \ud800"}
