"""Observations to compare an exported file with its policy on.

Ten thousand of them are chosen so that each way to be wrong shows somewhere, and are judged kind by kind (verify.py),
since what float32 loses on great numbers would hide what a wrong file does on small ones:

- "typical": such as the env gives. Around the statistics of VecNormalize; else anywhere within the bounds of the space;
  else, where it has none, normal numbers of three sizes.
- "near": normal numbers of three sizes around zero, whatever the bounds are, where typical ones are not such. A net's
  first layer has weights for numbers of about one, and float32 all of its digits there: so this is where a weight shows
  that is a hundredth too large, or that lost digits in float16. Policies of Stable-Baselines3 take numbers beyond the
  bounds of their spaces; code of your own may not, and is given none.
- "wide": where there are no bounds, numbers of 10 to 100 000 around an offset of their size, as positions in
  centimetres are. The sizes differ from row to row, by factors, so that each power of ten has its share.
- "extreme": zeros, bounds, and far out where there are none (beyond the clip of VecNormalize).
- "recorded": what the model still holds of its training, or the caller gives.

A fifth of each kind are neighbours of the rows on which float32 was seen to lose most: the same numbers, each moved by
a few units of its last digit (`moved`). Where a unit of the net is about to change sign, one row in thousands is a
hundred times as far off as all others, and whether the file or predict() hits it harder is chance. Some dozens of
neighbours have the same sensitivity and other roundings, so that the most that both are off by is comparable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.inference.export.observations import ObservationLeaf

Floats = NDArray[np.float32]

_SIZES = (0.1, 1.0, 3.0)
_NEAR = 10.0  # bounds within this: anywhere within them is near
_WIDE = (1.0, 5.0)  # powers of ten
_UNITS = 4  # of the last digit, by which a neighbour's numbers are moved at most


def kinds_of(leaves: list[ObservationLeaf], statistics: list[Any]) -> tuple[str, ...]:
    """The kinds of observations that say something of their own here; `statistics`: of each leaf, or None."""
    plain = [leaf.space for leaf, stats in zip(leaves, statistics, strict=True) if stats is None and _is_vector(leaf)]
    near = any(not _is_near(space) and is_narrow(space) for space in plain)
    wide = any(not is_narrow(space) for space in plain)
    return ("typical", "extreme", *(("near",) if near else ()), *(("wide",) if wide else ()))


def draw_rows(kind: str, leaf: ObservationLeaf, stats: Any, n: int, rng: np.random.Generator, anywhere: bool) -> Floats:
    """`n` observations of a kind, float32 [n, *leaf.shape]; `anywhere`: also beyond the bounds of the space."""
    if kind == "extreme":
        return _extreme_rows(leaf, stats, n, rng)
    space: Any = leaf.space
    plain = stats is None and _is_vector(leaf)
    if plain and kind == "near" and not _is_near(space):
        rows = _normal(n, leaf, rng)
        if anywhere:
            return rows
        return np.clip(rows, space.low, space.high).astype(np.float32)
    if plain and kind == "wide" and not is_narrow(space):
        size = 10.0 ** rng.uniform(*_WIDE, (n,) + (1,) * len(leaf.shape))
        offset = rng.standard_normal(leaf.shape)
        numbers = size * (offset + rng.standard_normal((n, *leaf.shape)))
        return np.clip(numbers, space.low, space.high).astype(np.float32)
    return _typical_rows(leaf, stats, n, rng)


def moved(leaf: ObservationLeaf, rows: Floats, rng: np.random.Generator) -> Floats:
    """Neighbours of `rows`, float32 [n, *leaf.shape]; choices, whole numbers and pictures stay."""
    if not _is_vector(leaf):
        return rows
    space: Any = leaf.space
    near = moved_numbers(rows, rng)
    inside = (rows >= space.low) & (rows <= space.high)
    return np.where(inside, np.clip(near, space.low, space.high), near).astype(np.float32)


def moved_numbers(rows: Floats, rng: np.random.Generator) -> Floats:
    """`rows`, each number by a few units of its last digit greater or smaller."""
    units = rng.integers(-_UNITS, _UNITS, size=rows.shape, endpoint=True)
    return np.asarray(rows * (1.0 + units * 2.0**-23), np.float32)


def _typical_rows(leaf: ObservationLeaf, stats: Any, n: int, rng: np.random.Generator) -> Floats:
    space = leaf.space
    shape = (n, *leaf.shape)
    if not isinstance(space, spaces.Box):
        default = 2
        if isinstance(space, spaces.Discrete):
            default = space.n
        choices = getattr(space, "nvec", default)  # 2: MultiBinary
        picks: Floats = rng.integers(choices, size=shape).astype(np.float32)
        return picks + np.asarray(getattr(space, "start", 0), np.float32)
    if len(shape) == 4 and is_narrow(space):
        # Noise over a whole image averages out and moves no action: give each image its own colour and contrast.
        channels = np.arange(3) == np.argmin(leaf.shape)  # the axis that holds them: the shortest
        base = rng.random((n, *np.where(channels, leaf.shape, 1)))
        contrast = rng.random((n, 1, 1, 1))
        picture = np.clip(base + contrast * (rng.random(shape) - 0.5), 0.0, 1.0)
        return np.asarray(space.low + picture * (space.high - space.low.astype(np.float64)), space.dtype).astype(
            np.float32
        )
    if np.issubdtype(space.dtype, np.integer):
        return rng.integers(space.low, space.high, size=shape, endpoint=True).astype(np.float32)
    low = space.low.astype(np.float64)
    high = space.high.astype(np.float64)
    if stats is not None:
        mean = _as_sent(leaf, stats.mean)
        std = _as_sent(leaf, np.sqrt(stats.var))
        rows = mean + std * rng.standard_normal(shape)
    else:
        narrow = np.isfinite(low) & np.isfinite(high) & (np.abs(low) < 1e6) & (np.abs(high) < 1e6)
        safe_low = np.where(narrow, low, 0.0)
        safe_high = np.where(narrow, high, 1.0)
        within = safe_low + (safe_high - safe_low) * rng.random(shape)
        rows = np.where(narrow, within, _normal(n, leaf, rng))
    return np.clip(rows, low, high).astype(np.float32)


def _extreme_rows(leaf: ObservationLeaf, stats: Any, n: int, rng: np.random.Generator) -> Floats:
    space = leaf.space
    shape = (n, *leaf.shape)
    if not isinstance(space, spaces.Box):
        return _typical_rows(leaf, stats, n, rng)
    if stats is not None:
        centre = _as_sent(leaf, stats.mean)
        far = 20.0 * _as_sent(leaf, np.sqrt(stats.var)) + 1.0
    else:
        centre = np.zeros(leaf.shape)
        far = np.full(leaf.shape, 100.0)
    if np.issubdtype(space.dtype, np.integer) or is_narrow(space):
        low = space.low.astype(np.float64)
        high = space.high.astype(np.float64)
    else:
        low = np.maximum(space.low, centre - far)
        high = np.minimum(space.high, centre + far)
    picks = rng.integers(3, size=shape)
    rows = np.where(picks == 0, low, np.where(picks == 1, high, np.clip(0.0, low, high)))
    for i, whole in enumerate((low, high, np.clip(0.0, low, high))):
        if i < n:
            rows[i] = whole
    return rows.astype(space.dtype).astype(np.float32)


def _normal(n: int, leaf: ObservationLeaf, rng: np.random.Generator) -> Floats:
    size = rng.choice(_SIZES, size=(n,) + (1,) * len(leaf.shape))
    return np.asarray(size * rng.standard_normal((n, *leaf.shape)), np.float32)


def is_narrow(space: Any) -> bool:
    """Whether all bounds of a Box are finite and small enough to be tried."""
    return bool((np.abs(space.low) < 1e6).all() and (np.abs(space.high) < 1e6).all())


def _is_near(space: Any) -> bool:
    within = (np.abs(space.low) <= _NEAR).all() and (np.abs(space.high) <= _NEAR).all()
    return bool(within and (space.low <= 0).all() and (space.high >= 0).all())


def _is_vector(leaf: ObservationLeaf) -> bool:
    """Whether a leaf is numbers that need not be whole, and no picture."""
    space = leaf.space
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and len(leaf.shape) < 3


def _as_sent(leaf: ObservationLeaf, stat: NDArray[np.float64]) -> NDArray[np.float64]:
    if leaf.transposed:
        return np.moveaxis(stat, 0, -1)
    return stat
