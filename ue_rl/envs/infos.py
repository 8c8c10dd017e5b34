"""Infos as the game gave them: arrays that have travelled as lists are arrays again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def with_arrays(infos: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """The same infos with arrays where an env had arrays: they have travelled as lists.

    Lists of numbers become arrays, of one dtype for all envs, where those of all envs have the same shape; other lists
    stay lists. Where some envs sent an integer and others a float, all are floats: Gymnasium takes the first one's type
    for all and would cut the others.
    """
    plain = {env: dict(info) for env, info in infos.items()}
    for key in {key for info in plain.values() for key in info}:
        values = {env: info[key] for env, info in plain.items() if key in info}
        for env, value in _converted(values).items():
            plain[env][key] = value
    return plain


def put_arrays(info: dict[str, Any]) -> None:
    """Turns what are lists of numbers in one env's `info` into arrays, in place, also in dicts within it."""
    for key, value in info.items():
        if value.__class__ is list or value.__class__ is dict:
            info[key] = _converted({0: value})[0]


def is_number(value: object) -> bool:
    """Is it a bool, or a number that a float64 can hold? What an engine sends may be anything that JSON can say."""
    if not isinstance(value, (int, float, np.number, np.bool_)):
        return False
    try:
        return math.isfinite(value)
    except (OverflowError, TypeError):
        return False


def _converted(values: dict[int, Any]) -> dict[int, Any]:
    """One key's value by env."""
    types = {type(value) for value in values.values()}
    if types == {dict}:
        return with_arrays(values)
    if types == {int, float}:
        return {env: float(value) for env, value in values.items()}
    if types != {list}:
        return values
    try:
        arrays = np.array(list(values.values()))
    except (ValueError, OverflowError):  # of different shapes
        return values
    if arrays.dtype.kind not in "biuf" or not arrays.size:
        return values
    return dict(zip(values, arrays, strict=True))
