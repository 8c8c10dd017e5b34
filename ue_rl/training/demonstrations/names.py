"""Keys of Dict spaces as Minari can keep them: in HDF5 a name is a path, so `arm/left` would be a group in a group.

A "/" becomes "%2F" and a "%" becomes "%25", as in a URL; likewise what HDF5 takes for no name at all. A dataset in
which a key was changed says so in its metadata, under `ENCODING`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from gymnasium import spaces

from ue_rl.protocol.spaces.walks import Key, Path, fold

ENCODING = "ue_rl_key_encoding"
PERCENT = "percent"

_EMPTY = "%"  # of no other key: a "%" in a key becomes "%25"


def stored_key(key: str) -> str:
    """The name under which the file has `key`."""
    if key == "":
        return _EMPTY
    if key == ".":
        return "%2E"  # HDF5's name of the group itself
    return key.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")


def original_key(name: str) -> str:
    """The key that has this name in the file."""
    if name == _EMPTY:
        return ""
    return unquote(name)


def with_keys(space: spaces.Space[Any], change: Callable[[str], str]) -> spaces.Space[Any]:
    """`space` with every key of its Dicts changed."""

    def branch(node: Any, parts: dict[Key, Any], _: Path) -> spaces.Space[Any]:
        if isinstance(node, spaces.Dict):
            return spaces.Dict({change(str(key)): part for key, part in parts.items()})
        return spaces.Tuple([*parts.values()])

    made: spaces.Space[Any] = fold(space, lambda part, _: part, branch)
    return made


def in_order(space: spaces.Space[Any], said: Any) -> spaces.Space[Any]:
    """`space` with the parts of its Dicts in the order of `said`, the JSON that it was made from.

    Gymnasium sorts them on the way, and the arrays of a recorded episode are numbered in the order of before.
    """

    def branch(node: Any, parts: dict[Key, Any], at: Path) -> spaces.Space[Any]:
        if isinstance(node, spaces.Tuple):
            return spaces.Tuple([*parts.values()])
        made = spaces.Dict()
        for key in functools.reduce(lambda whole, key: whole["subspaces"][key], at, said)["subspaces"]:
            made.spaces[key] = parts[key]  # one by one: the constructor would sort them, too
        return made

    made: spaces.Space[Any] = fold(space, lambda part, _: part, branch)
    return made


def tree_with_keys(tree: Any, change: Callable[[str], str]) -> Any:
    """A member of a space, or rows of members, with every key changed."""

    def branch(node: Any, parts: dict[Key, Any], _: Path) -> Any:
        if isinstance(node, tuple):
            return tuple(parts.values())
        return {change(str(key)): part for key, part in parts.items()}

    return fold(tree, lambda leaf, _: leaf, branch)
