"""An env and a bridge that do nothing, so that a benchmark measures what carries them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges import VectorBridge
from ue_rl.protocol.spec import Channel, EnvSpec

OBS = 8
ACT = 2
_SHOWN = np.linspace(-1, 1, OBS, dtype=np.float32)


class DoNothing(gym.Env[Any, Any]):
    """A step costs nothing."""

    observation_space = gym.spaces.Box(-1, 1, (OBS,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (ACT,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Nothing to reset."""
        return _SHOWN, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Nothing to do."""
        return _SHOWN, 0.0, False, False, {}


class DoNothingBridge(VectorBridge):
    """The same for the engine's side."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(EnvSpec(OBS, ACT, num_envs=num_envs, channel=Channel.ANY))

    def reset_envs(
        self, env_ids: NDArray[np.intp], seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """Writes the one observation."""
        self.outbox.obs[env_ids] = _SHOWN

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """The outbox holds the one observation already."""
