"""Rows of observations and actions as demonstrations keep them: joined, stacked, moved from one space to another."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ue_rl.protocol.spaces.engine_leaf import own_leaf
from ue_rl.protocol.spaces.forms import form_of
from ue_rl.protocol.spaces.walks import map_leaves, same_parts, zip_leaves


def joined(rows: list[Any]) -> Any:
    """Trees of arrays, one behind the other."""
    return map_leaves(lambda *parts: np.concatenate(parts), *rows)


def stacked(rows: list[Any]) -> Any:
    """Trees of single values as one tree with a dimension more in front."""
    return joined([map_leaves(lambda leaf: np.asarray(leaf)[None], row) for row in rows])


def fits(given: spaces.Space[Any], wanted: spaces.Space[Any], bounds: bool = False) -> bool:
    """Do the numbers of one space mean the same in the other? Any float type fits any other.

    Args:
        bounds: those of a Box must be the same, too.
    """
    return same_parts(given, wanted) and all(_fits(one, other, bounds) for one, other in zip_leaves(given, wanted))


def _fits(given: spaces.Space[Any], wanted: spaces.Space[Any], bounds: bool) -> bool:
    form = form_of(wanted)
    if form is None or form is not form_of(given):
        return False
    ours = own_leaf(wanted)
    theirs = own_leaf(given)
    kinds = {np.dtype(leaf.dtype).kind for leaf in (ours, theirs)}
    if len(kinds) > 1 or (ours.shape, ours.counts) != (theirs.shape, theirs.counts):
        return False
    return not bounds or bool(np.allclose(theirs.low, ours.low) and np.allclose(theirs.high, ours.high))


def moved(given: spaces.Space[Any], wanted: spaces.Space[Any], tree: Any) -> Any:
    """`tree` of `given` as `wanted` has it: its order, its dtypes, and choices that begin where its begin."""
    return map_leaves(_moved, wanted, given, tree)


def _moved(wanted: spaces.Space[Any], given: spaces.Space[Any], leaf: Any) -> Any:
    first = np.asarray(getattr(given, "start", 0)), np.asarray(getattr(wanted, "start", 0))
    if any(map(np.any, first)):
        return (np.asarray(leaf) - first[0] + first[1]).astype(wanted.dtype)
    return np.asarray(leaf, wanted.dtype)
