"""Ring entries that are JSON: the infos of a frame and the options of a reset (docs/commands.md, section 1).

    "JSON"  method u32  env_id i32  text      little-endian; text: one JSON object

They need no FlatBuffers, so that shared memory carries all that TCP carries with the same packages installed. A
FlatBuffer begins with an offset inside itself; read as one, these first four bytes would be 1.3 GB.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from ue_rl.commands.envelope import Method
from ue_rl.errors import ConfigurationError, MalformedMessage, UnknownEnv
from ue_rl.json_text import json_object, json_text

_HEAD = struct.Struct("<4sIi")
_MARK = b"JSON"
# Which field of the text protocol it is, and who writes it.
_FIELDS = {Method.ENV_INFO: ("INFO", "engine"), Method.RESET_OPTIONS: ("OPTIONS", "trainer")}


def json_entry(method: Method, env_id: int, value: Mapping[str, Any], longest: int) -> bytes:
    """The entry.

    Args:
        method: ENV_INFO or RESET_OPTIONS. longest: bytes that the ring takes.

    Raises:
        ConfigurationError: `value` is no JSON object, or too long.
    """
    field = _FIELDS[method][0]
    entry = _HEAD.pack(_MARK, method, env_id) + json_text(value, field, env_id).encode()
    if len(entry) > longest:
        raise ConfigurationError(
            "longer than the command ring takes", fault="engine" if field == "INFO" else "caller", env_id=env_id,
            field=field, expected=f"at most {longest} bytes", got=len(entry), cure="make the ring larger (ring_size=)",
        )  # fmt: skip
    return entry


def is_json(data: bytes) -> bool:
    """Is this entry JSON, and not a FlatBuffer?"""
    return data[:4] == _MARK


def read_json_entry(data: bytes, method: Method, num_envs: int) -> tuple[int, dict[str, Any]]:
    """(env_id, object) of an entry for which `is_json` holds.

    Args:
        method: the only one that is allowed in this direction.

    Raises:
        MalformedMessage: another method, or no JSON object. UnknownEnv.
    """
    field, fault = _FIELDS[method]
    if len(data) < _HEAD.size or _HEAD.unpack_from(data)[1] != method:
        raise MalformedMessage(
            "a JSON message of another kind", fault=fault, field=field, expected=method.name, got=data
        )
    return check_object(method, _HEAD.unpack_from(data)[2], data[_HEAD.size :], num_envs)


def check_object(method: Method, env_id: int, text: bytes, num_envs: int) -> tuple[int, dict[str, Any]]:
    """The same of an env id and a text that a FlatBuffer carried (ENV_INFO and RESET_OPTIONS of older peers)."""
    field, fault = _FIELDS[method]
    if not 0 <= env_id < num_envs:
        raise UnknownEnv(
            "the env id does not exist", fault=fault, field="ENV", expected=f"0 to {num_envs - 1}", got=env_id
        )
    value = json_object(text)
    if value is None:
        raise MalformedMessage("not a JSON object", fault=fault, env_id=env_id, field=field, got=text)
    return env_id, value
