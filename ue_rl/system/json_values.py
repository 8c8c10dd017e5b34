"""What a Python value is in JSON: what a tool of a game returns, a game's map, the parameters of a decision.

Pydantic's own conversion is not used: it knows no NumPy, lets NaN through, does not say where a value stands, and of
two keys that are one in JSON (1 and "1") it keeps one.
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import fractions
import inspect
import ipaddress
import json
import math
import pathlib
import uuid
from typing import Any, NoReturn

import numpy as np

from ue_rl.system.errors import shorten

MAX_VALUES = 1_000_000  # in one result: a picture of 640 x 480 has 921 600; a generator may have no end
MAX_LEVELS = 100  # of lists in lists: readers in other languages stop there, or earlier
_AS_TEXT = (
    uuid.UUID,
    pathlib.PurePath,
    fractions.Fraction,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
)
_ONE_BY_ONE = (
    collections.abc.Sequence,
    collections.abc.Iterator,
    collections.abc.KeysView,
    collections.abc.ValuesView,
    collections.abc.ItemsView,
)


class NotJson(ValueError):
    """JSON cannot hold a value; the message says what it is and where it stands: "nan at result['speed']"."""


def json_value(value: Any, place: str = "result") -> Any:
    """`value` in JSON's types: None, bool, int, float, str, list, and dict with str as keys; all of it new.

    | of Python | in JSON |
    |---|---|
    | enum members | their values |
    | dataclasses, pydantic's models | objects of their fields |
    | tuples, ranges, deques, iterators, dict views | lists |
    | sets | lists, sorted |
    | NumPy's numbers and arrays, what has `tolist()` (tensors, series) | numbers, lists |
    | dates and times | text, as ISO 8601 has it |
    | timedeltas | their seconds |
    | Decimal, Fraction, UUID, paths, IP addresses | text |
    | bytes | text: Base64 |
    | keys that are numbers, None, bool, or one of those that become text | text |

    Args:
        place: how the error calls the whole.

    Raises:
        NotJson: it holds something else, NaN or infinity, an integer of more than 64 bits, two keys that are one as
            text, itself, or more than MAX_VALUES values or MAX_LEVELS levels. Besides this whatever an iterator or a
            property of `value` raises.
    """
    return _Conversion().of(value, place)


def readable(value: Any) -> Any:
    """As `json_value`, for logs and prompts: what JSON cannot hold becomes a short text, in its place. Never raises."""
    try:
        return _Readable().of(value, "")
    except Exception:  # noqa: BLE001 - whatever an iterator or a property of `value` raises
        return f"<{type(value).__name__}>"


class _TooMuch(NotJson):
    """More values or levels than are read."""


class _Conversion:
    """Of one value and of what it holds."""

    def __init__(self) -> None:
        self._left = MAX_VALUES
        self._above: list[int] = []  # ids of the containers around what is being converted

    def of(self, value: Any, place: str) -> Any:
        self._count(1, place)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, enum.Enum):
            return self.of(value.value, place)
        if isinstance(value, np.generic):
            return self._of_numpy(value, place)
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            return _integer(value, place)
        if isinstance(value, float):
            return _finite(float(value), place)
        if isinstance(value, datetime.timedelta):
            return value.total_seconds()
        text = _text_of(value, place)
        if text is None:
            return self._of_container(value, place)
        return text

    def _count(self, values: int, place: str) -> None:
        self._left -= values
        if self._left < 0:
            raise _TooMuch(f"more than {MAX_VALUES:,} values, up to {place}")

    def _of_numpy(self, value: Any, place: str) -> Any:
        if isinstance(value, np.floating):
            return _finite(float(value), place)  # not item(): that of a longdouble is one
        if isinstance(value, (np.datetime64, np.timedelta64)):
            if np.isnat(value):
                return None
            if isinstance(value, np.datetime64):
                return str(value)
            try:
                return float(value / np.timedelta64(1, "s"))
            except TypeError:  # months and years have no fixed length
                _refuse(value, place)
        if isinstance(value, np.void):
            if value.dtype.names:
                return self.of({name: value[name] for name in value.dtype.names}, place)
            return _base64(value.tobytes())
        if isinstance(value, np.complexfloating):
            _refuse(value, place)
        return self.of(value.item(), place)

    def _of_array(self, value: Any, place: str) -> Any:
        if isinstance(value, np.ma.MaskedArray):
            return self.of(value.tolist(), place)  # what is masked is None
        if value.ndim == 0:
            return self.of(value[()], place)
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            return [self.of(part, f"{place}[{n}]") for n, part in enumerate(value)]
        self._count(value.size, place)
        finite = np.isfinite(value)
        if not finite.all():
            first = np.argwhere(~finite)[0]
            where = place + "".join(f"[{number}]" for number in first)
            raise NotJson(f"{value[tuple(first)]} at {where}")
        return value.tolist()

    def _of_container(self, value: Any, place: str) -> Any:
        if id(value) in self._above:
            raise NotJson(f"a {type(value).__name__} that contains itself, at {place}")
        if len(self._above) >= MAX_LEVELS:
            raise NotJson(f"more than {MAX_LEVELS} levels, at {place[:80]}..")
        self._above.append(id(value))
        try:
            return self._of_parts(value, place)
        finally:
            self._above.pop()

    def _of_parts(self, value: Any, place: str) -> Any:
        if isinstance(value, np.ndarray):
            return self._of_array(value, place)
        if isinstance(value, collections.abc.Mapping):
            return self._of_mapping(value, place)
        if isinstance(value, type):
            _refuse(value, place)
        if dataclasses.is_dataclass(value):
            fields = [each.name for each in dataclasses.fields(value)]
            return {name: self.of(getattr(value, name), f"{place}.{name}") for name in fields}
        if hasattr(value, "model_dump"):  # of pydantic, which need not be installed
            return self.of(value.model_dump(), place)
        if isinstance(value, (set, frozenset)):
            return _sorted([self.of(part, place) for part in value])
        if isinstance(value, _ONE_BY_ONE):
            return [self.of(part, f"{place}[{n}]") for n, part in enumerate(value)]
        if callable(getattr(value, "tolist", None)):
            return self.of(value.tolist(), place)
        if inspect.iscoroutine(value):
            value.close()  # or Python warns that nobody awaited it
            raise NotJson(f"a coroutine at {place}: an async function returns one, where a plain one is expected")
        return _refuse(value, place)

    def _of_mapping(self, value: Any, place: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, part in value.items():
            name = self._key(key, place)
            if name in found:
                raise NotJson(f"two keys that are both {name!r} in JSON, at {place}")
            found[name] = self.of(part, f"{place}[{name!r}]")
        return found

    def _key(self, key: Any, place: str) -> str:
        if isinstance(key, enum.Enum):
            key = key.value
        if isinstance(key, np.generic):
            key = self._of_numpy(key, f"a key of {place}")
        if isinstance(key, str):
            return str.__str__(key)
        if key is None or isinstance(key, (bool, int, float)):
            return json.dumps(self.of(key, f"a key of {place}"))
        text = _text_of(key, place)
        if text is None:
            raise NotJson(f"a key of type {type(key).__name__} at {place}")
        return text


class _Readable(_Conversion):
    """In which a part that JSON cannot hold spoils no other."""

    def of(self, value: Any, place: str) -> Any:
        try:
            return super().of(value, place)
        except _TooMuch:  # of an iterator without end there would be no end of these
            raise
        except NotJson:
            return shorten(value, 200)


def _text_of(value: Any, place: str) -> str | None:
    """What is written as text; None: it is none of this."""
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        if value.is_finite():
            return str(value)
        return _refuse(value, place)
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _base64(bytes(value))
    return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _integer(value: int, place: str) -> int:
    if not -(2**63) <= value < 2**64:
        raise NotJson(f"an integer of more than 64 bits at {place}")
    return int(value)


def _finite(value: float, place: str) -> float:
    if math.isfinite(value):
        return value
    return _refuse(value, place)


def _refuse(value: Any, place: str) -> NoReturn:
    number = isinstance(value, (float, complex, np.generic, decimal.Decimal))
    raise NotJson(f"{value if number else type(value).__name__} at {place}")


def _sorted(values: list[Any]) -> list[Any]:
    """In one order, whichever order the set had."""
    try:
        return sorted(values)
    except TypeError:  # of several types, or objects
        return sorted(values, key=lambda each: json.dumps(each, sort_keys=True))
