"""ActionSpec: one env's action space; and the check of bounds that it shares with the rest of the handshake.

Plain, frozen, checked when made; no gymnasium, no text. Source: docs/protocol.md, sections "Handshake" and "Spaces".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spaces.tree import Leaf, LeafKind, Space, bounds, choices, leaves
from ue_rl.system.errors import ConfigurationError

MAX_LISTED = 65_536  # numbers with the same bounds, listed one by one all the same: a short handshake must cost little
MAX_SWITCHES = 262_144  # of a MULTI_BINARY, for the same reason


class ActionKind(str, Enum):
    """The kinds of action space that trainers know; HYBRID is a DICT or TUPLE, or a leaf of another kind."""

    BOX = "BOX"
    DISCRETE = "DISCRETE"
    MULTI_DISCRETE = "MULTI_DISCRETE"
    MULTI_BINARY = "MULTI_BINARY"
    HYBRID = "HYBRID"


@dataclass(frozen=True)
class ActionSpec:
    """One env's action space.

    kind BOX: `low` and `high`, one float32 each per action number; where more than MAX_LISTED numbers have the same
        bounds, one for all of them.
    kind DISCRETE / MULTI_DISCRETE: `counts`, the number of choices per action number (0-based on the wire).
    kind MULTI_BINARY: `counts` is (2,) * n.
    kind HYBRID: `counts` has 0 where a number is of a BOX; `bounds` are those of all numbers.

    `size` is how many numbers one action has on the wire (the ACT of the handshake); found where it is not given.
    `starts` are the lowest choices, () where all are 0. `space` is the whole tree where the fields above do not say
    everything (a HYBRID, an array that is not one row, integers), else None; `ActionSpec.of` makes a spec of a tree.
    """

    kind: ActionKind
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    size: int = -1
    starts: tuple[int, ...] = ()
    space: Space | None = None

    def __post_init__(self) -> None:
        listed(self, "low", "high", "counts", "starts")
        if self.kind is ActionKind.HYBRID:
            if self.space is None or self.space.size != len(self.counts) or not self.counts:
                raise invalid("ACT_SPACE", "a HYBRID is made by ActionSpec.of(space)")
            object.__setattr__(self, "size", len(self.counts))
            return
        if self.kind is ActionKind.BOX:
            if self.size < 0:
                size = len(self.low)
            else:
                size = self.size
            if not self.low or not size:
                raise invalid("ACT_SPACE", "a BOX action space needs at least one number")
            set_bounds(self, "ACT", size)
        else:
            size = len(self.counts)
            if not all(isinstance(count, (int, np.integer)) and not isinstance(count, bool) for count in self.counts):
                raise invalid("ACT_SPACE", "a number of choices is a whole number", got=self.counts)
            if not self.counts or min(self.counts) < 1:
                raise invalid("ACT_SPACE", "an action space needs one choice or more per number", got=self.counts)
            if self.kind is ActionKind.DISCRETE and size != 1:
                raise invalid("ACT_SPACE", "DISCRETE has one count", got=self.counts)
            if self.kind is ActionKind.MULTI_BINARY and self.counts.count(2) != size:
                raise invalid("ACT_SPACE", "MULTI_BINARY has two choices each")
            if self.starts and len(self.starts) != size:
                raise invalid("ACT_SPACE", "there is one lowest choice for each number", size, len(self.starts))
            if max(self.counts) > 2**24:
                raise invalid("ACT_SPACE", "more than 2**24 choices are not exact in float32")
        object.__setattr__(self, "size", size)

    @property
    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(low, high) of each number, both float32 [size]; of a choice its lowest and highest one."""
        return bounds(self.tree)

    @property
    def lowest(self) -> NDArray[np.int64]:
        """The lowest choice of each number, int64 [size], of a space with choices; 0 of a number that has none."""
        return np.where(np.array(self.counts) > 0, self.bounds[0], 0).astype(np.int64)

    @property
    def tree(self) -> Space:
        """`space`, or the one leaf that the fields above say: a row of numbers, or choices."""
        if self.space is not None:
            return self.space
        shape = () if self.kind is ActionKind.DISCRETE else (self.size,)
        counts = () if self.kind is ActionKind.MULTI_BINARY else self.counts
        return Leaf(LeafKind(self.kind.value), shape, "float32", self.low, self.high, counts, self.starts)

    @property
    def mask_size(self) -> int:
        """Flags of one action mask: one for each choice of each number; 0 for a BOX."""
        return sum(self.counts)

    @classmethod
    def of(cls, space: Space) -> ActionSpec:
        """The action space that a tree describes.

        Raises:
            ConfigurationError: it has no numbers, an image, or more choices than allowed.
        """
        if not all(leaf.form.in_row for _, leaf, _ in leaves(space)) or not space.size:
            raise invalid("ACT_SPACE", "an action has one number or more, and no image")
        if not isinstance(space, Leaf) or space.kind.value not in ActionKind.__members__:
            if space.size > MAX_SWITCHES:
                raise invalid("ACT_SPACE", "too many numbers in a DICT or TUPLE", f"at most {MAX_SWITCHES}")
            return cls(ActionKind.HYBRID, counts=tuple(choices(space).tolist()), space=space)
        kind = ActionKind(space.kind.value)
        plain = len(space.shape) == 1
        if kind is ActionKind.BOX:
            plain = plain and space.dtype == "float32"
            if plain:
                own_space = None
            else:
                own_space = space
            return cls(kind, space.low, space.high, size=space.size, space=own_space)
        if kind is ActionKind.MULTI_BINARY:
            return cls(kind, counts=cls.multi_binary(space.size).counts, space=None if plain else space)
        plain = plain or kind is ActionKind.DISCRETE
        return cls(kind, counts=space.counts, starts=space.starts, space=None if plain else space)

    @classmethod
    def box(cls, size: int, low: float = -1.0, high: float = 1.0) -> ActionSpec:
        """A Box of `size` numbers with the same bounds for all."""
        return cls(ActionKind.BOX, low=(float(low),), high=(float(high),), size=max(size, 0))

    @classmethod
    def discrete(cls, n: int) -> ActionSpec:
        """One choice out of `n`."""
        return cls(ActionKind.DISCRETE, counts=(n,))

    @classmethod
    def multi_discrete(cls, counts: tuple[int, ...]) -> ActionSpec:
        """Several choices at once."""
        return cls(ActionKind.MULTI_DISCRETE, counts=tuple(counts))

    @classmethod
    def multi_binary(cls, n: int) -> ActionSpec:
        """`n` switches, at most MAX_SWITCHES."""
        if n > MAX_SWITCHES:
            raise invalid("ACT_SPACE", "too many switches", f"at most {MAX_SWITCHES}", n)
        return cls(ActionKind.MULTI_BINARY, counts=(2,) * n)


