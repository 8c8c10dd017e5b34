"""Ring entries that are plain text: calls and their answers (docs/protocol.md, section 8; docs/commands.md, section 1).

    "TEXT"  number u32  rest u32  piece       little-endian; rest: bytes of the text that follow in later entries

A text that is longer than an entry may be, such as a picture, goes in pieces, one behind the other. The number pairs an
answer with its call. Like JSON entries they need no FlatBuffers, and no FlatBuffer begins with these letters.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ue_rl.errors import MalformedMessage

_HEAD = struct.Struct("<4sII")
_MARK = b"TEXT"


def text_entries(number: int, text: bytes, longest: int) -> Iterator[bytes]:
    """The entries of one text; `longest`: bytes that the ring takes, 20 or more."""
    step = longest - _HEAD.size
    for at in range(0, max(len(text), 1), step):
        yield _HEAD.pack(_MARK, number, max(len(text) - at - step, 0)) + text[at : at + step]


def is_text(entry: bytes) -> bool:
    """Is this entry text, and neither JSON nor a FlatBuffer?"""
    return entry[:4] == _MARK


class TextReader:
    """Puts the pieces of one direction together; one text after the other.

    Args:
        fault: who writes them, for errors. limit: bytes of one text.
    """

    def __init__(self, fault: str, limit: int) -> None:
        self._fault, self._limit = fault, limit
        self._number = self._rest = 0
        self._pieces: list[bytes] = []

    def take(self, entry: bytes) -> tuple[int, bytes] | None:
        """(number, text) where the text is complete; None: there is more to come.

        Args:
            entry: `is_text` holds for it.

        Raises:
            MalformedMessage: no entry of this kind, not the next piece, or longer than the limit.
        """
        if len(entry) < _HEAD.size:
            raise self._refused("a text's entry is too short", f"{_HEAD.size} bytes", len(entry))
        _, number, rest = _HEAD.unpack_from(entry)
        piece = entry[_HEAD.size :]
        if self._rest:
            expected = self._number, self._rest - len(piece)
            if (number, rest) != expected or not piece:
                raise self._refused("a piece of a text is not the next one", f"number and rest {expected}", rest)
        if len(piece) + rest > self._limit:
            raise self._refused("a text is too long", f"at most {self._limit} bytes", len(piece) + rest)
        self._number, self._rest = number, rest
        self._pieces.append(piece)
        if rest:
            return None
        text = b"".join(self._pieces)
        self._pieces.clear()
        return number, text

    def _refused(self, what: str, expected: str, got: int) -> MalformedMessage:
        return MalformedMessage(what, fault=self._fault, field="TEXT", expected=expected, got=got)
