"""BOX: an array of numbers between bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spaces.forms.base import (
    DTYPES,
    MAX_EXACT,
    Arrays,
    Bounds,
    Fields,
    Floats,
    LeafForm,
    LeafText,
    invalid,
    shape_text,
    shape_words,
    unchanged,
)
from ue_rl.system.errors import ConfigurationError

if TYPE_CHECKING:
    from ue_rl.protocol.spaces.tree import Leaf


class BoxForm(LeafForm):
    """See LeafForm. A leaf keeps its bounds as one where all are equal."""

    word = "BOX"
    example = "BOX(..)"
    gymnasium = "Box"
    has_suffix = True

    def check(self, leaf: Leaf) -> Fields:
        """See LeafForm."""
        if leaf.dtype not in DTYPES:
            raise invalid("a BOX of an unknown type", ", ".join(DTYPES), leaf.dtype)
        if len(leaf.low) != len(leaf.high) or len(leaf.low) not in (1, leaf.size):
            raise invalid("bounds and shape disagree", f"1 or {leaf.size} ranges", len(leaf.low))
        for low, high in zip(leaf.low, leaf.high, strict=True):
            if not low <= high or low == math.inf or high == -math.inf:
                raise invalid("low must not exceed high, nor be NaN", "low <= high", (low, high))
        if self.is_whole(leaf):
            limits = np.iinfo(leaf.dtype)
            if min(leaf.low) < limits.min or max(leaf.high) > limits.max:
                raise invalid(f"bounds outside {leaf.dtype}", (limits.min, limits.max), (min(leaf.low), max(leaf.high)))
        if len(set(zip(leaf.low, leaf.high, strict=True))) == 1:
            return {"low": leaf.low[:1], "high": leaf.high[:1]}
        return {}

    def bounds(self, leaf: Leaf) -> Bounds:
        """See LeafForm."""
        return np.full(leaf.size, leaf.low, np.float32), np.full(leaf.size, leaf.high, np.float32)

    def is_whole(self, leaf: Leaf) -> bool:
        """See LeafForm."""
        return not leaf.dtype.startswith("float")

    def is_wide(self, leaf: Leaf) -> bool:
        """See LeafForm."""
        return self.is_whole(leaf) and not -MAX_EXACT <= min(leaf.low) <= max(leaf.high) <= MAX_EXACT

    def text(self, leaf: Leaf, bound: Callable[[float, str], str]) -> str:
        """See LeafForm."""
        pairs = zip(leaf.low, leaf.high, strict=True)
        ranges = ",".join(f"{bound(low, leaf.dtype)}:{bound(high, leaf.dtype)}" for low, high in pairs)
        suffix = ""
        if leaf.dtype != "float32":
            suffix = leaf.dtype.upper()
        return f"BOX({ranges}){shape_text(leaf.shape)}{suffix}"

    def read(self, text: LeafText) -> Fields:
        """See LeafForm; without a shape it has as many numbers as ranges."""
        dtype = "float32"
        if text.suffix:
            dtype = text.suffix.lower()
        if dtype not in DTYPES:
            raise invalid("a BOX of an unknown type", ", ".join(name.upper() for name in DTYPES), dtype)
        ends = [part.partition(":") for part in text.body]
        low = [text.numbers.bound(first, dtype) for first, _, _ in ends]
        high = [text.numbers.bound(last, dtype) for _, _, last in ends]
        shape = text.shape
        if shape is None:
            shape = (len(ends),)
        return box_fields(shape, np.array(low, object), np.array(high, object), dtype)

    def summary(self, leaf: Leaf) -> str:
        """See LeafForm."""
        low, high = self.bounds(leaf)
        ranges = f"{low.min():g} to {high.max():g}"
        if len(leaf.low) > 1:
            ranges += " in all"
        return f"BOX{shape_words(leaf.shape)} {leaf.dtype} {ranges}"

    def space(self, leaf: Leaf, image_shape: tuple[int, ...]) -> Any:
        """See LeafForm."""
        from gymnasium import spaces

        dtype = np.dtype(leaf.dtype)
        low, high = (np.full(leaf.size, bound, dtype).reshape(leaf.shape) for bound in (leaf.low, leaf.high))
        return spaces.Box(low, high, leaf.shape, dtype.type)

    def of_space(self, space: Any) -> Fields:
        """See LeafForm. float16 becomes float32, a type of integers that the wire does not know another one."""
        low = np.asarray(space.low)
        high = np.asarray(space.high)
        kind = np.dtype(space.dtype)
        if not math.prod(space.shape):
            raise ConfigurationError("a Box without numbers", expected="sizes of 1 or more", got=space.shape)
        if (low == low.flat[0]).all() and (high == high.flat[0]).all():  # said once, however many numbers there are
            low = low.ravel()[:1]
            high = high.ravel()[:1]
        if kind == np.float64:
            return box_fields(space.shape, low, high, "float64")
        if kind.kind == "f":
            with np.errstate(over="ignore"):
                return box_fields(space.shape, np.asarray(low, np.float32), np.asarray(high, np.float32))
        # uint32, uint64
        dtype = "int64"
        if kind.kind == "b":
            dtype = "uint8"
        elif kind.name in DTYPES:
            dtype = kind.name
        return box_fields(space.shape, low, high, dtype)

    def to_json(self, leaf: Leaf, image_shape: tuple[int, ...]) -> dict[str, Any]:
        """See LeafForm: shape, dtype, low and high (one number where all are equal, else all numbers in C order)."""
        return box_json(leaf.shape, leaf.dtype, leaf.low, leaf.high)

    def space_to_json(self, space: Any) -> dict[str, Any]:
        """See LeafForm."""
        return box_json(space.shape, str(np.dtype(space.dtype)), space.low, space.high)

    def of_json(self, said: Mapping[str, Any]) -> Fields:
        """See LeafForm: float32, whatever it says."""
        with np.errstate(over="ignore"):
            low, high = (
                np.asarray(said.get(side, f"{sign}inf"), np.float64).astype(np.float32)
                for side, sign in (("low", "-"), ("high", ""))
            )
        return box_fields(tuple(said["shape"]), low, high)

    def dtype(self, leaf: Leaf) -> np.dtype[Any]:
        """See LeafForm."""
        return np.dtype(leaf.dtype)

    def edges(self, leaf: Leaf) -> list[tuple[Floats, NDArray[np.float64]]]:
        """See LeafForm: of a float64 leaf, each bound whose float32 lies outside of it."""
        found: list[tuple[Floats, NDArray[np.float64]]] = []
        if leaf.dtype != "float64":
            return found
        for given, outside in ((leaf.low, np.less), (leaf.high, np.greater)):
            with np.errstate(over="ignore"):
                bound = np.array(given if len(given) == leaf.size and leaf.shape else given[0], np.float64)
                rounded = bound.astype(np.float32)
            if outside(rounded, bound).any():
                found.append((np.where(outside(rounded, bound), rounded, np.nan).astype(np.float32), bound))
        return found

    def box_bounds(self, leaf: Leaf) -> Bounds:
        """See LeafForm: its own."""
        return self.bounds(leaf)

    def from_box(self, leaf: Leaf, xp: Any) -> Arrays:
        """See LeafForm: as they are."""
        return unchanged

    def to_box(self, leaf: Leaf) -> Arrays:
        """See LeafForm."""
        return unchanged


def box_fields(shape: tuple[int, ...], low: Any, high: Any, dtype: str = "float32") -> Fields:
    """Of a BOX; `low` and `high` are a number each, or arrays of `shape`."""
    kind = float if dtype.startswith("float") else int
    lows, highs = (tuple(kind(x) for x in np.ravel(bound).tolist()) for bound in (low, high))
    return {"shape": shape, "dtype": dtype, "low": lows, "high": highs}


def box_json(shape: tuple[int, ...], dtype: str, low: Any, high: Any) -> dict[str, Any]:
    """Of a BOX in a policy file."""
    bounds = {"low": _bounds_to_json(low), "high": _bounds_to_json(high)}
    return {"type": "Box", "shape": [int(n) for n in shape], "dtype": dtype, **bounds}


def _bounds_to_json(bounds: Any) -> Any:
    flat = [
        str(value) if math.isinf(value) else value for value in np.asarray(bounds).ravel().tolist()
    ]  # "inf", "-inf"
    if flat and all(value == flat[0] for value in flat):
        return flat[0]
    return flat
