"""Settings as text: `gravity:9.8,wind:0` <-> {name: value}, in SET, GET and VALUES. Text only, no I/O.

Source: docs/protocol.md, section 2 (`settings`). Values are IEEE doubles, and finite; a name comes once. The reader
takes time in proportion to the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np

from ue_rl.protocol.spec import EnvSpec, Parameter
from ue_rl.protocol.text.space_text import name_text
from ue_rl.system.errors import ConfigurationError, MalformedMessage, NonFiniteValue, UnsupportedByEngine, nearest

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NON_FINITE = re.compile(r"[+-]?(?:nan|inf)", re.IGNORECASE)
_NAME = re.compile(r"(?:[A-Za-z0-9\-._~/\[\]^*]|%[0-9A-Fa-f]{2})+")


def number_text(value: float) -> str:
    """The shortest text that reads back to the same double: `9.8`, `3`, `1e-07`.

    Raises:
        ConfigurationError: not a finite number.
    """
    try:
        if isinstance(value, (int, float, np.integer, np.floating)):
            number = float(value)
        else:
            number = math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ConfigurationError("a finite number was expected", got=value)
    text = repr(number)
    if text.endswith(".0"):
        return text[:-2]
    return text


def settings_text(settings: Mapping[str, float], field: str = "SET") -> str:
    """The text of `settings`.

    Raises:
        ConfigurationError: none at all, an empty name, or a value that is not a finite number.
    """
    parts = []
    for name, value in settings.items():
        try:
            parts.append(f"{names_text((name,), field)}:{number_text(value)}")
        except ConfigurationError as error:
            raise ConfigurationError(
                f"a parameter has a wrong value: {name}", field=field, expected="a finite number", got=error.got
            ) from None
    if not parts:
        raise ConfigurationError("no parameter is named", field=field, expected="name: value, ..")
    return ",".join(parts)


def find_parameter(
    known: Mapping[str, Parameter], name: str, field: str | None = None, env_id: int | None = None
) -> Parameter:
    """The parameter `name` of an engine that has those in `known`.

    Args:
        field, env_id: for the error; None: the name, and none.

    Raises:
        UnsupportedByEngine: it has none of this name, or none at all.
    """
    if name in known:
        return known[name]
    what = "has no such parameter"
    expected = ", ".join(known)
    cure = nearest(name, known)
    got: str | None = name
    if not known:
        what = "has no parameters that a trainer may set"
        expected = "PARAMS in its handshake"
        got = None
        cure = "leave them out, or let the game list them (docs/protocol.md, section 8)"
    place = field
    if not place:
        place = name
    raise UnsupportedByEngine(f"this engine {what}", env_id=env_id, field=place, expected=expected, got=got, cure=cure)


def check_parameters(
    known: Iterable[Parameter], settings: Mapping[str, Any], field: str | None = None, env_id: int | None = None
) -> None:
    """Raises as `check_parameter` where an engine with the parameters `known` cannot have one of `settings`."""
    if settings:
        by_name = {parameter.name: parameter for parameter in known}
        for name, value in settings.items():
            check_parameter(by_name, name, value, field, env_id)


def check_parameter(
    known: Mapping[str, Parameter], name: str, value: Any, field: str | None = None, env_id: int | None = None
) -> None:
    """Raises where the parameter `name` cannot have this value, or a value of this range, (low, high).

    Raises:
        UnsupportedByEngine: see find_parameter. ConfigurationError: not a number, or out of the parameter's range.
    """
    parameter = find_parameter(known, name, field, env_id)
    if isinstance(value, tuple):
        bounds = value
    else:
        bounds = (value,)
    for bound in bounds:
        number = isinstance(bound, (int, float, np.integer, np.floating))
        if not number or not -math.inf < bound < math.inf or not parameter.low <= bound <= parameter.high:
            place = field
            if not place:
                place = name
            raise ConfigurationError(
                f"a parameter is {'out of range' if number else 'a number'}: {name}",
                env_id=env_id,
                field=place,
                expected=f"{parameter.low:g} to {parameter.high:g}",
                got=" to ".join(f"{end:g}" for end in dict.fromkeys(value)) if isinstance(value, tuple) else value,
            )


def names_text(names: Iterable[str], field: str = "GET") -> str:
    """Names, percent-encoded where they are not plain, joined by commas.

    Raises:
        ConfigurationError: an empty name, or one that is no text.
    """
    parts = []
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigurationError("a parameter's name is a text", field=field, got=name)
        parts.append(name_text(name))
    return ",".join(parts)


def read_settings(text: str, field: str = "SET", fault: str = "trainer", env_id: int | None = None) -> dict[str, float]:
    """The inverse of `settings_text`; `field`, `fault` and `env_id` are for errors.

    Raises:
        MalformedMessage: not of that form, or a name twice. NonFiniteValue: a value that no double holds.
    """
    settings: dict[str, float] = {}
    for part in text.split(","):
        name_part, _, number = part.partition(":")
        name = _read_name(name_part, field, fault, env_id)
        if name in settings:
            raise MalformedMessage("a parameter comes twice", fault=fault, env_id=env_id, field=field, got=name)
        settings[name] = read_number(number, field, fault, env_id)
    return settings


def read_names(text: str, field: str = "GET", fault: str = "trainer") -> tuple[str, ...]:
    """The inverse of `names_text`; errors as those of `read_settings`."""
    names = tuple(_read_name(part, field, fault, None) for part in text.split(","))
    if len(set(names)) != len(names):
        raise MalformedMessage("a name comes twice", fault=fault, field=field, got=text)
    return names


def read_number(text: str, field: str, fault: str, env_id: int | None = None) -> float:
    """One number, as a double.

    Raises:
        MalformedMessage: not a number. NonFiniteValue: NaN, infinity or beyond all doubles.
    """
    text = text.strip(" \t\r")
    value = None
    if _NUMBER.fullmatch(text):
        value = float(text)
    if (value is not None and not math.isfinite(value)) or (value is None and _NON_FINITE.match(text)):
        raise NonFiniteValue("a value is not a finite number", fault=fault, env_id=env_id, field=field, got=text)
    if value is None:
        raise MalformedMessage("a number was expected", fault=fault, env_id=env_id, field=field, got=text)
    return value


def _read_name(text: str, field: str, fault: str, env_id: int | None) -> str:
    text = text.strip(" \t\r")
    try:
        if _NAME.fullmatch(text):
            return unquote(text, errors="strict")
    except UnicodeDecodeError:
        pass
    raise MalformedMessage(
        "a name is empty or not percent-encoded UTF-8", fault=fault, env_id=env_id, field=field, got=text
    )


def read_known(raw: bytes, spec: EnvSpec, env_id: int) -> dict[str, float]:
    """The value of SET in a request.

    Raises:
        ProtocolError: it cannot be read, or names no parameter of the handshake.
    """
    settings = read_settings(raw.decode("ascii", "backslashreplace"), "SET", "trainer", env_id)
    names = [parameter.name for parameter in spec.parameters]
    for name in settings:
        if name not in names:
            raise MalformedMessage(
                "there is no such parameter",
                fault="trainer",
                env_id=env_id,
                field="SET",
                expected=", ".join(names),
                got=name,
            )
    return settings
