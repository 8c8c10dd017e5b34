"""Keys of Dict spaces as Minari can keep them: in HDF5 a name is a path, so `arm/left` would be a group in a group.

A "/" becomes "%2F" and a "%" becomes "%25", as in a URL; likewise what HDF5 takes for no name at all. A dataset in
which a key was changed says so in its metadata, under `ENCODING`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from gymnasium import spaces

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
    if isinstance(space, spaces.Dict):
        return spaces.Dict({change(key): with_keys(part, change) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([with_keys(part, change) for part in space.spaces])
    return space


def tree_with_keys(tree: Any, change: Callable[[str], str]) -> Any:
    """A member of a space, or rows of members, with every key changed."""
    if isinstance(tree, Mapping):
        return {change(key): tree_with_keys(part, change) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(tree_with_keys(part, change) for part in tree)
    return tree
