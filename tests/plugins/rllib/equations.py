"""The equations of two Gymnasium envs, for many steps: (observations, actions) -> (next, rewards, terminated)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Result = tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]


def cart_pole(obs: NDArray[Any], actions: NDArray[Any]) -> Result:
    """CartPole-v1: Barto, Sutton and Anderson's, with Euler's steps of 0.02 s."""
    x, speed, angle, spin = np.asarray(obs, np.float64).T
    force = np.where(actions == 1, 10.0, -10.0)
    pushed = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
    turn = (9.8 * np.sin(angle) - np.cos(angle) * pushed) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
    gain = pushed - 0.05 * turn * np.cos(angle) / 1.1
    after = np.stack([x + 0.02 * speed, speed + 0.02 * gain, angle + 0.02 * spin, spin + 0.02 * turn], axis=1)
    over = (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > 12 * 2 * np.pi / 360)
    return after, np.ones(len(obs)), over


def pendulum(obs: NDArray[Any], actions: NDArray[Any]) -> Result:
    """Pendulum-v1, with torques within -2 to 2 as the engine gets them."""
    cosine, sine, speed = np.asarray(obs, np.float64).T
    torque = np.asarray(actions, np.float64).reshape(len(obs))
    angle = np.arctan2(sine, cosine)
    cost = angle**2 + 0.1 * speed**2 + 0.001 * torque**2
    speed = np.clip(speed + (15 * sine + 3 * torque) * 0.05, -8, 8)
    angle = angle + 0.05 * speed
    return np.stack([np.cos(angle), np.sin(angle), speed], axis=1), -cost, np.zeros(len(obs), np.bool_)
