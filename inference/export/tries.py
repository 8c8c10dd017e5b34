"""Observations to compare an exported file with predict() on: such as an env gives, and such as lie at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.inference.export.observations import Leaf

Floats = NDArray[np.float32]


def typical_rows(leaf: Leaf, stats: Any, n: int, rng: np.random.Generator) -> Floats:
    """Observations such as an env gives: around the running statistics, or anywhere within the bounds."""
    space, shape = leaf.space, (n, *leaf.shape)
    if not isinstance(space, spaces.Box):
        choices = getattr(space, "nvec", space.n if isinstance(space, spaces.Discrete) else 2)  # 2: MultiBinary
        picks: Floats = rng.integers(choices, size=shape).astype(np.float32)
        return picks + np.array(leaf.starts, np.float32).reshape(leaf.shape) if leaf.starts else picks
    if len(shape) == 4 and is_narrow(space):
        # Noise over a whole image averages out and moves no action: give each image its own colour and contrast.
        channels = np.arange(3) == np.argmin(leaf.shape)  # the axis that holds them: the shortest
        base, contrast = rng.random((n, *np.where(channels, leaf.shape, 1))), rng.random((n, 1, 1, 1))
        picture = np.clip(base + contrast * (rng.random(shape) - 0.5), 0.0, 1.0)
        return np.asarray(space.low + picture * (space.high - space.low.astype(np.float64)), space.dtype).astype(
            np.float32
        )
    if np.issubdtype(space.dtype, np.integer):
        return rng.integers(space.low, space.high, size=shape, endpoint=True).astype(np.float32)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    if stats is not None:
        mean, std = _as_sent(leaf, stats.mean), _as_sent(leaf, np.sqrt(stats.var))
        rows = mean + std * rng.standard_normal(shape)
    else:
        narrow = np.isfinite(low) & np.isfinite(high) & (np.abs(low) < 1e6) & (np.abs(high) < 1e6)
        safe_low, safe_high = np.where(narrow, low, 0.0), np.where(narrow, high, 1.0)
        within = safe_low + (safe_high - safe_low) * rng.random(shape)
        scale = rng.choice([0.1, 1.0, 3.0], size=(n,) + (1,) * (len(shape) - 1))
        rows = np.where(narrow, within, scale * rng.standard_normal(shape))
    return np.clip(rows, low, high).astype(np.float32)


def extreme_rows(leaf: Leaf, stats: Any, n: int, rng: np.random.Generator) -> Floats:
    """Observations at the edges: zeros, bounds, and far out where there are none (beyond the clip of VecNormalize)."""
    space, shape = leaf.space, (n, *leaf.shape)
    if not isinstance(space, spaces.Box):
        return typical_rows(leaf, stats, n, rng)
    if stats is not None:
        centre, far = _as_sent(leaf, stats.mean), 20.0 * _as_sent(leaf, np.sqrt(stats.var)) + 1.0
    else:
        centre, far = np.zeros(leaf.shape), np.full(leaf.shape, 100.0)
    if np.issubdtype(space.dtype, np.integer) or is_narrow(space):
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    else:
        low, high = np.maximum(space.low, centre - far), np.minimum(space.high, centre + far)
    picks = rng.integers(3, size=shape)
    rows = np.where(picks == 0, low, np.where(picks == 1, high, np.clip(0.0, low, high)))
    for i, whole in enumerate((low, high, np.clip(0.0, low, high))):
        if i < n:
            rows[i] = whole
    return rows.astype(space.dtype).astype(np.float32)


def is_narrow(space: spaces.Box) -> bool:
    """Whether all bounds are finite and small enough to be tried."""
    return bool((np.abs(space.low) < 1e6).all() and (np.abs(space.high) < 1e6).all())


def _as_sent(leaf: Leaf, stat: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.moveaxis(stat, 0, -1) if leaf.transposed else stat
