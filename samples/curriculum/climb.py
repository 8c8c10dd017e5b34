"""A climb with a sparse reward, whose height is a parameter of the game: an engine to train with a curriculum.

ue-rl serve --bridge samples.curriculum.climb:Climb --num-envs 8 --port 7777
ue-rl train --config samples/curriculum/climb.yaml

A climber hangs at a wall and sees how far the top is, and two lamps: where both are on or both off the left grip holds,
else the right one. The right move climbs by one hold, any other but waiting slips back by one. Only the top is
rewarded, with 1, and an episode has two moves for each hold and 8 more: by chance nobody climbs high.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges import VectorBridge
from ue_rl.protocol.spec import ActionSpec, EnvSpec

HEIGHT = (1.0, 40.0)


class Climb(VectorBridge):
    """`num_envs` walls. Parameter `height`: holds between the climber and the top, rounded."""

    def __init__(self, num_envs: int) -> None:
        action = ActionSpec.discrete(4)
        names = {"obs_names": ("to_the_top", "first_lamp", "second_lamp"), "act_names": ("move",)}
        features = frozenset({"INFO", "SEED", "TRUNC"})
        super().__init__(EnvSpec(3, 1, num_envs=num_envs, action=action, features=features, **names))
        self.height = np.full(num_envs, HEIGHT[1])
        self.left = np.zeros(num_envs, np.int64)  # holds still to climb
        self.moves = np.zeros(num_envs, np.int64)
        self.lamps = np.zeros((num_envs, 2), np.int64)
        self.randoms = [np.random.default_rng(env) for env in range(num_envs)]

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        """Name -> (value, low, high)."""
        return {"height": (HEIGHT[1], *HEIGHT)}

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        """The height of one wall, or of all (-1), from its next episode on."""
        self.height[slice(None) if env_id < 0 else env_id] = value

    def get_parameter(self, name: str, env_id: int) -> float:
        """The height of one wall."""
        return float(self.height[env_id])

    def reset_envs(
        self, env_ids: NDArray[np.intp], seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """The climber is at the foot."""
        for env, seed in zip(env_ids.tolist(), seeds, strict=True):
            if seed is not None:
                self.randoms[env] = np.random.default_rng(seed)
        self.left[env_ids] = np.maximum(1, np.rint(self.height[env_ids]))
        self.moves[env_ids] = 2 * self.left[env_ids] + 8
        self._look(env_ids)

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """0: wait, 1: down, 2: up by the left grip, 3: up by the right one."""
        chosen = actions[env_ids, 0].astype(np.int64)
        start = np.maximum(1, np.rint(self.height[env_ids])).astype(np.int64)
        up = chosen - 2 == self.lamps[env_ids, 0] ^ self.lamps[env_ids, 1]
        step = np.where(chosen == 0, 0, np.where(up, -1, 1))
        self.left[env_ids] = np.minimum(self.left[env_ids] + step, start)
        self.moves[env_ids] -= 1
        reached, late = self.left[env_ids] == 0, self.moves[env_ids] <= 0
        self.outbox.rewards[env_ids] = reached
        self.outbox.dones[env_ids] = reached
        self.outbox.truncated[env_ids] = late & ~reached
        for env, success in zip(env_ids.tolist(), reached.tolist(), strict=True):
            self.write_info(env, {"holds_left": int(self.left[env]), "is_success": success})
        self._look(env_ids)

    def _look(self, env_ids: NDArray[np.intp]) -> None:
        for env in env_ids.tolist():
            self.lamps[env] = self.randoms[env].integers(2, size=2)
        self.outbox.obs[env_ids, 0] = self.left[env_ids] / HEIGHT[1]
        self.outbox.obs[env_ids, 1:] = self.lamps[env_ids]
