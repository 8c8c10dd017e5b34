"""LineBuffer: a byte stream cut into lines, without I/O."""

from __future__ import annotations

from ue_rl.system.errors import LineTooLong

_BLANKS = b" \t\r\n"
_AT_ONCE = 65_536  # bytes: the first storage, the room beyond the longest line, and each step of growth after that


class LineBuffer:
    """Collects received bytes and gives them out line by line, however they were split.

    Carriage returns before the newline, and lines that are empty or of blanks alone, are dropped. The storage grows as
    needed up to the limit and is reused; `next_span` gives positions in `data` that hold until the next `space` or
    `feed`.

    Args:
        max_line: the longest line in bytes, newline included.
    """

    def __init__(self, max_line: int, fault: str = "engine") -> None:
        self.max_line = max_line
        self.fault = fault
        self.data = bytearray(min(max_line + 1, _AT_ONCE))
        self._view = memoryview(self.data)
        self._head = 0  # first byte not given out
        self._scanned = 0  # no newline between _head and here
        self._tail = 0  # behind the last byte received

    @property
    def head(self) -> int:
        """Position in `data` of the first byte not given out."""
        return self._head

    def __len__(self) -> int:
        """Bytes received and not given out."""
        return self._tail - self._head

    def unread(self) -> bytes:
        """Those bytes."""
        return bytes(self._view[self._head : self._tail])

    def space(self) -> memoryview:
        """Where to receive into: at least one byte; tell `received` how many came."""
        if self._head == self._tail:
            self._head = self._scanned = self._tail = 0
        elif self._tail == len(self.data) and self._head:
            kept = self._tail - self._head
            self._view[:kept] = bytes(self._view[self._head : self._tail])
            self._head, self._scanned = 0, self._scanned - self._head
            self._tail = kept
        if self._tail == len(self.data):
            size = min(2 * len(self.data), self.max_line + _AT_ONCE)
            if size > len(self.data):
                capacity = size
            else:
                capacity = len(self.data) + _AT_ONCE
            self._grow(capacity)
        return self._view[self._tail :]

    def received(self, count: int) -> None:
        """`count` bytes were written into `space()`."""
        self._tail += count

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Adds received bytes."""
        data = memoryview(data)
        while data:
            room = self.space()
            n = min(len(room), len(data))
            room[:n] = data[:n]
            self._tail += n
            data = data[n:]

    def next_span(self) -> tuple[int, int] | None:
        """(start, end) in `data` of the next line that is not blank, without its line ending; None: none is complete.

        Raises:
            LineTooLong: more than `max_line` bytes without a newline.
        """
        while True:
            at = self.data.find(b"\n", self._scanned, self._tail)
            if at < 0:
                self._scanned = self._tail
                if self._tail - self._head >= self.max_line:
                    raise self._too_long()
                return None
            if at - self._head >= self.max_line:
                raise self._too_long()
            start = self._head
            end = at
            self._head = self._scanned = at + 1
            if end > start and self.data[end - 1] == 0x0D:
                end -= 1
            if end > start and (self.data[start] > 0x20 or self.data[start:end].strip(_BLANKS)):
                return start, end

    def next_line(self) -> bytes | None:
        """The next non-empty line as bytes of its own; otherwise as `next_span`."""
        span = self.next_span()
        if span is None:
            return None
        return bytes(self._view[span[0] : span[1]])

    def has_line(self) -> bool:
        """Is a whole non-empty line there?"""
        return bool(bytes(self._view[self._head : self._tail]).rpartition(b"\n")[0].strip(_BLANKS))

    def check_limit(self) -> None:
        """Raises LineTooLong where more than one line's limit waits unread."""
        if len(self) >= self.max_line:
            raise self._too_long()

    def discard(self) -> None:
        """Drops everything received."""
        self._head = self._scanned = self._tail = 0

    def _grow(self, size: int) -> None:
        # A new store instead of a resize: views of the old one may still be held.
        old = self._view[self._head : self._tail]
        self.data = bytearray(size)
        self._view = memoryview(self.data)
        self._view[: len(old)] = old
        self._scanned -= self._head
        self._head = 0
        self._tail = len(old)

    def _too_long(self) -> LineTooLong:
        return LineTooLong(
            "a line is longer than the session allows",
            fault=self.fault,
            expected=f"a newline within {self.max_line} bytes",
            got=bytes(self._view[self._head : self._head + 80]),
            cure="every message must end in a newline, and hold no more rows than ENV_COUNT",
        )
