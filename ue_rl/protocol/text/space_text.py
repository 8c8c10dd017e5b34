"""Space trees as text: `DICT(position:BOX(-1:1)[3],weapon:DISCRETE(4))` <-> ue_rl.protocol.spaces.tree. No I/O.

Source: docs/protocol.md, section "Spaces". The reader takes time in proportion to the text, whatever is in it.
"""

from __future__ import annotations

import math
import re
from urllib.parse import quote, unquote

import numpy as np

from ue_rl.protocol.spaces.forms import FORMS
from ue_rl.protocol.spaces.forms.base import MAX_SIZE, LeafForm, LeafText, invalid
from ue_rl.protocol.spaces.tree import MAX_DEPTH, MAX_LEAVES, Branch, Leaf, LeafKind, Space
from ue_rl.protocol.spaces.walks import Key, Path, fold
from ue_rl.protocol.text.kernels_writing import float32_text
from ue_rl.system.errors import ConfigurationError

_BEYOND_FLOAT32 = 2.0**128 - 2.0**103  # from here on the nearest float32 is infinite
_WORD = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*)\s*")
_OPEN = re.compile(r"\(\s*")
_NAME = re.compile(r"\s*([^\s:,();|=]+)\s*:\s*")
_BODY = re.compile(r"\(([^()]*)\)")
_SHAPE = re.compile(r"\s*\[([0-9,\s]*)\]")
_WORDS = f"{', '.join(['DICT', 'TUPLE', *FORMS][:-1])} or {[*FORMS][-1]}"
_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,19})\s*")
SAFE = "-._~/[]^*"  # stands as it is in a name; everything else but letters and digits is percent-encoded


def space_text(space: Space) -> str:
    """The canonical text of `space`."""
    text: str = fold(space, lambda leaf, _: leaf.form.text(leaf, bound_text), _branch_text)
    return text


def _branch_text(branch: Branch, parts: dict[Key, str], _: Path) -> str:
    if branch.named:
        return f"DICT({','.join(f'{name_text(str(name))}:{text}' for name, text in parts.items())})"
    return f"TUPLE({','.join(parts.values())})"


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
        word = self.match(_WORD, _WORDS).group(1).upper()
        if word in ("DICT", "TUPLE"):
            return self.branch(word == "DICT", depth)
        self.leaves += 1
        if self.leaves > MAX_LEAVES:
            raise invalid("too many parts", f"at most {MAX_LEAVES}")
        if word not in FORMS:
            self.at = start
            raise self.wrong(_WORDS)
        return Leaf(LeafKind(word), **FORMS[word].read(self.leaf_text(FORMS[word])))

    def leaf_text(self, form: LeafForm) -> LeafText:
        if not form.has_body:
            return LeafText((), None, "", self)
        body = self.match(_BODY, "( .. )").group(1).split(",")
        found = _SHAPE.match(self.text, self.at)
        shape = None
        if found is not None:
            self.at = found.end()
            shape = self._sizes(found.group(1))
        suffix = ""
        word = _WORD.match(self.text, self.at)
        if form.has_suffix and word is not None:
            self.at = word.end()
            suffix = word.group(1)
        return LeafText(body, shape, suffix, self)

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

    def _sizes(self, text: str) -> tuple[int, ...]:
        if not text.strip():
            return ()
        sizes = [self.integer(part) for part in text.split(",")]
        if len(sizes) > 8 or math.prod(sizes) > MAX_SIZE:
            raise invalid("a shape is too large", f"at most 8 sizes, {MAX_SIZE} numbers", text)
        return tuple(sizes)

    def integer(self, text: str) -> int:
        """See NumberReader."""
        found = _INTEGER.fullmatch(text)
        if found is None:
            raise invalid("an integer was expected", got=text)
        return int(found.group(1))

    def bound(self, text: str, dtype: str) -> float:
        """See NumberReader."""
        if not dtype.startswith("float"):
            return self.integer(text)
        try:
            return read_bound(text, dtype)
        except ValueError:
            raise invalid("low:high was expected", got=text) from None
