"""A vectorised task in NumPy: move a point to a target. The smallest useful VectorBridge, to copy from.

python samples/reach.py --port 7777          hosts it for any trainer
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges import VectorBridge, serve
from ue_rl.protocol.spec import Channel, EnvSpec

DT, RADIUS, MAX_STEPS = 0.1, 0.15, 60


class ReachBridge(VectorBridge):
    """A point with inertia in a square; reward is minus the distance, plus 5 for arriving.

    Observation: position, velocity, target minus position (6 numbers). Action: acceleration in [-1, 1]^2.
    An episode ends at the target (terminated) or after 60 steps (truncated).
    """

    def __init__(self, num_envs: int = 8) -> None:
        super().__init__(EnvSpec(6, 2, num_envs=num_envs, channel=Channel.ANY, features=frozenset({"SEED", "TRUNC"})))
        self.position, self.velocity, self.target = np.zeros((3, num_envs, 2), np.float32)
        self.steps = np.zeros(num_envs, np.int64)
        self.rng = [np.random.default_rng(i) for i in range(num_envs)]

    def reset_envs(
        self, env_ids: NDArray[np.intp], seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """A random place, at rest, and a random target."""
        for env, seed in zip(env_ids.tolist(), seeds, strict=True):
            if seed is not None:
                self.rng[env] = np.random.default_rng(seed)
            self.position[env], self.target[env] = self.rng[env].uniform(-1, 1, (2, 2))
        self.velocity[env_ids] = 0
        self.steps[env_ids] = 0
        self._observe()

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """All envs at once; a few NumPy calls whatever their number."""
        push = np.clip(actions[env_ids], -1, 1)
        self.velocity[env_ids] = 0.9 * self.velocity[env_ids] + push * DT * 2
        self.position[env_ids] = np.clip(self.position[env_ids] + self.velocity[env_ids] * DT, -1.5, 1.5)
        self.steps[env_ids] += 1
        distance = np.linalg.norm(self.target[env_ids] - self.position[env_ids], axis=1)
        arrived = distance < RADIUS
        late = (self.steps[env_ids] >= MAX_STEPS) & ~arrived
        self.outbox.rewards[env_ids] = np.where(arrived, 5.0, -distance * DT)
        self.outbox.dones[env_ids] = arrived | late
        self.outbox.truncated[env_ids] = late
        self._observe()

    def _observe(self) -> None:
        out = self.outbox.obs
        out[:, 0:2], out[:, 2:4], out[:, 4:6] = self.position, self.velocity, self.target - self.position


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=7777)
    parser.add_argument("--num-envs", type=int, default=8)
    arguments = parser.parse_args()
    serve(ReachBridge(arguments.num_envs), port=arguments.port)
