"""Walks over a space, and over whatever has its form: the one place that knows what parts are.

Three things have the form of a space, and each function takes any of them, also several at once:

    a tree of the handshake   a Branch with named parts (DICT) or numbered ones (TUPLE); a Leaf
    a space of Gymnasium      a Dict or a Tuple; every other space is a leaf
    a value                   a mapping or a tuple; anything else is a leaf: an array, a number, a list, None

Leaves come in the order of the first one, each part whole before the next: of a tree and of a space that is the order
of the row. Where others are walked beside it, their parts are taken by name, or by position where the first one numbers
them; they may have more parts, which nobody sees. What is made has dicts for named parts and tuples for others.

Walks belong where something is prepared: what is done at each step is a function that a walk has made. Only values are
walked at each step, and only where a user's form is asked for.

Raises, all of them:
    KeyError, TypeError: another one lacks a part of the first, or has a leaf there.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

Key: TypeAlias = str | int
Path: TypeAlias = tuple[Key, ...]


def parts_of(tree: Any) -> tuple[Sequence[Key], Sequence[Any]] | None:
    """(names of the parts, or a range of their positions; the parts) of a node; None of a leaf."""
    if isinstance(tree, dict):
        return list(tree), list(tree.values())
    if isinstance(tree, tuple):
        return range(len(tree)), tree
    if hasattr(tree, "keys"):  # a Branch, Gymnasium's Dict, another mapping
        keys = tree.keys()
        if not isinstance(keys, range):
            keys = list(keys)
        return keys, list(tree.values())
    parts = getattr(tree, "spaces", None)
    if isinstance(parts, tuple) and isinstance(tree, Sequence):  # Gymnasium's Tuple; its OneOf is no sequence
        return range(len(parts)), parts
    return None


def fold(
    tree: Any, leaf: Callable[[Any, Path], Any], branch: Callable[[Any, dict[Key, Any], Path], Any], at: Path = ()
) -> Any:
    """What `branch` makes of each node, what was made of its parts, and its path; `leaf` of each leaf and its path."""
    found = parts_of(tree)
    if found is None:
        return leaf(tree, at)
    pairs = zip(*found, strict=True)
    return branch(tree, {key: fold(part, leaf, branch, (*at, key)) for key, part in pairs}, at)


def map_leaves(change: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """The form of `tree`, with `change(leaf, *those at its place in the others)` for each leaf."""
    if isinstance(tree, dict):  # the usual value, first: this is called at steps
        return {name: map_leaves(change, part, *[other[name] for other in others]) for name, part in tree.items()}
    found = parts_of(tree)
    if found is None:
        return change(tree, *others)
    keys, parts = found
    rows = zip(parts, *[_parts_at(other, keys) for other in others], strict=True)
    changed = [map_leaves(change, *row) for row in rows]
    if isinstance(keys, range):
        return tuple(changed)
    return dict(zip(keys, changed, strict=True))


def zip_leaves(tree: Any, *others: Any) -> Iterator[tuple[Any, ...]]:
    """(leaf, *those at its place in the others) of each leaf."""
    found = parts_of(tree)
    if found is None:
        yield (tree, *others)
        return
    keys, parts = found
    for row in zip(parts, *[_parts_at(other, keys) for other in others], strict=True):
        yield from zip_leaves(*row)


def flatten(tree: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """(path, leaf) of each leaf; `getter` finds by that path what stands there in another one."""
    found = parts_of(tree)
    if found is None:
        yield at, tree
        return
    for key, part in zip(*found, strict=True):
        yield from flatten(part, (*at, key))


def unflatten(tree: Any, leaves: Iterable[Any]) -> Any:
    """The form of `tree` with the next of `leaves` for each of its leaves."""
    following = iter(leaves)
    return map_leaves(lambda _: next(following), tree)


def getter(path: Path) -> Callable[[Any], Any]:
    """From a value to what stands at `path` in it."""
    if len(path) == 1:
        return operator.itemgetter(path[0])
    return lambda value: functools.reduce(operator.getitem, path, value)


def same_parts(one: Any, other: Any) -> bool:
    """Have both the same parts down to the leaves, under the same names, in whatever order?"""
    found = parts_of(one)
    others = parts_of(other)
    if found is None or others is None:
        return found is others
    keys, parts = found
    if isinstance(keys, range) != isinstance(others[0], range) or set(keys) != set(others[0]):
        return False
    return all(map(same_parts, parts, _parts_at(other, keys)))


def _parts_at(tree: Any, keys: Sequence[Key]) -> list[Any]:
    found = parts_of(tree)
    if found is None:
        raise TypeError(f"parts were expected ({', '.join(map(str, keys))}), and a {type(tree).__name__} came")
    known = dict(zip(*found, strict=True))
    return [known[key] for key in keys]
