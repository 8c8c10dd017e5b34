"""Two discs push each other out of a ring: a competitive task with equal sides in NumPy, for self-play.

python samples/agents/sumo.py --port 7777          hosts it for any trainer
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges import VectorAgentsBridge, serve
from ue_rl.protocol.spec import AgentGroup, EnvSpec

DT, PUSH, DRAG, SIZE, MAX_STEPS = 0.1, 2.0, 0.9, 0.2, 100


class SumoBridge(VectorAgentsBridge):
    """Two equal discs with inertia in a ring that shrinks from radius 1 to 0; who is outside first has lost.

    Observation (9 numbers): own position and velocity, from there the other's position, its velocity, the ring's
    radius. Action: acceleration in [-1, 1]^2. Reward: 1 for the winner, -1 for the loser, 0 before that. When both are
    outside in the same step, who is nearer to the middle has won.
    """

    def __init__(self, num_envs: int = 16) -> None:
        super().__init__([AgentGroup("wrestler", 2, EnvSpec(9, 2))], num_envs)
        self.position, self.velocity = np.zeros((2, num_envs, 2, 2), np.float32)  # env, agent, x and y
        self.steps = np.zeros(num_envs, np.int64)
        self.rng = [np.random.default_rng(env) for env in range(num_envs)]

    def reset_envs(
        self, env_ids: NDArray[np.intp], seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """Opposite each other, half way out, at rest."""
        for env, seed in zip(env_ids.tolist(), seeds, strict=True):
            if seed is not None:
                self.rng[env] = np.random.default_rng(seed)
            angle = self.rng[env].uniform(0, 2 * np.pi)
            self.position[env, 0] = 0.5 * np.cos(angle), 0.5 * np.sin(angle)
            self.position[env, 1] = -self.position[env, 0]
        self.velocity[env_ids] = 0
        self.steps[env_ids] = 0
        self._observe()

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """All envs at once."""
        velocity = DRAG * self.velocity[env_ids] + DT * PUSH * np.clip(actions[env_ids], -1, 1)
        position = self.position[env_ids] + DT * velocity
        self._collide(position, velocity)
        self.position[env_ids], self.velocity[env_ids] = position, velocity
        self.steps[env_ids] += 1
        how_far = np.linalg.norm(position, axis=2)
        over = (how_far > self._radius()[env_ids, None]).any(axis=1)
        won = np.sign(how_far[:, 1] - how_far[:, 0])  # the first agent
        states = self.states
        states.rewards[env_ids] = np.where(over, won, 0)[:, None] * np.array([1, -1], np.float32)
        states.dones[env_ids] = over[:, None]
        self._observe()

    @staticmethod
    def _collide(position: NDArray[np.float32], velocity: NDArray[np.float32]) -> None:
        """Equal masses, elastic: along the line between them the velocities change places."""
        between = position[:, 1] - position[:, 0]
        distance = np.maximum(np.linalg.norm(between, axis=1, keepdims=True), 1e-6)
        normal = between / distance
        closing = ((velocity[:, 0] - velocity[:, 1]) * normal).sum(axis=1, keepdims=True)
        hit = (distance < 2 * SIZE) & (closing > 0)
        exchanged = np.where(hit, closing, 0) * normal
        velocity[:, 0] -= exchanged
        velocity[:, 1] += exchanged

    def _observe(self) -> None:
        obs = self.states.obs
        obs[:, :, 0:2], obs[:, :, 2:4] = self.position, self.velocity
        obs[:, :, 4:6] = self.position[:, ::-1] - self.position
        obs[:, :, 6:8] = self.velocity[:, ::-1]
        obs[:, :, 8] = self._radius()[:, None]

    def _radius(self) -> NDArray[np.float64]:
        return 1 - self.steps / MAX_STEPS


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=7777)
    parser.add_argument("--num-envs", type=int, default=16)
    arguments = parser.parse_args()
    serve(SumoBridge(arguments.num_envs), port=arguments.port)
