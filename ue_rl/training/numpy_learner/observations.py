"""Observations as features: what Stable-Baselines3's preprocessing and flattening extractors make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space

from ue_rl.training.numpy_learner.parameters import Floats

Features = Callable[[Any], Floats]  # observations [n, ...], or a dict of them -> [n, features]


def features_of(space: spaces.Space[Any], dtype: np.dtype[Any], normalize_images: bool) -> Features | None:
    """What makes features of observations in `space`; None where there is nothing in NumPy.

    Args:
        dtype: of the features. normalize_images: pictures are divided by 255.
    """
    if isinstance(space, spaces.Dict):
        parts = {name: features_of(part, dtype, normalize_images) for name, part in space.spaces.items()}
        known = {name: part for name, part in parts.items() if part is not None}
        if len(known) < len(parts):
            return None
        return lambda observations: np.concatenate([part(observations[name]) for name, part in known.items()], axis=1)
    if isinstance(space, spaces.Box):
        if normalize_images and is_image_space(space):
            return lambda observations: _rows(observations, dtype) / 255
        return lambda observations: _rows(observations, dtype)
    if isinstance(space, spaces.MultiBinary):
        return lambda observations: _rows(observations, dtype)
    if isinstance(space, spaces.Discrete):
        return _one_hot([int(space.n)], dtype)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return _one_hot(space.nvec.tolist(), dtype)
    return None


def _rows(observations: Any, dtype: np.dtype[Any]) -> Floats:
    given = np.asarray(observations)
    return given.reshape(len(given), -1).astype(dtype, copy=False)


def _one_hot(counts: list[int], dtype: np.dtype[Any]) -> Features:
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    width = sum(counts)

    def made(observations: Any) -> Floats:
        chosen = np.asarray(observations).reshape(-1, len(counts)).astype(np.intp)
        features = np.zeros((len(chosen), width), dtype)
        features[np.arange(len(chosen))[:, None], chosen + starts] = 1
        return features

    return made
