"""ue_rl.protocol.spaces.walks: one walk for trees, for Gymnasium's spaces, and for values."""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ue_rl.protocol.spaces.gymnasium import gymnasium_space
from ue_rl.protocol.spaces.tree import leaves
from ue_rl.protocol.spaces.walks import flatten, fold, getter, map_leaves, parts_of, same_parts, unflatten, zip_leaves
from ue_rl.protocol.text.space_text import read_space

TREE = read_space("DICT(goal:BOX(-1:1)[3],bag:TUPLE(MULTI_BINARY(5),DICT(x:DISCRETE(4))),arm:BOX(-1:1)[2])")
SPACE = gymnasium_space(TREE)
PATHS = [("goal",), ("bag", 0), ("bag", 1, "x"), ("arm",)]


def value() -> dict[str, Any]:
    """In another order than the tree's, and with a part more."""
    return {"arm": 3, "bag": (1, {"y": 9, "x": 2}), "goal": 0}


@pytest.mark.parametrize("tree", [TREE, SPACE, map_leaves(lambda _: 0, TREE)], ids=["tree", "space", "value"])
def test_leaves_come_in_the_rows_order(tree: Any) -> None:
    assert [path for path, _ in flatten(tree)] == PATHS
    assert [[str(key) for key in path] for path in PATHS] == [list(path) for path, _, _ in leaves(TREE)]
    assert [seen for _, seen in zip_leaves(tree, value())] == [0, 1, 2, 3]
    assert [getter(path)(value()) for path, _ in flatten(tree)] == [0, 1, 2, 3]
    assert map_leaves(lambda _, seen: seen + 1, tree, value()) == {"goal": 1, "bag": (2, {"x": 3}), "arm": 4}
    assert unflatten(tree, "abcd") == {"goal": "a", "bag": ("b", {"x": "c"}), "arm": "d"}


def test_a_fold_goes_from_the_leaves_up() -> None:
    def branch(node: Any, parts: dict[Any, Any], at: Any) -> Any:
        return (at, *parts.values())

    folded = fold(TREE, lambda leaf, at: leaf.size, branch)
    assert folded == ((), 3, (("bag",), 5, (("bag", 1), 1)), 2)


@pytest.mark.parametrize(
    "leaf", [None, 1, "text", [1, 2], np.zeros(3), spaces.Box(0, 1), spaces.Text(3), spaces.OneOf([spaces.Discrete(2)])]
)
def test_everything_else_is_a_leaf(leaf: Any) -> None:
    assert parts_of(leaf) is None
    assert map_leaves(lambda part: [part], leaf)[0] is leaf
    assert getter(())(leaf) is leaf


@pytest.mark.parametrize("kind", [OrderedDict, MappingProxyType])
def test_any_mapping_is_named_parts(kind: Any) -> None:
    assert map_leaves(lambda n: n + 1, kind({"a": 1, "b": (2,)})) == {"a": 2, "b": (3,)}


def test_what_lacks_a_part_is_refused() -> None:
    for wrong in ({"goal": 0, "bag": (1, {"x": 2})}, {**value(), "bag": (1,)}, {**value(), "bag": 1}, 0):
        for tree in (TREE, SPACE, map_leaves(lambda _: 0, TREE)):
            with pytest.raises((KeyError, TypeError)):
                list(zip_leaves(tree, wrong))
            with pytest.raises((KeyError, TypeError)):
                map_leaves(lambda _, seen: seen, tree, wrong)


def test_the_same_parts_in_whatever_order() -> None:
    pair = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])
    assert same_parts(TREE, SPACE)
    assert same_parts({"a": 1, "b": pair}, {"b": (0, 0), "a": 2})
    for other in ({"a": 1}, {"a": 1, "b": (0,)}, {"a": 1, "b": {0: 1, 1: 1}}, {"a": 1, "b": 1}, (1, (0, 0)), 1):
        assert not same_parts({"a": 1, "b": pair}, other)
