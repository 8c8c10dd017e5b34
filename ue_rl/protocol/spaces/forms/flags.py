"""MULTI_BINARY: an array of flags, 0 or 1 each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spaces.forms.base import (
    MAX_SIZE,
    Arrays,
    Bounds,
    Fields,
    LeafForm,
    LeafText,
    invalid,
    shape_text,
    shape_words,
)
from ue_rl.protocol.spaces.forms.choices import read_range

if TYPE_CHECKING:
    from ue_rl.protocol.spaces.tree import Leaf


class FlagsForm(LeafForm):
    """See LeafForm."""

    word = "MULTI_BINARY"
    example = "MULTI_BINARY(n)"
    gymnasium = "MultiBinary"

    def bounds(self, leaf: Leaf) -> Bounds:
        """See LeafForm."""
        return np.zeros(leaf.size, np.float32), np.ones(leaf.size, np.float32)

    def counts(self, leaf: Leaf) -> NDArray[np.int64]:
        """See LeafForm."""
        return np.full(leaf.size, 2, np.int64)

    def is_whole(self, leaf: Leaf) -> bool:
        """See LeafForm."""
        return True

    def text(self, leaf: Leaf, bound: Callable[[float, str], str]) -> str:
        """See LeafForm."""
        shape = ""
        if len(leaf.shape) != 1:
            shape = shape_text(leaf.shape)
        return f"MULTI_BINARY({leaf.size}){shape}"

    def read(self, text: LeafText) -> Fields:
        """See LeafForm."""
        ranges = [read_range(part, text.numbers) for part in text.body]
        if len(ranges) != 1 or ranges[0][0] != 0 or not 1 <= ranges[0][1] <= MAX_SIZE:
            raise invalid("MULTI_BINARY has one number: how many flags", got=",".join(text.body))
        count = ranges[0][1]
        shape = text.shape
        if shape is None:
            shape = (count,)
        if np.prod(shape, dtype=np.int64) != count:
            raise invalid("MULTI_BINARY and its shape disagree", count, shape)
        return {"shape": shape}

    def summary(self, leaf: Leaf) -> str:
        """See LeafForm."""
        return f"MULTI_BINARY{shape_words(leaf.shape)}"

    def space(self, leaf: Leaf, image_shape: tuple[int, ...]) -> Any:
        """See LeafForm."""
        from gymnasium import spaces

        return spaces.MultiBinary(leaf.size if len(leaf.shape) == 1 else leaf.shape)

    def of_space(self, space: Any) -> Fields:
        """See LeafForm."""
        return {"shape": space.shape}

    def to_json(self, leaf: Leaf, image_shape: tuple[int, ...]) -> dict[str, Any]:
        """See LeafForm: shape."""
        return {"type": "MultiBinary", "shape": list(leaf.shape)}

    def space_to_json(self, space: Any) -> dict[str, Any]:
        """See LeafForm."""
        return {"type": "MultiBinary", "shape": [int(n) for n in space.shape]}

    def of_json(self, said: Mapping[str, Any]) -> Fields:
        """See LeafForm."""
        return {"shape": tuple(said["shape"])}

    def dtype(self, leaf: Leaf) -> np.dtype[Any]:
        """See LeafForm."""
        return np.dtype(np.int8)

    def box_bounds(self, leaf: Leaf) -> Bounds:
        """See LeafForm: a number for each flag, which is on where the number is greater than 0."""
        return np.full(leaf.size, -1, np.float32), np.ones(leaf.size, np.float32)

    def from_box(self, leaf: Leaf, xp: Any) -> Arrays:
        """See LeafForm."""
        return lambda numbers: numbers > 0

    def to_box(self, leaf: Leaf) -> Arrays:
        """See LeafForm: 1 or -1."""
        return lambda rows: np.where(rows > 0, np.float32(1), np.float32(-1))

    def box_scores(self, leaf: Leaf, numbers: Any, xp: Any) -> list[Any]:
        """See LeafForm: 0 and its number."""
        flags = [numbers[:, at] for at in range(leaf.size)]
        return [xp.stack([xp.zeros_like(flag), flag], 1) for flag in flags]
