"""Engines of bench_rllib.py and bench_rllib_scaling.py: one whose steps cost nothing, one whose steps take 5 ms."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges import VectorBridge
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spec import EnvSpec

STEP = 0.005  # seconds


class Free(VectorBridge):
    """CartPole's sizes; episodes of 20 to 200 steps."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(EnvSpec(4, 1, num_envs=num_envs, action=ActionSpec.discrete(2)))
        self._lengths = np.linspace(20, 200, num_envs).astype(np.int64)
        self._steps = np.zeros(num_envs, np.int64)

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Any, options: Any) -> None:
        """Step 0."""
        self._steps[env_ids] = 0
        self.outbox.obs[env_ids] = 0.5

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """Counts."""
        self._steps[env_ids] += 1
        self.outbox.rewards[env_ids] = 1
        self.outbox.dones[env_ids] = self._steps[env_ids] >= self._lengths[env_ids]


class Slow(Free):
    """As a game that needs 5 ms for a step of all its envs, and no core of this machine for it."""

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """See the class."""
        time.sleep(STEP)
        super().step_envs(actions, env_ids)


def importable() -> None:
    """Processes that are started here find this module."""
    here, said = str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{here}{os.pathsep}{said}" if said else here
