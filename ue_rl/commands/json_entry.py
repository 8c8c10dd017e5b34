"""Ring entries that are JSON: the infos of a frame, options and parameters of a reset (docs/commands.md, section 1).

    "JSON"  method u32  row i32  text         little-endian; text: one JSON object

The row is the env's id; with agents an info is of its agent's row, the others of the env's first (EnvSpec.num_rows).

They need no FlatBuffers, so that shared memory carries all that TCP carries with the same packages installed. A
FlatBuffer begins with an offset inside itself; read as one, these first four bytes would be 1.3 GB.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Mapping
from typing import Any

from ue_rl.commands.envelope import Method
from ue_rl.errors import ConfigurationError, MalformedMessage, UnknownEnv, shorten
from ue_rl.wire.json_text import json_object, json_text

_HEAD = struct.Struct("<4sIi")
_MARK = b"JSON"
# Which field of the text protocol it is, and who writes it.
ENV_INFO, RESET_OPTIONS, RESET_PARAMETERS = int(Method.ENV_INFO), int(Method.RESET_OPTIONS), 36
_FIELDS = {
    ENV_INFO: ("INFO", "engine"), RESET_OPTIONS: ("OPTIONS", "trainer"), RESET_PARAMETERS: ("SET", "trainer")
}  # fmt: skip


def json_entry(method: int, row: int, value: Mapping[str, Any], longest: int) -> bytes:
    """The entry.

    Args:
        method: ENV_INFO, RESET_OPTIONS or RESET_PARAMETERS. longest: bytes that the ring takes.

    Raises:
        ConfigurationError: `value` is no JSON object, or too long.
    """
    field = _FIELDS[method][0]
    entry = _HEAD.pack(_MARK, method, row) + json_text(value, field, row).encode()
    if len(entry) > longest:
        raise ConfigurationError(
            "longer than the command ring takes",
            fault="engine" if field == "INFO" else "caller",
            env_id=row,
            field=field,
            expected=f"at most {longest} bytes",
            got=len(entry),
            cure="make the ring larger (ring_size=)",
        )
    return entry


def is_json(data: bytes) -> bool:
    """Is this entry JSON, and not a FlatBuffer?"""
    return data[:4] == _MARK


def read_json_entry(data: bytes, methods: Container[int], rows: int) -> tuple[int, int, dict[str, Any]]:
    """(method, row, object) of an entry for which `is_json` holds.

    Args:
        methods: those that are allowed in this direction. rows: how many there are.

    Raises:
        MalformedMessage: another method, or no JSON object. UnknownEnv.
    """
    method = _HEAD.unpack_from(data)[1] if len(data) >= _HEAD.size else 0
    if method not in methods:
        fault = "trainer" if RESET_OPTIONS in methods else "engine"
        raise MalformedMessage(
            "a JSON message of another kind", fault=fault, field="method", expected=methods, got=data
        )
    return method, *check_object(method, _HEAD.unpack_from(data)[2], data[_HEAD.size :], rows)


def check_object(method: int, row: int, text: bytes, rows: int) -> tuple[int, dict[str, Any]]:
    """(row, object) of a row and a text; a FlatBuffer carries them too (ENV_INFO and RESET_OPTIONS of older peers)."""
    field, fault = _FIELDS[method]
    if not 0 <= row < rows:
        raise UnknownEnv("the env id does not exist", fault=fault, field="ENV", expected=f"0 to {rows - 1}", got=row)
    value = json_object(text)
    if value is None:
        raise MalformedMessage("not a JSON object", fault=fault, env_id=row, field=field, got=text)
    if method == RESET_PARAMETERS:
        wrong = [name for name, number in value.items() if type(number) not in (int, float)]
        if wrong:
            raise MalformedMessage(
                "a parameter is not a number",
                fault=fault,
                env_id=row,
                field=field,
                expected="name to number",
                got=shorten(str({name: value[name] for name in wrong})),
            )
    return row, value
