"""How the deployed Unreal plugin reads and writes its text: forgiving on the way in, `printf` on the way out.

An implementation of its own, on purpose without ue_rl's codec: it is what the codec is tested against. The
reading follows the engine's string functions: a key counts only at the start of its part, numbers are read
as C's atof does (what cannot be read is 0), empty parts vanish.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

_FLOAT = re.compile(r"\s*([+-]?(?:inf(?:inity)?|nan|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?))", re.IGNORECASE)
_INT = re.compile(r"\s*([+-]?\d+)")


class ObsFormat(str, Enum):
    """The spellings of one observation, by the helper that the game's state string was built with."""

    ARRAY = "array"
    """`a,b,c,d;` one array"""
    TWO_VECTORS = "two_vectors"
    """`a,b;c,d;` two vectors"""
    FLOAT_THEN_VECTOR = "float_then_vector"
    """`a;b,c,d;` a float, then a vector"""
    FLOATS = "floats"
    """`a;b;c;d;` one float after the other"""
    COMMA = "comma"
    """`a,b,c,d` the comma helper: no separator before REW"""


def state_string(values: Sequence[float], form: ObsFormat, decimals: int) -> str:
    """The game's state string: the observation, with the separator that the helper appends."""
    texts = [f"{value:.{decimals}f}" for value in values]
    if form is ObsFormat.COMMA:
        return ",".join(texts)
    half = len(texts) // 2
    groups = {
        ObsFormat.ARRAY: [texts],
        ObsFormat.TWO_VECTORS: [texts[:half], texts[half:]],
        ObsFormat.FLOAT_THEN_VECTOR: [texts[:1], texts[1:]],
        ObsFormat.FLOATS: [[text] for text in texts],
    }[form]
    return "".join(",".join(group) + ";" for group in groups if group)


def split_rows(message: str) -> list[str]:
    """The rows of a message; empty ones vanish."""
    return [row for row in message.split("||") if row]


def action_text(row: str) -> str:
    """The value of the first ACT field, trimmed; empty where there is none."""
    value = _field(row, "ACT=")
    if value is None:
        return ""
    return value.strip()


def env_id(row: str) -> int | None:
    """The number of the first ENV field (0 where it is not a number); None where there is none."""
    value = _field(row, "ENV=")
    if value is None:
        return None
    match = _INT.match(value)
    if match:
        return int(match.group(1))
    return 0


def action_numbers(text: str) -> list[float]:
    """The numbers of an action: as many as there are, 0 for what cannot be read."""
    return [atof(part) for part in text.split(",") if part]


def atof(text: str) -> float:
    """The number that `text` begins with; 0 where it begins with none."""
    match = _FLOAT.match(text)
    if match:
        return float(match.group(1))
    return 0.0


def _field(row: str, key: str) -> str | None:
    for part in row.split(";"):
        if part[: len(key)].upper() == key:
            return part[len(key) :]
    return None
