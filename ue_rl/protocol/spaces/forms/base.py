"""LeafForm: all that one kind of leaf means, in one class. A new kind is a subclass and its line in FORMS.

Nothing here imports a tree, Gymnasium or torch when it is loaded: a form is given the leaf, and says what a new one is
made of by `Fields`, the arguments of Leaf. What a trained policy needs both in NumPy and in the graph of a file is
written once, for `xp`, which is either of the two modules: only what both have under one name, positional arguments.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ue_rl.system.errors import ConfigurationError

if TYPE_CHECKING:
    from ue_rl.protocol.spaces.tree import Leaf

MAX_CHOICES = 2**24  # more are not exact in float32
MAX_EXACT = 2**24  # likewise the largest integer below which all are
MAX_SIZE = 16_777_216  # numbers of a leaf
DTYPES = ("float32", "float64", "uint8", "int8", "int16", "uint16", "int32", "int64")

Fields: TypeAlias = dict[str, Any]
Floats: TypeAlias = NDArray[np.float32]
Arrays: TypeAlias = Callable[[Any], Any]
Bounds: TypeAlias = tuple[Floats, Floats]


class NumberReader(Protocol):
    """Reads the numbers of a handshake."""

    def integer(self, text: str) -> int:
        """Raises ConfigurationError: it is none."""
        ...

    def bound(self, text: str, dtype: str) -> float:
        """A bound of a BOX; raises ConfigurationError: it is none."""
        ...


class LeafText(NamedTuple):
    """A leaf of the handshake: `WORD(body,..)[shape]SUFFIX`; `shape` is None where it is not there."""

    body: Sequence[str]
    shape: tuple[int, ...] | None
    suffix: str
    numbers: NumberReader


class LeafForm(ABC):
    """What one kind of leaf is, wherever somebody has to know it. Its numbers are `leaf.size` of the row, float32.

    Attributes:
        word: of the handshake, and the kind's name. example: of its text, for errors.
        gymnasium: its type in a policy file, and the class of Gymnasium that is this kind, if one is; "" for none.
        is_number: a value is a number, and no array.
        in_row: its numbers stand in the row; else it is an IMAGE, and travels beside it.
        has_body: its text has brackets. has_suffix: its text may have a word behind the shape.
    """

    word: ClassVar[str]
    example: ClassVar[str]
    gymnasium: ClassVar[str]
    is_number: ClassVar[bool] = False
    in_row: ClassVar[bool] = True
    has_body: ClassVar[bool] = True
    has_suffix: ClassVar[bool] = False

    # -- the row

    def check(self, leaf: Leaf) -> Fields:
        """The fields that a new leaf has in another form than they were given; raises ConfigurationError."""
        return {}

    def size(self, leaf: Leaf) -> int:
        """Numbers in the row."""
        return math.prod(leaf.shape)

    @abstractmethod
    def bounds(self, leaf: Leaf) -> Bounds:
        """(low, high) of every number, each float32 [size]; of a choice its lowest and highest one."""

    def counts(self, leaf: Leaf) -> NDArray[np.int64]:
        """How many choices each number has, int64 [size]; 0 where it is none."""
        return np.zeros(leaf.size, np.int64)

    def is_whole(self, leaf: Leaf) -> bool:
        """Whether its numbers are integers."""
        return False

    def is_wide(self, leaf: Leaf) -> bool:
        """Whether its bounds allow integers that float32 may not hold."""
        return False

    # -- the handshake

    @abstractmethod
    def text(self, leaf: Leaf, bound: Callable[[float, str], str]) -> str:
        """Of the handshake. `bound` writes a number of a dtype."""

    @abstractmethod
    def read(self, text: LeafText) -> Fields:
        """The inverse of `text`; raises ConfigurationError: it cannot be."""

    @abstractmethod
    def summary(self, leaf: Leaf) -> str:
        """For people, such as `DISCRETE 0 to 4`."""

    # -- Gymnasium

    @abstractmethod
    def space(self, leaf: Leaf, image_shape: tuple[int, ...]) -> Any:
        """The space of Gymnasium; `image_shape`: of what an IMAGE stands for."""

    def of_space(self, space: Any) -> Fields:
        """Of a space of the class `gymnasium`; raises ConfigurationError: it cannot be carried."""
        raise NotImplementedError

    # -- a policy file

    @abstractmethod
    def to_json(self, leaf: Leaf, image_shape: tuple[int, ...]) -> dict[str, Any]:
        """In a policy file, with the "type" under which `of_json` finds it."""

    def space_to_json(self, space: Any) -> dict[str, Any]:
        """Of a space of this kind: what `to_json` gives, without what a leaf would round."""
        return self.to_json(space.own_leaf, ())

    def of_json(self, said: Mapping[str, Any]) -> Fields:
        """Of what stands in a policy file; raises KeyError, TypeError, ValueError: it cannot be."""
        raise NotImplementedError

    # -- values

    def dtype(self, leaf: Leaf) -> np.dtype[Any]:
        """Of the array that a user sees."""
        return np.dtype(np.float32)

    def edges(self, leaf: Leaf) -> list[tuple[Floats, NDArray[np.float64]]]:
        """(as the row has it, as it is) of each bound that rounding would put outside of the space."""
        return []

    # -- as a trainer has it that counts from 0 and knows numbers and choices alone, such as Stable-Baselines3

    def trained(self, leaf: Leaf) -> Leaf:
        """The leaf that it observes in place of this one, which may be `leaf` itself; with a shape only for a shape."""
        return leaf

    def to_trained(self, leaf: Leaf, xp: Any) -> Arrays:
        """From its numbers, [n, size], or [n] of a leaf without a shape, to those of `trained(leaf)`."""
        return unchanged

    def from_trained(self, leaf: Leaf, xp: Any) -> Arrays:
        """The inverse."""
        return unchanged

    # -- as numbers of a Box, for a policy that gives nothing else (a HybridBox)

    @abstractmethod
    def box_bounds(self, leaf: Leaf) -> Bounds:
        """(low, high) of the numbers that a policy gives for it, each float32 [how many they are]."""

    @abstractmethod
    def from_box(self, leaf: Leaf, xp: Any) -> Arrays:
        """From such numbers, [n, how many], to those of the row, [n, size]."""

    @abstractmethod
    def to_box(self, leaf: Leaf) -> Arrays:
        """From the row to such numbers, float32, of which `from_box` makes the same row."""

    def box_scores(self, leaf: Leaf, numbers: Any, xp: Any) -> list[Any]:
        """Of numbers [n, how many]: between which a choice is made, [n, count] for each choice."""
        return []


def invalid(what: str, expected: Any = None, got: Any = None) -> ConfigurationError:
    """The error for a space that cannot be; whoever knows the handshake's key says so in `field`."""
    return ConfigurationError(what, field="OBS_SPACE or ACT_SPACE", expected=expected, got=got)


def constants(values: NDArray[Any], xp: Any) -> Arrays:
    """From numbers to `values` as an array that goes with them: of torch on their device, and of their type."""
    if xp is np:
        return lambda numbers: values
    made = xp.as_tensor(values)  # here, and not where a graph is traced: torch warns of tensors that are made there
    return lambda numbers: made.to(numbers.device, numbers.dtype)


def shape_text(shape: tuple[int, ...]) -> str:
    """`[2,3]`."""
    return f"[{','.join(map(str, shape))}]"


def shape_words(shape: tuple[int, ...]) -> str:
    """For people: as `shape_text`, behind a space; "" of no shape."""
    if not shape:
        return ""
    return f" {shape_text(shape)}"


def unchanged(numbers: Any) -> Any:
    """`numbers`."""
    return numbers
