"""Advantages and returns of a rollout (GAE), in the buffer of Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer

from ue_rl.training.numpy_learner.parameters import Floats


def compute_returns(buffer: RolloutBuffer, last_values: Floats, dones: NDArray[np.bool_]) -> None:
    """As the buffer's own compute_returns_and_advantage, with one loop of two calls for a step.

    Args:
        buffer: full. last_values: [n_envs], of the observations after the last step. dones: [n_envs], of that step.
    """
    goes_on: NDArray[Any] = np.empty_like(buffer.episode_starts)
    np.subtract(1, buffer.episode_starts[1:], out=goes_on[:-1])
    np.subtract(1, dones, out=goes_on[-1], dtype=np.float32)
    advantages = np.empty_like(buffer.values)
    advantages[:-1] = buffer.values[1:]
    advantages[-1] = last_values
    advantages *= goes_on
    advantages *= buffer.gamma
    advantages += buffer.rewards
    advantages -= buffer.values
    # These are the errors of one step; from the last step on, each is given what follows it.
    goes_on *= buffer.gamma * buffer.gae_lambda
    following = np.empty_like(advantages[0])
    for step in range(len(advantages) - 2, -1, -1):
        np.multiply(goes_on[step], advantages[step + 1], out=following)
        advantages[step] += following
    buffer.advantages = advantages
    buffer.returns = advantages + buffer.values
