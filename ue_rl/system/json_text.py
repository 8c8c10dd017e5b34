"""JSON as infos of a step and options of a reset carry it: one object, written and read in one way by every carrier.

NumPy's numbers and arrays are written as numbers and lists. NaN and infinity are not JSON.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from ue_rl.system.errors import ConfigurationError


def json_text(value: Mapping[str, Any], field: str, env_id: int | None = None) -> str:
    """`value` as JSON, ASCII only, without spaces.

    Args:
        field: "INFO" or "OPTIONS", for the error. env_id: the env concerned, for the error.

    Raises:
        ConfigurationError: it holds what JSON cannot; the message names the place and the type.
    """
    try:
        if isinstance(value, Mapping):
            return json.dumps(dict(value), allow_nan=False, separators=(",", ":"), default=_plain)
    except (ValueError, TypeError, RecursionError):
        pass
    try:
        if isinstance(value, Mapping):
            got = _first_fault(value, field.lower())
        else:
            got = f"a {type(value).__name__}"
    except RecursionError:
        got = "it is nested too deeply, or contains itself"
    fault = "caller"
    if field == "INFO":
        fault = "engine"
    raise ConfigurationError(
        "this cannot be written as a JSON object",
        fault=fault,
        env_id=env_id,
        field=field,
        expected="a dict of finite numbers, strings, booleans, None, lists, dicts and NumPy arrays",
        got=got,
    )


def json_object(text: str | bytes | bytearray) -> dict[str, Any] | None:
    """The object that `text` holds; None where it holds none (NaN and infinity are none either)."""
    whole: Callable[[str], float] | None = None
    if isinstance(text, str):
        holds_zero = "-0" in text
    else:
        holds_zero = b"-0" in text
    if holds_zero:
        whole = _whole_number  # slower than json's own
    try:
        found = json.loads(text, parse_constant=_refuse_constant, parse_int=whole)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict):
        return found
    return None


def json_items(values: Mapping[Any, Any]) -> dict[str, Any]:
    """The items of `values` that JSON can carry, as they will be read; the others are left out.

    Of numbers that are not finite a warning says so, once for each key: a reader would look for them.
    """
    kept: dict[str, Any] = {}
    for key, value in values.items():
        try:
            kept[str(key)] = json.loads(json.dumps(value, allow_nan=False, default=_plain))
        except ValueError:
            text = f"an info's {str(key)[:80]!r} is left out: it holds NaN or infinity, which JSON cannot carry"
            warnings.warn(text, stacklevel=2)
        except (TypeError, RecursionError):
            continue
    return kept


def whole_text(text: object) -> str:
    """`text` as every carrier can carry it: half a character, which UTF-8 has no bytes for, as JSON's escape of it."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def _plain(value: object) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError


def _first_fault(value: Any, place: str) -> str:
    """What JSON cannot hold and where it stands, such as "object at options['a'][1]"; "" where all is well."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not (key is None or isinstance(key, (str, int, float))):
                return f"a key of type {type(key).__name__} at {place}"
            if fault := _first_fault(item, f"{place}[{key!r}]"):
                return fault
        if isinstance(value, dict) or "[" not in place:
            return ""
        return f"{type(value).__name__} at {place}"
    if isinstance(value, (list, tuple)):
        return next((fault for i, item in enumerate(value) if (fault := _first_fault(item, f"{place}[{i}]"))), "")
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return ""
    if isinstance(value, float):
        return f"{value} at {place}"
    return f"{type(value).__name__} at {place}"


def _whole_number(text: str) -> float:
    """As json reads it, but for -0: JSON's numbers have signs, and int's zero has none."""
    if text == "-0":
        return -0.0
    return int(text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
