"""Two agents who must be at two places at once: a cooperative task in NumPy, to copy from.

python samples/agents/cover.py --port 7777          hosts it for any trainer
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges import VectorAgentsBridge, serve
from ue_rl.protocol.spec import AgentGroup, EnvSpec

SPEED, RADIUS, MAX_STEPS = 0.15, 0.2, 40


class CoverBridge(VectorAgentsBridge):
    """Two agents and two places in a square; the reward is the same for both.

    Observation (8 numbers): own position, and from there the other agent and both places, the nearer one first.
    Action: velocity in [-1, 1]^2. Reward: minus the distance from each place to the agent that is nearest to it, over
    20; plus 5 when both places are covered, which ends the episode; after 40 steps it is cut off.
    """

    def __init__(self, num_envs: int = 16) -> None:
        super().__init__([AgentGroup("agent", 2, EnvSpec(8, 2))], num_envs)
        self.positions, self.places = np.zeros((2, num_envs, 2, 2), np.float32)  # env, agent or place, x and y
        self.steps = np.zeros(num_envs, np.int64)
        self.rng = [np.random.default_rng(env) for env in range(num_envs)]

    def reset_envs(
        self, env_ids: NDArray[np.intp], seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """Agents side by side in the middle, places anywhere but too near to each other."""
        for env, seed in zip(env_ids.tolist(), seeds, strict=True):
            if seed is not None:
                self.rng[env] = np.random.default_rng(seed)
            self.positions[env] = self.rng[env].uniform(-0.3, 0.3, (2, 2))
            angle, middle = self.rng[env].uniform(0, np.pi), self.rng[env].uniform(-0.4, 0.4, 2)
            half = self.rng[env].uniform(0.4, 0.6) * np.array([np.cos(angle), np.sin(angle)])
            self.places[env] = middle + half, middle - half
        self.steps[env_ids] = 0
        self._observe()

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """All envs at once."""
        moved = self.positions[env_ids] + SPEED * np.clip(actions[env_ids], -1, 1)
        self.positions[env_ids] = np.clip(moved, -1.2, 1.2)
        self.steps[env_ids] += 1
        gaps = self.places[env_ids][:, :, None] - self.positions[env_ids][:, None]  # place, agent
        nearest = np.linalg.norm(gaps, axis=3).min(axis=2)
        covered = (nearest < RADIUS).all(axis=1)
        late = (self.steps[env_ids] >= MAX_STEPS) & ~covered
        states = self.states
        states.rewards[env_ids] = np.where(covered, 5, -nearest.sum(axis=1) / 20)[:, None]
        states.dones[env_ids] = (covered | late)[:, None]
        states.truncated[env_ids] = late[:, None]
        self._observe()

    def _observe(self) -> None:
        obs = self.states.obs
        obs[:, :, 0:2] = self.positions
        obs[:, :, 2:4] = self.positions[:, ::-1] - self.positions
        gaps = self.places[:, None] - self.positions[:, :, None]  # agent, place
        far_first = np.linalg.norm(gaps[:, :, 0], axis=2) > np.linalg.norm(gaps[:, :, 1], axis=2)
        gaps = np.where(far_first[:, :, None, None], gaps[:, :, ::-1], gaps)
        obs[:, :, 4:8] = gaps.reshape(*gaps.shape[:2], 4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=7777)
    parser.add_argument("--num-envs", type=int, default=16)
    arguments = parser.parse_args()
    serve(CoverBridge(arguments.num_envs), port=arguments.port)