def listed(spec: Any, *names: str) -> None:
    """Makes a tuple of a field that is a list or an array, such as the `low` of a Box."""
    for name in names:
        values = getattr(spec, name)
        if not isinstance(values, tuple):
            object.__setattr__(spec, name, tuple(np.ravel(values).tolist()))


def set_bounds(spec: Any, name: str, size: int) -> None:
    """Checks the bounds of `size` numbers, and lists one for each; where they are very many and all the same, one.

    Args:
        spec: an ActionSpec or an EnvSpec. name: ACT or OBS. Given are bounds for each number, or one for all.
    """
    field = f"{name}_SPACE"
    if isinstance(spec, ActionSpec):
        names = ("low", "high")
    else:
        names = ("obs_low", "obs_high")
    low, high = (getattr(spec, key) for key in names)
    if len(low) != len(high):
        raise invalid(field, "low and high differ in length", len(low), len(high))
    lows = np.array(low, np.float64)
    highs = np.array(high, np.float64)
    wrong = ~(lows <= highs) | (lows == np.inf) | (highs == -np.inf)
    if wrong.any():
        got = low[wrong.argmax()], high[wrong.argmax()]
        raise invalid(field, "invalid bounds: low must not exceed high, nor be NaN", "low <= high", got)
    if len(low) not in (1, size):
        raise invalid(field, f"{field} and {name} disagree", size, len(low))
    for key, values in zip(names, (low, high), strict=True):
        if len(low) < size <= MAX_LISTED:
            object.__setattr__(spec, key, values * size)
        elif size > MAX_LISTED and len(set(zip(low, high, strict=True))) == 1:
            object.__setattr__(spec, key, values[:1])


def invalid(field: str, what: str, expected: Any = None, got: Any = None) -> ConfigurationError:
    """The error for a value of the handshake's key `field`."""
    return ConfigurationError(what, field=field, expected=expected, got=got)
