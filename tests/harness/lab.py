"""Lab: a bridge with everything that a game may offer beside its callbacks (bridges/hosting.py), for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.multi_env import MultiEnvBridge
from ue_rl.protocol.spec import EnvSpec


class Lab(MultiEnvBridge):
    """The observation is the env's gravity, and an action adds to it; everything is noted in `log`.

    Attributes:
        gravity: of each env, a parameter from 0 to 20; beside it there is `wind[m/s]`, always 0.
        log: ("set", name, value, env_id), ("reset", env_id, gravity), ("act", env_id), in the order they came.
        scales, pauses: the time scales and pauses so far. broken: `render` fails.
    """

    def __init__(self, num_envs: int = 2, **spec: Any) -> None:
        super().__init__(EnvSpec(1, 1, num_envs=num_envs, **spec))
        self.gravity = [9.8] * num_envs
        self.scales: list[float] = []
        self.pauses: list[bool] = []
        self.log: list[tuple[Any, ...]] = []
        self.broken = False

    def create_state_string_for_env(self, env_id: int) -> Sequence[float]:
        return [self.gravity[env_id]]

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool]:
        return 0.0, False

    def handle_reset_for_env(self, env_id: int) -> None:
        self.log.append(("reset", env_id, self.gravity[env_id]))

    def handle_response_actions_for_env(self, env_id: int, actions: NDArray[np.float32]) -> None:
        self.log.append(("act", env_id))
        self.gravity[env_id] += float(actions[0])

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        return {"gravity": (self.gravity[0], 0.0, 20.0), "wind[m/s]": (0.0, -5.0, 5.0)}

    def get_parameter(self, name: str, env_id: int) -> float:
        return self.gravity[env_id] if name == "gravity" else 0.0

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        """Wind is not kept."""
        self.log.append(("set", name, value, env_id))
        if name == "gravity":
            for env in range(self.num_envs) if env_id < 0 else [env_id]:
                self.gravity[env] = value

    def set_time_scale(self, scale: float) -> None:
        self.scales.append(scale)

    def set_paused(self, paused: bool) -> None:
        self.pauses.append(paused)

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        """2 x 4 pixels; none of env 1."""
        if self.broken:
            raise ZeroDivisionError("no GPU \u2026 \u00e9")
        return None if env_id == 1 else np.arange(24, dtype=np.uint8).reshape(2, 4, 3)

    def compute_reward(self, achieved: NDArray[np.float32], desired: NDArray[np.float32]) -> NDArray[np.float32]:
        distances: NDArray[np.float32] = np.abs(achieved - desired).sum(axis=1)
        return -distances
