"""Space trees: what the numbers of an observation or action mean, as named parts; no gymnasium, no text, no I/O.

A tree is a Leaf, or a Branch of named parts. On the wire and in memory it is still one flat row of float32: the leaves'
numbers one after the other, in the tree's order, arrays in row-major order (C order). ue_rl/protocol/text/space_text.py
reads and writes the trees of the handshake, ue_rl/protocol/spaces/gymnasium.py turns them into Gymnasium's spaces and
back. Source: docs/protocol.md, section "Spaces".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spaces.forms import FORMS, LeafKind
from ue_rl.protocol.spaces.forms.base import MAX_EXACT, LeafForm, invalid
from ue_rl.protocol.spaces.forms.box import box_fields

__all__ = [
    "MAX_DEPTH",
    "MAX_LEAVES",
    "Branch",
    "Leaf",
    "LeafKind",
    "Space",
    "beyond_exact",
    "bounds",
    "box",
    "choices",
    "leaves",
    "number_path",
]

MAX_LEAVES = 1024
MAX_DEPTH = 8


@dataclass(frozen=True)
class Leaf:
    """One array, or one choice.

    Args:
        kind: see LeafKind.
        shape: of the array that a user sees; () for DISCRETE, and for IMAGE, whose shape is the handshake's IMAGE.
        dtype: of a BOX, one of DTYPES. The row holds float32 whatever it says, so float64 is rounded on the way, and
            an integer beyond 2**24 is refused by who sends or reads it.
        low, high: of a BOX, bounds of each number in row-major order, or one for all; kept as one where all are equal.
        counts: of DISCRETE and MULTI_DISCRETE, the number of choices of each number.
        starts: the lowest choice of each number; () where all are 0. The row holds the choice itself.

    Raises:
        ConfigurationError: they contradict each other.
    """

    kind: LeafKind
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        if any(n < 1 for n in self.shape) or len(self.shape) > 8:
            raise invalid("a shape has at most 8 sizes of 1 or more", got=self.shape)
        for name, value in self.form.check(self).items():
            object.__setattr__(self, name, value)

    @property
    def form(self) -> LeafForm:
        """What its kind means."""
        return FORMS[self.kind]

    @property
    def size(self) -> int:
        """Numbers in the row; an IMAGE has none."""
        return self.form.size(self)

    @property
    def wide(self) -> bool:
        """Whether its bounds allow integers that float32 may not hold."""
        return self.form.is_wide(self)

    @property
    def parts(self) -> tuple[tuple[str, Space], ...]:
        """None."""
        return ()


@dataclass(frozen=True)
class Branch:
    """Named parts, in order.

    Args:
        parts: (name, space) each. named: DICT, whose names the engine chooses, or TUPLE, whose names are 0, 1, ..

    Raises:
        ConfigurationError: no parts, a name twice, or too many or too deep ones.
    """

    parts: tuple[tuple[str, Space], ...]
    named: bool = True

    def __post_init__(self) -> None:
        names = [name for name, _ in self.parts]
        if not names or len(set(names)) != len(names):
            raise invalid("a DICT or TUPLE has one part or more, each with a name of its own", got=names)
        if _depth(self) > MAX_DEPTH:
            raise invalid("parts within parts too deep", MAX_DEPTH)
        if sum(1 for _ in leaves(self)) > MAX_LEAVES:
            raise invalid("too many parts", f"at most {MAX_LEAVES}")

    def keys(self) -> Sequence[str | int]:
        """Of its parts, as a user's value has them: names in a DICT, positions in a TUPLE."""
        if self.named:
            return [name for name, _ in self.parts]
        return range(len(self.parts))

    def values(self) -> Sequence[Space]:
        """Its parts, as `keys`."""
        return [part for _, part in self.parts]

    @property
    def size(self) -> int:
        """Numbers in the row."""
        return sum(part.size for _, part in self.parts)


Space: TypeAlias = Leaf | Branch


def box(shape: tuple[int, ...], low: Any = -math.inf, high: Any = math.inf, dtype: str = "float32") -> Leaf:
    """A BOX; `low` and `high` are a number each, or arrays of `shape`."""
    return Leaf(LeafKind.BOX, **box_fields(shape, low, high, dtype))


def leaves(space: Space) -> Iterator[tuple[tuple[str, ...], Leaf, int]]:
    """(path of names, leaf, index of its first number in the row) of every leaf, in the row's order."""
    waiting: list[tuple[tuple[str, ...], Space]] = [((), space)]
    offset = 0
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, Leaf):
            yield path, part, offset
            offset += part.size
        else:
            waiting.extend(((*path, name), child) for name, child in reversed(part.parts))


def number_path(space: Space, index: int) -> str:
    """`goal.2` for the third number of the part "goal"; "number" where no part has a name."""
    for path, leaf, offset in leaves(space):
        if offset <= index < offset + leaf.size:
            return ".".join([*path, *([str(index - offset)] if leaf.size > 1 else [])]) or "number"
    return "number"


def bounds(space: Space) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(low, high) of every number of the row, each float32 [size]; of a choice its lowest and highest one."""
    none = np.zeros(0, np.float32)
    pairs = [leaf.form.bounds(leaf) for _, leaf, _ in leaves(space)]
    return np.concatenate([*(low for low, _ in pairs), none]), np.concatenate([*(high for _, high in pairs), none])


def choices(space: Space) -> NDArray[np.int64]:
    """How many choices each number of the row has, int64 [size]; 0 where it is none."""
    return np.concatenate([leaf.form.counts(leaf) for _, leaf, _ in leaves(space)])


def beyond_exact(numbers: Any) -> int | float | None:
    """The first of these integers that float32 may not hold, None where there is none."""
    array = np.asarray(numbers)
    beyond = array[(array > MAX_EXACT) | (array < -MAX_EXACT)]
    return beyond.ravel()[0].item() if beyond.size else None


def _depth(space: Space) -> int:
    return 1 + max((_depth(part) for _, part in space.parts), default=0)
