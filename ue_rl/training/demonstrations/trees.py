"""Observations and actions as Gymnasium's spaces nest them: trees of dicts and tuples with arrays for leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces


def each(tree: Any, change: Callable[[Any], Any]) -> Any:
    """`tree` with every leaf changed."""
    if isinstance(tree, Mapping):
        return {name: each(part, change) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(each(part, change) for part in tree)
    return change(tree)


def leaves(space: spaces.Space[Any], tree: Any) -> Iterator[tuple[spaces.Space[Any], Any]]:
    """(space, leaf) of each, in the order of the space.

    Raises:
        KeyError, IndexError, TypeError: `tree` is no member of `space`.
    """
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from leaves(part, tree[name])
    elif isinstance(space, spaces.Tuple):
        for at, part in enumerate(space.spaces):
            yield from leaves(part, tree[at])
    else:
        yield space, tree


def rebuilt(space: spaces.Space[Any], values: Iterator[Any]) -> Any:
    """The tree of `space` whose leaves are the next ones of `values`."""
    if isinstance(space, spaces.Dict):
        return {name: rebuilt(part, values) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(rebuilt(part, values) for part in space.spaces)
    return next(values)


def joined(rows: list[Any]) -> Any:
    """Trees of arrays, one behind the other."""
    first = rows[0]
    if isinstance(first, Mapping):
        return {name: joined([row[name] for row in rows]) for name in first}
    if isinstance(first, tuple):
        return tuple(joined([row[at] for row in rows]) for at in range(len(first)))
    return np.concatenate(rows)


def stacked(rows: list[Any]) -> Any:
    """Trees of single values as one tree with a dimension more in front."""
    return joined([each(row, lambda leaf: np.asarray(leaf)[None]) for row in rows])


def fits(given: spaces.Space[Any], wanted: spaces.Space[Any], bounds: bool = False) -> bool:
    """Do the numbers of one space mean the same in the other? Any float type fits any other.

    Args:
        bounds: those of a Box must be the same, too.
    """
    if isinstance(wanted, spaces.Dict) and isinstance(given, spaces.Dict):
        return given.spaces.keys() == wanted.spaces.keys() and all(
            fits(given[name], wanted[name], bounds) for name in wanted.spaces
        )
    if isinstance(wanted, spaces.Tuple) and isinstance(given, spaces.Tuple):
        pairs = zip(given.spaces, wanted.spaces, strict=False)
        return len(given.spaces) == len(wanted.spaces) and all(fits(a, b, bounds) for a, b in pairs)
    if isinstance(wanted, spaces.Box) and isinstance(given, spaces.Box):
        kinds = {np.dtype(given.dtype).kind, np.dtype(wanted.dtype).kind}
        same = not bounds or bool(np.allclose(given.low, wanted.low) and np.allclose(given.high, wanted.high))
        return given.shape == wanted.shape and len(kinds) == 1 and same
    if isinstance(wanted, spaces.Discrete) and isinstance(given, spaces.Discrete):
        return bool(given.n == wanted.n)
    if isinstance(wanted, spaces.MultiDiscrete) and isinstance(given, spaces.MultiDiscrete):
        return bool(np.array_equal(given.nvec, wanted.nvec))
    if isinstance(wanted, spaces.MultiBinary) and isinstance(given, spaces.MultiBinary):
        return given.shape == wanted.shape
    return False


def moved(given: spaces.Space[Any], wanted: spaces.Space[Any], tree: Any) -> Any:
    """`tree` of `given` as `wanted` has it: its dtypes, and choices that begin where its begin."""
    return rebuilt(
        wanted,
        (_moved(a, b, leaf) for (a, leaf), (b, _) in zip(leaves(given, tree), leaves(wanted, tree), strict=True)),
    )


def _moved(given: spaces.Space[Any], wanted: spaces.Space[Any], leaf: Any) -> Any:
    first = np.asarray(getattr(given, "start", 0)), np.asarray(getattr(wanted, "start", 0))
    if any(map(np.any, first)):
        return (np.asarray(leaf) - first[0] + first[1]).astype(wanted.dtype)
    return np.asarray(leaf, wanted.dtype)
