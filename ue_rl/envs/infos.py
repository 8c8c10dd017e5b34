"""Infos as the game gave them: arrays that have travelled as lists are arrays again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.system.errors import ConfigurationError


def stacked(infos: Mapping[int, Mapping[str, Any]], num_envs: int) -> dict[str, Any]:
    """One dict for all envs, as Gymnasium's vector envs give it: for each key an array [num_envs, ...], and a bool mask
    `_key` of the envs that have it; a dict where the values are dicts.

    Numbers, and lists of numbers of one shape, are arrays of a dtype that holds those of all envs: where some sent an
    integer and others a float, all are floats. Anything else is in an array of objects, None for envs without it:
    texts, values of different types, lists of different lengths, integers that no dtype of numpy holds.

    Args:
        infos: by env, as they were received; not changed.

    Raises:
        ConfigurationError: a key is the mask's name of another one.
    """
    found: dict[str, Any] = {}
    keys = {key: None for info in infos.values() for key in info}
    for key in keys:
        values = {env: info[key] for env, info in infos.items() if key in info}
        if key[:1] == "_" and key[1:] in keys:
            raise taken(key, next(iter(values)))
        mask = np.zeros(num_envs, np.bool_)
        mask[[*values]] = True
        found[key] = _column(values, num_envs)
        found[f"_{key}"] = mask
    return found


def taken(key: str, env: int) -> ConfigurationError:
    """The error for a key of an engine's infos that says something else in Gymnasium's vector infos."""
    return ConfigurationError(
        "an info has a key that means something else in Gymnasium's vector infos, where _KEY is the mask of KEY",
        fault="engine",
        env_id=env,
        field=key,
        cure="rename it in the game, or use ue_rl.connect(url)",
    )


def put_arrays(info: dict[str, Any]) -> None:
    """Turns what are lists of numbers in one env's `info` into arrays, in place, also in dicts within it."""
    for key, value in info.items():
        if value.__class__ is dict:
            info[key] = dict(value)
            put_arrays(info[key])
        elif value.__class__ is list and (array := _array(value)) is not None:
            info[key] = array


def is_number(value: object) -> bool:
    """Is it a bool, or a number that a float64 can hold? What an engine sends may be anything that JSON can say."""
    if not isinstance(value, (int, float, np.number, np.bool_)):
        return False
    try:
        return math.isfinite(value)
    except (OverflowError, TypeError):
        return False


def _column(values: Mapping[int, Any], num_envs: int) -> Any:
    """One key's values by env, for all envs."""
    types = {type(value) for value in values.values()}
    if types == {dict}:
        return stacked(values, num_envs)
    array = None if str in types else _array([*values.values()])
    if array is None:
        column = np.full(num_envs, None, object)
        for env, value in values.items():
            column[env] = value
    else:
        column = np.zeros((num_envs, *array.shape[1:]), array.dtype)
        column[[*values]] = array
    return column


def _array(values: list[Any]) -> NDArray[Any] | None:
    """Numbers, or lists of them, as an array; None where they are anything else, or no dtype holds them."""
    try:
        array = np.array(values)
    except (ValueError, OverflowError):  # of different shapes
        return None
    if array.dtype.kind not in "biuf" or not array.size:
        return None
    wide = array >= 2.0**63 if array.dtype.kind == "f" else array[:0]
    if wide.any() and any(type(value) is int for value in np.array(values, object)[wide]):  # numpy has rounded it
        return None
    return array
