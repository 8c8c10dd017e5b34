"""Carts on a line: keep each near 0. The action pushes, and an episode has 100 steps.

python samples/fifty_lines/carts.py [PORT]
"""

import sys

import numpy as np

from ue_rl.bridges import MultiEnvBridge, serve
from ue_rl.protocol.spec import EnvSpec


class Carts(MultiEnvBridge):
    """Observation: position and speed. Action: one number in [-1, 1]. Reward: 1 - distance from 0."""

    def __init__(self, num_envs: int = 4) -> None:
        features = frozenset({"SEED", "TRUNC"})
        super().__init__(EnvSpec(obs_size=2, act_size=1, num_envs=num_envs, features=features))
        self.x, self.speed, self.steps = np.zeros((3, num_envs), np.float32)
        self.random = [np.random.default_rng(env_id) for env_id in range(num_envs)]

    def handle_reset_for_env(self, env_id: int, seed: int | None = None) -> None:
        """A new episode begins, anywhere between -1 and 1."""
        if seed is not None:
            self.random[env_id] = np.random.default_rng(seed)
        self.x[env_id] = self.random[env_id].uniform(-1, 1)
        self.speed[env_id] = self.steps[env_id] = 0

    def handle_response_actions_for_env(self, env_id: int, actions: np.ndarray) -> None:
        """One step of the game."""
        self.speed[env_id] += 0.1 * actions[0]
        self.x[env_id] += self.speed[env_id]
        self.steps[env_id] += 1

    def create_state_string_for_env(self, env_id: int) -> list[float]:
        """What the policy sees; after a reset, too."""
        return [self.x[env_id], self.speed[env_id]]

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool, bool]:
        """(reward, terminated, truncated). The next episode begins when the trainer says so, not here."""
        lost = abs(self.x[env_id]) > 3
        return 1 - abs(self.x[env_id]), lost, not lost and self.steps[env_id] >= 100


if __name__ == "__main__":
    serve(Carts(), port=int(sys.argv[1]) if len(sys.argv) > 1 else 7777)
