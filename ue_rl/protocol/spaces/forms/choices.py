"""DISCRETE and MULTI_DISCRETE: one choice, and an array of choices. The row holds the choice itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spaces.forms.base import (
    MAX_CHOICES,
    Arrays,
    Bounds,
    Fields,
    LeafForm,
    LeafText,
    NumberReader,
    constants,
    invalid,
    shape_text,
    shape_words,
)

if TYPE_CHECKING:
    from ue_rl.protocol.spaces.tree import Leaf

CHOICE_BOUND = 10.0  # ten standard deviations of a policy that has not learnt; finite, as SAC and TD3 need it


class ChoicesForm(LeafForm):
    """What both have in common; see LeafForm."""

    def check(self, leaf: Leaf) -> Fields:
        """See LeafForm."""
        if not leaf.counts or min(leaf.counts) < 1 or max(leaf.counts) > MAX_CHOICES:
            raise invalid("a number of choices is out of range", f"1 to {MAX_CHOICES} for each number", leaf.counts)
        if len(leaf.counts) != leaf.size:
            raise invalid("counts and shape disagree", leaf.size, len(leaf.counts))
        if leaf.starts and len(leaf.starts) != leaf.size:
            raise invalid("starts and shape disagree", leaf.size, len(leaf.starts))
        ends = [abs(start) + count for start, count in zip(leaf.starts, leaf.counts, strict=False)]
        if max(ends, default=0) > MAX_CHOICES:
            raise invalid("choices beyond 2**24 are not exact in float32", got=leaf.starts)
        if not any(leaf.starts):
            return {"starts": ()}
        return {}

    def bounds(self, leaf: Leaf) -> Bounds:
        """See LeafForm."""
        first = first_choices(leaf).astype(np.float32)
        return first, first + (self.counts(leaf) - 1).astype(np.float32)

    def counts(self, leaf: Leaf) -> NDArray[np.int64]:
        """See LeafForm."""
        return np.array(leaf.counts, np.int64)

    def is_whole(self, leaf: Leaf) -> bool:
        """See LeafForm."""
        return True

    def text(self, leaf: Leaf, bound: Callable[[float, str], str]) -> str:
        """See LeafForm: `n`, or `lowest:highest` where the choices do not begin with 0."""
        pairs = zip(first_choices(leaf).tolist(), leaf.counts, strict=True)
        counts = ",".join(f"{start}:{start + count - 1}" if start else str(count) for start, count in pairs)
        shape = ""
        if len(leaf.shape) > 1:
            shape = shape_text(leaf.shape)
        return f"{self.word}({counts}){shape}"

    def read(self, text: LeafText) -> Fields:
        """See LeafForm."""
        ranges = [read_range(part, text.numbers) for part in text.body]
        return {
            "shape": self._read_shape(text),
            "counts": tuple(n for _, n in ranges),
            "starts": tuple(start for start, _ in ranges),
        }

    def _read_shape(self, text: LeafText) -> tuple[int, ...]:
        if text.shape is None:
            return (len(text.body),)
        return text.shape

    def summary(self, leaf: Leaf) -> str:
        """See LeafForm."""
        low, high = self.bounds(leaf)
        each = [f"{first:g} to {last:g}" for first, last in zip(low[:8], high[:8], strict=True)]
        if leaf.size > 8:
            each.append("..")
        return f"{self.word}{shape_words(leaf.shape)} {', '.join(each)}"

    def dtype(self, leaf: Leaf) -> np.dtype[Any]:
        """See LeafForm."""
        return np.dtype(np.int64)

    def trained(self, leaf: Leaf) -> Leaf:
        """See LeafForm: the same choices, counted from 0."""
        if not leaf.starts:
            return leaf
        return replace(leaf, starts=())

    def to_trained(self, leaf: Leaf, xp: Any) -> Arrays:
        """See LeafForm."""
        if not leaf.starts:
            return super().to_trained(leaf, xp)
        starts = constants(first_choices(leaf), xp)
        return lambda numbers: numbers - starts(numbers)

    def from_trained(self, leaf: Leaf, xp: Any) -> Arrays:
        """See LeafForm."""
        if not leaf.starts:
            return super().from_trained(leaf, xp)
        starts = constants(first_choices(leaf), xp)
        return lambda numbers: numbers + starts(numbers)

    def box_bounds(self, leaf: Leaf) -> Bounds:
        """See LeafForm: a number for each choice; the greatest of them is chosen, of equals the first."""
        high = np.full(sum(leaf.counts), CHOICE_BOUND, np.float32)
        return -high, high

    def from_box(self, leaf: Leaf, xp: Any) -> Arrays:
        """See LeafForm."""
        cuts = _cuts(leaf)
        as_sent = self.from_trained(leaf, xp)

        def chosen(numbers: Any) -> Any:
            return as_sent(xp.concatenate([numbers[:, cut].argmax(1)[:, None] for cut in cuts], 1))

        return chosen

    def to_box(self, leaf: Leaf) -> Arrays:
        """See LeafForm: 1 among -1."""
        firsts = np.array([cut.start for cut in _cuts(leaf)]) - first_choices(leaf)
        width = sum(leaf.counts)

        def encoded(rows: Any) -> Any:
            numbers = np.full((len(rows), width), -1, np.float32)
            numbers[np.arange(len(rows))[:, None], rows.astype(np.int64) + firsts] = 1
            return numbers

        return encoded

    def box_scores(self, leaf: Leaf, numbers: Any, xp: Any) -> list[Any]:
        """See LeafForm."""
        return [numbers[:, cut] for cut in _cuts(leaf)]


class DiscreteForm(ChoicesForm):
    """See LeafForm."""

    word = "DISCRETE"
    example = "DISCRETE(n)"
    gymnasium = "Discrete"
    is_number = True

    def read(self, text: LeafText) -> Fields:
        """See LeafForm."""
        fields = super().read(text)
        if len(text.body) != 1 or text.shape is not None:
            raise invalid("DISCRETE has one count and no shape", got=",".join(text.body))
        return fields

    def _read_shape(self, text: LeafText) -> tuple[int, ...]:
        return ()

    def from_box(self, leaf: Leaf, xp: Any) -> Arrays:
        """See LeafForm; nothing is put together, which costs most of it."""
        if not leaf.starts:
            return lambda numbers: numbers.argmax(1)[:, None]
        as_sent = self.from_trained(leaf, xp)
        return lambda numbers: as_sent(numbers.argmax(1)[:, None])

    def space(self, leaf: Leaf, image_shape: tuple[int, ...]) -> Any:
        """See LeafForm."""
        from gymnasium import spaces

        return spaces.Discrete(leaf.counts[0], start=int(first_choices(leaf)[0]))

    def of_space(self, space: Any) -> Fields:
        """See LeafForm."""
        return {"counts": (int(space.n),), "starts": (int(space.start),)}

    def to_json(self, leaf: Leaf, image_shape: tuple[int, ...]) -> dict[str, Any]:
        """See LeafForm: n, start."""
        return {"type": "Discrete", "n": leaf.counts[0], "start": int(first_choices(leaf)[0])}

    def space_to_json(self, space: Any) -> dict[str, Any]:
        """See LeafForm."""
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}

    def of_json(self, said: Mapping[str, Any]) -> Fields:
        """See LeafForm."""
        return {"counts": (int(said["n"]),), "starts": (int(said.get("start", 0)),)}


class MultiDiscreteForm(ChoicesForm):
    """See LeafForm."""

    word = "MULTI_DISCRETE"
    example = "MULTI_DISCRETE(n,..)"
    gymnasium = "MultiDiscrete"

    def space(self, leaf: Leaf, image_shape: tuple[int, ...]) -> Any:
        """See LeafForm."""
        from gymnasium import spaces

        counts = self.counts(leaf).reshape(leaf.shape)
        return spaces.MultiDiscrete(counts, start=first_choices(leaf).reshape(leaf.shape))

    def of_space(self, space: Any) -> Fields:
        """See LeafForm."""
        counts, starts = (tuple(np.ravel(values).tolist()) for values in (space.nvec, space.start))
        return {"shape": space.nvec.shape, "counts": counts, "starts": starts}

    def to_json(self, leaf: Leaf, image_shape: tuple[int, ...]) -> dict[str, Any]:
        """See LeafForm: nvec, and start where the choices do not all begin with 0."""
        return _table_json(list(leaf.counts), list(leaf.starts))

    def space_to_json(self, space: Any) -> dict[str, Any]:
        """See LeafForm."""
        return _table_json(np.ravel(space.nvec).tolist(), np.ravel(space.start).tolist())

    def of_json(self, said: Mapping[str, Any]) -> Fields:
        """See LeafForm: one row of choices."""
        counts = tuple(int(n) for n in np.ravel(said["nvec"]))
        return {"shape": (len(counts),), "counts": counts, "starts": tuple(said.get("start", ()))}


def first_choices(leaf: Leaf) -> NDArray[np.int64]:
    """The lowest choice of each number, int64 [size]."""
    if leaf.starts:
        return np.array(leaf.starts, np.int64)
    return np.zeros(leaf.size, np.int64)


def read_range(text: str, numbers: NumberReader) -> tuple[int, int]:
    """(lowest choice, how many) of `n` or `low:high`."""
    low, colon, high = text.partition(":")
    if not colon:
        return 0, numbers.integer(low)
    first = numbers.integer(low)
    return first, numbers.integer(high) - first + 1


def _cuts(leaf: Leaf) -> list[slice]:
    """Of each choice, its numbers in a Box."""
    ends = np.cumsum(leaf.counts).tolist()
    return [slice(end - count, end) for end, count in zip(ends, leaf.counts, strict=True)]


def _table_json(counts: list[int], starts: list[int]) -> dict[str, Any]:
    said = {"type": "MultiDiscrete", "nvec": counts}
    if any(starts):
        said["start"] = starts
    return said
