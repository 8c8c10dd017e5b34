"""Ring: one writer's messages to one reader, over any memoryview. No waiting: a full or empty ring is reported at once.

Layout (docs/shared-memory.md, section 4): `[write_pos u32][read_pos u32][data]`. An entry is `[length u32][payload]`
padded to 8 bytes and never wraps: where it does not fit the rest of the data, the marker 0xFFFFFFFF sends the reader
to 0. Positions are byte offsets into the data, equal when empty; 8 bytes stay free. Each side keeps its own position in
a private variable, and checks the other's, and every length, on every use.
"""

from __future__ import annotations

import struct
from typing import Any

from ue_rl.system.compiled import load
from ue_rl.system.errors import ConfigurationError, SegmentInvalid

WRITE_POS = 0
READ_POS = 4
DATA = 8
_WRAP = 0xFFFFFFFF
_LENGTH = struct.Struct("<I")


class Ring:
    """One end of a ring; use it for writing or for reading, never both.

    Args:
        memory: the ring, its two positions included; 8-byte aligned.
        name: for error messages, such as "cmd_s2c".

    Raises:
        SegmentInvalid: the positions in the ring are invalid.
    """

    def __init__(self, memory: Any, name: str = "ring") -> None:
        self._view = memoryview(memory).cast("B")
        self._words = load("sync")
        self.name = name
        self.capacity = len(self._view) - DATA
        if self.capacity < 16 or self.capacity % 8:
            raise ConfigurationError("a ring is a multiple of 8 bytes, 24 or more", got=len(self._view))
        self._data = self._view[DATA:]
        self._positions = self._view[:DATA].cast("I")
        self._write = self._position(WRITE_POS)
        self._read = self._position(READ_POS)

    @property
    def max_payload(self) -> int:
        """The longest message that always fits an empty ring, wherever its positions stand."""
        return ((self.capacity - 8) // 2 + 7) // 8 * 8 - 4

    @property
    def write_pos(self) -> int:
        """The writer's position, as this side last read it."""
        return self._write

    def try_write(self, payload: bytes | bytearray | memoryview) -> bool:
        """Appends a message; False where there is no room now.

        Raises:
            ConfigurationError: longer than `max_payload`. SegmentInvalid: the reader's position is invalid.
        """
        size = len(payload)
        if size > self.max_payload:
            raise ConfigurationError(
                "a message is longer than its ring takes",
                field=self.name,
                expected=f"at most {self.max_payload} bytes",
                got=size,
                cure="make cmd_ring_size larger",
            )
        need = (4 + size + 7) // 8 * 8
        read = self._position(READ_POS)
        at = self._write
        if at >= read:
            reserve = 0
            if read == 0:
                reserve = 8
            if need > self.capacity - at - reserve:
                if need > read - 8:
                    return False
                _LENGTH.pack_into(self._data, at, _WRAP)
                at = 0
        elif need > read - at - 8:
            return False
        _LENGTH.pack_into(self._data, at, size)
        self._data[at + 4 : at + 4 + size] = payload
        at += need
        if at == self.capacity:
            self._write = 0
        else:
            self._write = at
        self._words.store_u32(self._view, WRITE_POS, self._write)
        return True

    def try_read(self) -> bytes | None:
        """The oldest message, None where there is none.

        Raises:
            SegmentInvalid: the writer's position or a length is invalid.
        """
        write = self._position(WRITE_POS)
        self._write = write
        at = self._read
        if write == at:
            return None
        (size,) = _LENGTH.unpack_from(self._data, at)
        if size == _WRAP:
            if write >= at:
                raise self._invalid("a wrap marker where the data does not wrap", f"a length at {at}", hex(size))
            at = 0
            if write == 0:  # a writer publishes the marker together with the message behind it
                raise self._invalid("a wrap marker without a message", "a message at 0", write)
            (size,) = _LENGTH.unpack_from(self._data, 0)
        if write > at:
            end = write
        else:
            end = self.capacity
        room = end - at
        need = (4 + size + 7) // 8 * 8
        if need > room:
            raise self._invalid("an entry is longer than what was written", f"at most {room} bytes", need)
        payload = bytes(self._data[at + 4 : at + 4 + size])
        at += need
        if at == self.capacity:
            self._read = 0
        else:
            self._read = at
        self._words.store_u32(self._view, READ_POS, self._read)
        return payload

    def has_news(self) -> bool:
        """For the reader: has the writer moved since it was last read? Call it after a wait, which orders memory."""
        return self._positions[0] != self._write

    def skip_all(self) -> None:
        """For the reader: forgets everything that was written so far."""
        self._read = self._write = self._position(WRITE_POS)
        self._words.store_u32(self._view, READ_POS, self._read)

    def repair(self) -> None:
        """Empties a ring with invalid positions, for the next session; only while nobody uses it."""
        try:
            for offset in (WRITE_POS, READ_POS):
                self._position(offset)
        except SegmentInvalid:
            self._write = self._read = 0
            for offset in (WRITE_POS, READ_POS):
                self._words.store_u32(self._view, offset, 0)

    def release(self) -> None:
        """Lets go of the memory."""
        self._positions.release()
        self._data.release()
        self._view.release()

    def _position(self, offset: int) -> int:
        value: int = self._words.load_u32(self._view, offset)
        if value >= self.capacity or value % 8:
            name = "read_pos"
            if offset == WRITE_POS:
                name = "write_pos"
            raise self._invalid(f"invalid {name} of {self.name}", f"a multiple of 8 below {self.capacity}", value, name)
        return value

    def _invalid(self, what: str, expected: Any, got: Any, position: str = "entry") -> SegmentInvalid:
        return SegmentInvalid(
            f"a command ring is broken: {what}",
            field=f"{self.name}.{position}",
            expected=expected,
            got=got,
            cure="the other side does not keep to docs/shared-memory.md, section 4",
        )
