"""The game's parameters in a run: values and ranges as a user writes them, checked against the engine's handshake.

A value is a number, or a range `[low, high]` (on the command line `low..high`), from which each episode of each env
draws anew. Both travel with the reset that begins an episode (SET in docs/protocol.md, section 5).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from ue_rl.errors import ConfigurationError, UnsupportedByEngine
from ue_rl.spec import EnvSpec

Range: TypeAlias = tuple[float, float]  # lowest and highest value; both the same for a fixed one


def parse_param(text: str) -> tuple[str, Any]:
    """("gravity", 3.0) of "gravity=3"; ("wind", [0.0, 2.0]) of "wind=0..2".

    Raises:
        ConfigurationError: neither of the two.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    try:
        if not equals or not name:
            raise ValueError
        numbers = [float(number) for number in value.split("..")]
        if not 1 <= len(numbers) <= 2:
            raise ValueError
    except ValueError:
        raise ConfigurationError(
            "not a parameter", fault="caller", field="param", expected="NAME=VALUE or NAME=LOW..HIGH", got=text
        ) from None
    return name, numbers if len(numbers) == 2 else numbers[0]


def as_ranges(params: Any, field: str) -> dict[str, Range]:
    """Name -> (low, high) of what a YAML file or a script gives as `params`.

    Raises:
        ConfigurationError: not a mapping of names to numbers or `[low, high]`.
    """
    if not isinstance(params, Mapping):
        raise ConfigurationError(
            "parameters are a mapping", fault="caller", field=field, expected="{gravity: 3, wind: [0, 2]}", got=params
        )
    return {str(name): _as_range(value, f"{field}.{name}") for name, value in params.items()}


def _as_range(value: Any, field: str) -> Range:
    given = value if isinstance(value, (list, tuple)) else [value, value]
    numbers = [float(v) for v in given if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)]
    if len(numbers) != 2 or len(given) != 2 or numbers[0] > numbers[1]:
        raise ConfigurationError(
            "not a value of a parameter", fault="caller", field=field,
            expected="a number, or [low, high] with low <= high", got=value,
        )  # fmt: skip
    return numbers[0], numbers[1]


def check_ranges(spec: EnvSpec, ranges: Mapping[str, Range], field: str) -> None:
    """Refuses what this engine cannot set: learning would go on with another game than the one that was asked for.

    Raises:
        UnsupportedByEngine: the engine announces no parameters. ConfigurationError: not this one, or not this value.
    """
    if ranges and not spec.parameters:
        raise UnsupportedByEngine(
            "this engine has no parameters that a trainer may set", fault="caller", field=field,
            expected="PARAMS in its handshake", got=", ".join(ranges), cure="leave them out",
        )  # fmt: skip
    known = {parameter.name: parameter for parameter in spec.parameters}
    for name, (low, high) in ranges.items():
        parameter = known.get(name)
        if parameter is None:
            raise ConfigurationError(
                "the engine has no such parameter", fault="caller", field=f"{field}.{name}", expected=", ".join(known),
                cure=nearest(name, known),
            )  # fmt: skip
        if low < parameter.low or high > parameter.high:
            raise ConfigurationError(
                "a value outside of the parameter's range", fault="caller", field=f"{field}.{name}",
                expected=f"{parameter.low:g} to {parameter.high:g}", got=shown(low, high),
            )  # fmt: skip


def shown(low: float, high: float) -> str:
    """A value or range as `--param` takes it."""
    return f"{low:g}" if low == high else f"{low:g}..{high:g}"


def nearest(word: str, words: Iterable[str]) -> str | None:
    """A cure for a misspelt word."""
    close = difflib.get_close_matches(word, list(words), n=1)
    return f"did you mean {close[0]!r}?" if close else None
