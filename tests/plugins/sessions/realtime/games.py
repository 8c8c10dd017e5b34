"""Games for the tests of sessions."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from tests.support.games import Steps
from ue_rl.bridges import VectorBridge
from ue_rl.bridges.tools import tool
from ue_rl.plugins.sessions.realtime import Interrupts
from ue_rl.protocol.spec import ActionSpec, EnvSpec

FEATURES = frozenset({"SEED", "OPTIONS", "TRUNC"})


class Sums(VectorBridge):
    """Each row: (seed, ticks, sum of all actions, the last action). Over after `length` ticks; reward is the action."""

    no_op = (0.0,)

    def __init__(self, num_envs: int, length: int = 1000, fails_at: float | None = None) -> None:
        super().__init__(EnvSpec(4, 1, num_envs=num_envs, features=FEATURES, action=ActionSpec.box(1, -100, 100)))
        self.length, self.fails_at = length, fails_at
        self.interrupts = Interrupts(("ten", "eleven"), num_envs)
        self.calls: list[int] = []
        self.inside = threading.Semaphore(1)

    def reset_envs(self, env_ids: Any, seeds: Sequence[Any], options: Sequence[Any]) -> None:
        for env, seed, option in zip(env_ids, seeds, options, strict=True):
            start = (option or {}).get("start", 0)
            self.outbox.obs[env] = (-1 if seed is None else seed % 1000, start + 0, 0, 0)

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        assert self.inside.acquire(blocking=False), "two ticks at once"
        try:
            self.calls.append(len(env_ids))
            obs = self.outbox.obs
            if self.fails_at is not None and (actions[env_ids, 0] == self.fails_at).any():
                raise ZeroDivisionError("the game cannot go on")
            obs[env_ids, 1] += 1
            obs[env_ids, 2] += actions[env_ids, 0]
            obs[env_ids, 3] = actions[env_ids, 0]
            self.outbox.rewards[env_ids] = actions[env_ids, 0]
            self.outbox.dones[env_ids] = obs[env_ids, 1] >= self.length
            for number, name in ((10, "ten"), (11, "eleven")):
                self.interrupts.raise_in(env_ids[obs[env_ids, 1] == number], name)
        finally:
            self.inside.release()

    def result(self, env_id: int) -> str:
        return "win" if self.outbox.obs[env_id, 2] > 0 else "lose"

    def describe(self, env_id: int) -> str:
        return f"tick {self.outbox.obs[env_id, 1]:g}"

    def map_info(self, env_id: int) -> dict[str, Any]:
        return {"size": [1, 1]}

    @tool
    def add(self, env_id: int, amount: float) -> dict[str, float]:
        """Adds to the sum."""
        self.outbox.obs[env_id, 2] += amount
        return {"sum": float(self.outbox.obs[env_id, 2])}

    @tool
    def break_down(self, env_id: int) -> None:
        """Fails."""
        raise RuntimeError("broken")


class Orders(Sums):
    """As Sums, and takes several actions in a tick."""

    def apply_action(self, env_id: int, action: Any) -> None:
        self.outbox.obs[env_id, 2] += action[0]


class OneByOne(Steps):
    """Sums, with a callback for each event. `gate`: a tick waits for it. An action of 7 raises."""

    gate: threading.Event | None = None

    def __init__(self, num_envs: int = 1, length: int = 1000) -> None:
        super().__init__(EnvSpec(4, 1, num_envs=num_envs, features=FEATURES, action=ActionSpec.box(1, -100, 100)))
        self.length, self.total = length, 0.0

    def handle_reset_for_env(self, env_id: int, seed: int | None = None, options: Any = None) -> None:
        super().handle_reset_for_env(env_id, -1 if seed is None else seed % 1000)
        self.total = 0.0

    def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
        if type(self).gate is not None:
            type(self).gate.wait(20)
        if actions[0] == 7:
            raise ZeroDivisionError("seven")
        self.total += float(actions[0])
        super().handle_response_actions_for_env(env_id, actions)

    def show(self, env: int) -> Any:
        return [self.seeds[env], self.steps[env], self.total, self.acted[env]]

    def earn(self, env: int) -> tuple[float, bool]:
        return self.acted[env], self.steps[env] >= self.length
