"""Space trees as text: `DICT(position:BOX(-1:1)[3],weapon:DISCRETE(4))` <-> ue_rl.protocol.spaces.tree. No I/O.

Source: docs/protocol.md, section "Spaces". The reader takes time in proportion to the text, whatever is in it.
"""

from __future__ import annotations

import math
import re
from urllib.parse import quote, unquote

import numpy as np

from ue_rl.protocol.spaces.tree import DTYPES, MAX_DEPTH, MAX_LEAVES, Branch, Leaf, LeafKind, Space, box, invalid
from ue_rl.protocol.text.kernels_writing import float32_text
from ue_rl.system.errors import ConfigurationError

MAX_SIZE = 16_777_216
_BEYOND_FLOAT32 = 2.0**128 - 2.0**103  # from here on the nearest float32 is infinite
_WORD = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*)\s*")
_OPEN = re.compile(r"\(\s*")
_NAME = re.compile(r"\s*([^\s:,();|=]+)\s*:\s*")
_BODY = re.compile(r"\(([^()]*)\)")
_SHAPE = re.compile(r"\s*\[([0-9,\s]*)\]")
_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,19})\s*")
SAFE = "-._~/[]^*"  # stands as it is in a name; everything else but letters and digits is percent-encoded


def space_text(space: Space) -> str:
    """The canonical text of `space`."""
    if isinstance(space, Branch):
        parts = [
            f"{name_text(name)}:{space_text(part)}" if space.named else space_text(part) for name, part in space.parts
        ]
        return f"{'DICT' if space.named else 'TUPLE'}({','.join(parts)})"
    shape = f"[{','.join(map(str, space.shape))}]"
    if space.kind is LeafKind.IMAGE:
        return "IMAGE"
    if space.kind is LeafKind.BOX:
        ranges = ",".join(
            f"{bound_text(low, space.dtype)}:{bound_text(high, space.dtype)}"
            for low, high in zip(space.low, space.high, strict=True)
        )
        return f"BOX({ranges}){shape}{'' if space.dtype == 'float32' else space.dtype.upper()}"
    if space.kind is LeafKind.MULTI_BINARY:
        return f"MULTI_BINARY({space.size}){shape if len(space.shape) != 1 else ''}"
    starts = space.starts or (0,) * len(space.counts)
    counts = ",".join(
        f"{start}:{start + count - 1}" if start else str(count)
        for start, count in zip(starts, space.counts, strict=True)
    )
    return f"{space.kind.value}({counts}){shape if len(space.shape) > 1 else ''}"


def read_space(text: str) -> Space:
    """The inverse of `space_text`, in any letter case, with spaces around anything.

    A BOX without a shape has as many numbers as ranges.

    Raises:
        ConfigurationError: not such a text, or a space that cannot be.
    """
    reader = _SpaceParser(text.strip())
    space = reader.space(1)
    if reader.at != len(reader.text):
        raise reader.wrong("the end of the space")
    return space


def name_text(name: str) -> str:
    """A name as it stands in a handshake: percent-encoded UTF-8 where it is not plain."""
    return quote(name, safe=SAFE)


def read_name(text: str) -> str:
    """The inverse of `name_text`; raises ConfigurationError: empty, or not UTF-8."""
    try:
        name = unquote(text.strip(), errors="strict")
    except UnicodeDecodeError:
        name = ""
    if not name:
        raise invalid("a name is empty or not percent-encoded UTF-8", got=text)
    return name


def bound_text(value: float, dtype: str = "float32") -> str:
    """A bound: `inf`, `-inf`, an integer as it is, or the shortest text of a float32 or float64."""
    if isinstance(value, float) and math.isinf(value):
        if value > 0:
            return "inf"
        return "-inf"
    if dtype == "float64":
        return repr(float(value)).removesuffix(".0")
    if isinstance(value, int):
        return str(value)
    return float32_text(np.float32(value))


def read_bound(text: str, dtype: str = "float32") -> float:
    """The inverse of `bound_text`, of float32 or float64: beyond them it is infinite.

    Raises:
        ValueError: not a number. Python's own spelling `1_000` is none.
    """
    if "_" in text:
        raise ValueError(text)
    value = float(text)
    if dtype == "float64":
        return value
    if abs(value) >= _BEYOND_FLOAT32:
        return math.copysign(math.inf, value)
    return float(np.float32(value))


