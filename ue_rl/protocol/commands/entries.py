"""Ring entries that are no FlatBuffers (docs/commands.md, section 1), little-endian.

    "JSON"  method u32  row i32  text         one JSON object: the info of a row, options or parameters of a reset
    "TEXT"  number u32  rest u32  piece       a call or its answer; rest: bytes that follow in later entries

The row is the env's id; with agents an info is of its agent's row, the others of the env's first (EnvSpec.num_rows).
A text that is longer than an entry may be, such as a picture, goes in pieces. The number pairs an answer with its call.

So shared memory carries all that TCP carries with the same packages installed. A FlatBuffer begins with an offset
inside itself; read as one, these first four bytes would be more than a gigabyte.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator, Mapping
from typing import Any

from ue_rl.protocol.commands.envelope import Method
from ue_rl.system.errors import ConfigurationError, MalformedMessage, UnknownEnv, shorten
from ue_rl.system.json_text import json_object, json_text

_JSON_HEAD = struct.Struct("<4sIi")
_JSON = b"JSON"
_TEXT_HEAD = struct.Struct("<4sII")
_TEXT = b"TEXT"
# Which field of the text protocol it is, and who writes it.
ENV_INFO = int(Method.ENV_INFO)
RESET_OPTIONS = int(Method.RESET_OPTIONS)
RESET_PARAMETERS = 36
# of an episode that was asked ahead
FIRST_INFO = 37
NEXT_PARAMETERS = 38
_FIELDS = {
    ENV_INFO: ("INFO", "engine"), RESET_OPTIONS: ("OPTIONS", "trainer"), RESET_PARAMETERS: ("SET", "trainer"),
    FIRST_INFO: ("INFO", "engine"), NEXT_PARAMETERS: ("SET", "trainer"),
}  # fmt: skip


def json_entry(method: int, row: int, value: Mapping[str, Any], longest: int) -> bytes:
    """The entry.

    Args:
        method: one of those above. longest: bytes that the ring takes.

    Raises:
        ConfigurationError: `value` is no JSON object, or too long.
    """
    field = _FIELDS[method][0]
    entry = _JSON_HEAD.pack(_JSON, method, row) + json_text(value, field, row).encode()
    if len(entry) > longest:
        fault = "caller"
        if field == "INFO":
            fault = "engine"
        raise ConfigurationError(
            "longer than the command ring takes",
            fault=fault,
            env_id=row,
            field=field,
            expected=f"at most {longest} bytes",
            got=len(entry),
            cure="make the ring larger (ring_size=)",
        )
    return entry


def is_json(data: bytes) -> bool:
    """Is this entry JSON, and not a FlatBuffer?"""
    return data[:4] == _JSON


def read_json_entry(data: bytes, methods: Container[int], rows: int) -> tuple[int, int, dict[str, Any]]:
    """(method, row, object) of an entry for which `is_json` holds.

    Args:
        methods: those that are allowed in this direction. rows: how many there are.

    Raises:
        MalformedMessage: another method, or no JSON object. UnknownEnv.
    """
    method = 0
    if len(data) >= _JSON_HEAD.size:
        method = _JSON_HEAD.unpack_from(data)[1]
    if method not in methods:
        fault = "engine"
        if RESET_OPTIONS in methods:
            fault = "trainer"
        raise MalformedMessage(
            "a JSON message of another kind", fault=fault, field="method", expected=methods, got=data
        )
    return method, *check_object(method, _JSON_HEAD.unpack_from(data)[2], data[_JSON_HEAD.size :], rows)


def check_object(method: int, row: int, text: bytes, rows: int) -> tuple[int, dict[str, Any]]:
    """(row, object) of a row and a text; a FlatBuffer carries them too (ENV_INFO and RESET_OPTIONS of older peers)."""
    field, fault = _FIELDS[method]
    if not 0 <= row < rows:
        raise UnknownEnv("the env id does not exist", fault=fault, field="ENV", expected=f"0 to {rows - 1}", got=row)
    value = json_object(text)
    if value is None:
        raise MalformedMessage("not a JSON object", fault=fault, env_id=row, field=field, got=text)
    if method in (RESET_PARAMETERS, NEXT_PARAMETERS):
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


def text_entries(number: int, text: bytes, longest: int) -> Iterator[bytes]:
    """The entries of one text; `longest`: bytes that the ring takes, 20 or more."""
    step = longest - _TEXT_HEAD.size
    for at in range(0, max(len(text), 1), step):
        yield _TEXT_HEAD.pack(_TEXT, number, max(len(text) - at - step, 0)) + text[at : at + step]


def is_text(entry: bytes) -> bool:
    """Is this entry text, and neither JSON nor a FlatBuffer?"""
    return entry[:4] == _TEXT


class TextReader:
    """Puts the pieces of one direction together; one text after the other.

    Args:
        fault: who writes them, for errors. limit: bytes of one text.
    """

    def __init__(self, fault: str, limit: int) -> None:
        self._fault = fault
        self._limit = limit
        self._number = self._rest = 0
        self._pieces: list[bytes] = []

    def take(self, entry: bytes) -> tuple[int, bytes] | None:
        """(number, text) where the text is complete; None: there is more to come.

        Args:
            entry: `is_text` holds for it.

        Raises:
            MalformedMessage: no entry of this kind, not the next piece, or longer than the limit.
        """
        if len(entry) < _TEXT_HEAD.size:
            raise self._refused("a text's entry is too short", f"{_TEXT_HEAD.size} bytes", len(entry))
        _, number, rest = _TEXT_HEAD.unpack_from(entry)
        piece = entry[_TEXT_HEAD.size :]
        if self._rest:
            expected = self._number, self._rest - len(piece)
            if (number, rest) != expected or not piece:
                raise self._refused("a piece of a text is not the next one", f"number and rest {expected}", rest)
        if len(piece) + rest > self._limit:
            raise self._refused("a text is too long", f"at most {self._limit} bytes", len(piece) + rest)
        self._number = number
        self._rest = rest
        self._pieces.append(piece)
        if rest:
            return None
        text = b"".join(self._pieces)
        self._pieces.clear()
        return number, text

    def _refused(self, what: str, expected: str, got: int) -> MalformedMessage:
        return MalformedMessage(what, fault=self._fault, field="TEXT", expected=expected, got=got)
