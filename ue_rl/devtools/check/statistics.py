"""What many observations say: how likely something is where an engine is right, and how numbers are rounded. No I/O."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_SHUFFLES = 4000
_MOST_FEATURES = 9
_MOST_ROWS = 400
_ENOUGH = 200  # different numbers
_LOOKED_AT = 2000
# %f has 6 decimals, C++ streams have 6 digits; float32 needs 9
_DECIMALS = (3, 4, 5, 6)
_DIGITS = (3, 4, 5, 6)
_EXACT = 2.0**22  # units; of greater numbers every float32 is near a multiple


def by_chance(rows: Floats, times: int) -> float:
    """How likely `times` pairs of rows are all equal, if each is drawn by itself; from how often two of `rows` are.

    Args:
        rows: [n, D].
    """
    rows = rows[:: -(-len(rows) // _MOST_ROWS)]
    _, counts = np.unique(rows, axis=0, return_counts=True)
    pairs = max(len(rows) * (len(rows) - 1), 1)
    return float((((counts * (counts - 1)).sum() + 1) / (pairs + 1)) ** times)


def paired_by_chance(some: Floats, others: Floats, scale: Floats) -> float:
    """The share of shufflings that bring the pairs as near to each other as they are.

    Args:
        some, others: [n, D]. scale: [D], what counts as near in each number.
    """
    one = some.astype(np.float64) / np.maximum(scale, 1e-12)
    two = others.astype(np.float64) / np.maximum(scale, 1e-12)
    distances = np.minimum(np.abs(one[:, None] - two[None]), 1e6).sum(axis=2)
    rng = np.random.default_rng(0)
    places = np.arange(len(some))
    actual = distances[places, places].sum()
    hits = 0
    for _ in range(_SHUFFLES):
        hits += bool(distances[places, rng.permutation(places)].sum() <= actual + 1e-9)
    return (hits + 1) / (_SHUFFLES + 1)


def ranks(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each column [T, D] by its order, mean 0 and length 1; equal values share a rank, constant columns are 0."""
    ordered = np.empty_like(columns)
    for d in range(columns.shape[1]):
        _, places, counts = np.unique(columns[:, d], return_inverse=True, return_counts=True)
        middle = np.cumsum(counts) - (counts - 1) / 2
        ordered[:, d] = middle[places]
    return unit(ordered)


def unit(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns [T, D] with mean 0 and length 1; constant ones are 0."""
    columns = columns - columns.mean(axis=0)
    length = np.linalg.norm(columns, axis=0)
    made: NDArray[np.float64] = np.divide(columns, length, out=np.zeros_like(columns), where=length > 1e-9)
    return made


def features(actions: NDArray[np.float32]) -> NDArray[np.float64]:
    """What an effect may follow, [T, A, F]: each number, its square, and, of few choices, each of them."""
    wide = actions.astype(np.float64)
    made = [wide, (wide - wide.mean(axis=0)) ** 2]
    values = np.unique(wide)
    if len(values) < _MOST_FEATURES:
        made += [(wide == value).astype(np.float64) for value in values]
    return np.stack(made, axis=2)


def effect(changes: Floats, before: Floats, actions: Floats) -> NDArray[np.float64]:
    """How far each number of an action shows itself in what came, in standard deviations of chance, [A].

    What is linear in the state before is taken out first. Actions were drawn independently of all that came before, so
    6 is not chance, whatever the game does.

    Args:
        changes: [T, D]. before: [T, D]. actions: [T, A].
    """
    ordered = ranks(_unexplained(changes, before))
    seen = features(actions)
    found = np.zeros(actions.shape[1])
    for a in range(actions.shape[1]):
        found[a] = np.abs(unit(seen[:, a]).T @ ordered).max(initial=0.0)
    deviations: NDArray[np.float64] = found * np.sqrt(len(changes))
    return deviations


def interplay(changes: Floats, before: Floats, actions: Floats) -> float:
    """The same for actions together with what was shown before them: numbers of both, multiplied; the greatest."""
    ordered = ranks(_unexplained(changes, before))
    seen = features(actions)
    state = unit(before[:, :_MOST_FEATURES].astype(np.float64))
    greatest = 0.0
    for d in range(state.shape[1]):
        for a in range(actions.shape[1]):
            together = (seen[:, a] - seen[:, a].mean(axis=0)) * state[:, d : d + 1]
            greatest = max(greatest, float(np.abs(unit(together * len(changes)).T @ ordered).max(initial=0.0)))
    return greatest * float(np.sqrt(len(changes)))


def _unexplained(changes: Floats, before: Floats) -> NDArray[np.float64]:
    """What came, [T, D], without what is linear in the state before it."""
    left = changes.astype(np.float64)
    if before.shape[1] + 1 < len(left) / 4:
        known = np.column_stack([np.ones(len(left)), unit(before.astype(np.float64))])
        left = left - known @ np.linalg.lstsq(known, left, rcond=None)[0]
        left[np.abs(left) < 1e-7 * (np.abs(changes).max(axis=0, initial=0.0) + 1e-30)] = 0
    return left


def rounding(values: NDArray[np.float64]) -> str:
    """How all of these different float32 numbers are rounded, for people; "" where nothing says that they are."""
    if len(values):
        values = values[:: -(-len(values) // _LOOKED_AT)]
    for decimals in _DECIMALS:
        unit = 10.0**-decimals
        part = values[np.abs(values) < _EXACT * unit]
        if len(part) < _ENOUGH or 2 * len(part) < len(values):
            continue
        if all_of(part, unit) and not all_of(part, 2 * unit) and not all_of(part, 5 * unit):
            return f"{decimals} decimals at most"
    for digits in _DIGITS:
        if len(values) >= _ENOUGH and _significant(values, digits).all():
            # Of numbers on a grid the small ones have fewer digits than the others.
            small = values[np.abs(values) < 0.1 * np.abs(values).max()]
            if 10 * len(small) >= _ENOUGH and not _significant(small, digits - 1).mean() > 0.5:
                return f"{digits} significant digits at most"
            return ""
    return ""


def all_of(values: NDArray[np.float64], unit: float) -> bool:
    """Is each of these float32 numbers the nearest one to a multiple of the unit?"""
    near = np.round(values / unit) * unit
    return bool((near.astype(np.float32) == values.astype(np.float32)).all())


def _significant(values: NDArray[np.float64], digits: int) -> NDArray[np.bool_]:
    """Which of these float32 numbers are the nearest ones to numbers of so many digits?"""
    near = np.array([float(f"{x:.{digits - 1}e}") for x in values.tolist()], np.float32)
    same: NDArray[np.bool_] = near == values.astype(np.float32)
    return same