class _SpaceParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.leaves = 0

    def wrong(self, expected: str) -> ConfigurationError:
        got = self.text[self.at : self.at + 40]
        if not got:
            got = "the end of the text"
        return invalid("a space cannot be read", expected, got)

    def match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.wrong(expected)
        self.at = found.end()
        return found

    def space(self, depth: int) -> Space:
        start = self.at
        word = self.match(_WORD, "DICT, TUPLE, BOX, DISCRETE, MULTI_DISCRETE, MULTI_BINARY or IMAGE").group(1).upper()
        if word in ("DICT", "TUPLE"):
            return self.branch(word == "DICT", depth)
        self.leaves += 1
        if self.leaves > MAX_LEAVES:
            raise invalid("too many parts", f"at most {MAX_LEAVES}")
        if word == LeafKind.IMAGE.value:
            return Leaf(LeafKind.IMAGE)
        if word not in LeafKind.__members__:
            self.at = start
            raise self.wrong("DICT, TUPLE, BOX, DISCRETE, MULTI_DISCRETE, MULTI_BINARY or IMAGE")
        body = self.match(_BODY, "( .. )").group(1).split(",")
        shape = _SHAPE.match(self.text, self.at)
        if shape:
            self.at = shape.end()
        sizes = None
        if shape is not None:
            sizes = self._sizes(shape.group(1))
        if word == LeafKind.BOX.value:
            return self.box(body, sizes)
        return self.choices(LeafKind(word), body, sizes)

    def branch(self, named: bool, depth: int) -> Branch:
        if depth >= MAX_DEPTH:
            raise invalid("parts within parts too deep", MAX_DEPTH)
        self.match(_OPEN, "(")
        parts: list[tuple[str, Space]] = []
        while True:
            if named:
                name = read_name(self.match(_NAME, "name:space").group(1))
            else:
                name = str(len(parts))
            parts.append((name, self.space(depth + 1)))
            mark = self.match(re.compile(r"\s*([,)])\s*"), ", or )").group(1)
            if mark == ")":
                return Branch(tuple(parts), named)

    def box(self, body: list[str], sizes: tuple[int, ...] | None) -> Leaf:
        dtype = "float32"
        word = _WORD.match(self.text, self.at)
        if word is not None:
            dtype = word.group(1).lower()
            self.at = word.end()
            if dtype not in DTYPES:
                raise invalid("a BOX of an unknown type", ", ".join(name.upper() for name in DTYPES), dtype)
        ends = [part.partition(":") for part in body]
        lows = [self._bound(low, dtype) for low, _, _ in ends]
        highs = [self._bound(high, dtype) for _, _, high in ends]
        return box((len(body),) if sizes is None else sizes, np.array(lows, object), np.array(highs, object), dtype)

    def choices(self, kind: LeafKind, body: list[str], sizes: tuple[int, ...] | None) -> Leaf:
        ranges = [self._range(part) for part in body]
        if kind is LeafKind.MULTI_BINARY:
            if len(ranges) != 1 or ranges[0][0] != 0 or not 1 <= ranges[0][1] <= MAX_SIZE:
                raise invalid("MULTI_BINARY has one number: how many flags", got=",".join(body))
            leaf = Leaf(kind, (ranges[0][1],) if sizes is None else sizes)
            if leaf.size != ranges[0][1]:
                raise invalid("MULTI_BINARY and its shape disagree", ranges[0][1], sizes)
            return leaf
        if kind is LeafKind.DISCRETE and (len(ranges) != 1 or sizes is not None):
            raise invalid("DISCRETE has one count and no shape", got=",".join(body))
        shape: tuple[int, ...]
        if kind is LeafKind.DISCRETE:
            shape = ()
        elif sizes is None:
            shape = (len(ranges),)
        else:
            shape = sizes
        return Leaf(kind, shape, counts=tuple(n for _, n in ranges), starts=tuple(start for start, _ in ranges))

    def _sizes(self, text: str) -> tuple[int, ...]:
        if not text.strip():
            return ()
        sizes = [self._integer(part) for part in text.split(",")]
        if len(sizes) > 8 or math.prod(sizes) > MAX_SIZE:
            raise invalid("a shape is too large", f"at most 8 sizes, {MAX_SIZE} numbers", text)
        return tuple(sizes)

    def _range(self, text: str) -> tuple[int, int]:
        """(lowest choice, how many) of `n` or `low:high`."""
        low, colon, high = text.partition(":")
        if not colon:
            return 0, self._integer(low)
        first = self._integer(low)
        return first, self._integer(high) - first + 1

    def _integer(self, text: str) -> int:
        found = _INTEGER.fullmatch(text)
        if found is None:
            raise invalid("an integer was expected", got=text)
        return int(found.group(1))

    def _bound(self, text: str, dtype: str) -> float:
        if not dtype.startswith("float"):
            return self._integer(text)
        try:
            return read_bound(text, dtype)
        except ValueError:
            raise invalid("low:high was expected", got=text) from None
