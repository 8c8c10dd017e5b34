"""Wire: one TCP connection to an engine, byte by byte, with what came and when. It knows no protocol."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from dataclasses import dataclass

from ue_rl.system.keepalive import reset_at_close

QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)


class NoLine(Exception):
    """No whole line comes. `unread`: what came behind the last one."""

    def __init__(self, unread: bytes) -> None:
        super().__init__(unread)
        self.unread = unread


class Silent(NoLine):
    """Not in time."""


class Ended(NoLine):
    """The engine closed the connection, or reset it."""


@dataclass(frozen=True)
class Line:
    """A line without its ending, and how it came.

    Args:
        began, ended: time.perf_counter() of its first and of its last piece.
        pieces: how many reads it took.
    """

    data: bytes
    began: float
    ended: float
    pieces: int


class Wire:
    """A connected socket.

    Args:
        address: (host, port).
        timeout: seconds for connecting, and for each send.

    Attributes:
        acknowledges_late: as a peer may; Nagle's algorithm shows itself then, and not without. Linux only; elsewhere
            it is as the system likes.

    Raises:
        OSError: nobody listens.
    """

    acknowledges_late = False

    def __init__(self, address: tuple[str, int], timeout: float) -> None:
        self.sock = socket.create_connection(address, timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""
        self._began = self._last = 0.0
        self._pieces = 0

    def send(self, *pieces: bytes, pause: float = 0.0) -> None:
        """Sends the pieces, each with a write of its own, `pause` seconds apart.

        Raises:
            Ended: the engine has closed the connection.
        """
        try:
            for n, piece in enumerate(pieces):
                if n:
                    time.sleep(pause)
                self.sock.sendall(piece)
        except OSError:
            self.drain()
            raise Ended(self.unread) from None

    def line(self, within: float, most: int = 2**29) -> Line:
        """The next line that is not empty.

        Raises:
            Silent: none came within so many seconds, or more than `most` bytes without a line feed. Ended.
        """
        deadline = time.perf_counter() + within
        while True:
            at = self.unread.find(b"\n")
            if at >= 0:
                data, self.unread = self.unread[:at].rstrip(b"\r"), self.unread[at + 1 :]
                line = Line(data, self._began, self._last, self._pieces)
                self._began, self._pieces = self._last, 1  # what is left came with the same read
                if data.strip():
                    return line
                continue
            if len(self.unread) > most:
                raise Silent(self.unread)
            self._read(deadline)

    def drain(self) -> bytes:
        """Reads what is there without waiting; all that is unread."""
        with contextlib.suppress(NoLine):
            while True:
                self._read(0.0)
        return self.unread

    def quiet(self, seconds: float) -> bytes:
        """Waits so long for something that nobody asked for; what came, b"" for nothing.

        Raises:
            Ended: the engine closed the connection meanwhile.
        """
        deadline = time.perf_counter() + seconds
        while not self.unread.strip():
            try:
                self._read(deadline)
            except Silent:
                return b""
        with contextlib.suppress(Silent):
            self._read(time.perf_counter() + 0.02)  # the rest of it
        return self.unread

    def close(self, reset: bool = False) -> None:
        """Closes it; `reset`: as a process that was killed may, with a RST."""
        if reset:
            reset_at_close(self.sock)
        self.sock.close()

    def _read(self, deadline: float) -> None:
        left = max(deadline - time.perf_counter(), 0.0)
        if not select.select([self.sock], [], [], left)[0]:
            raise Silent(self.unread)
        try:
            piece = self.sock.recv(1 << 16)
        except OSError:
            raise Ended(self.unread) from None
        if QUICKACK is not None:  # the system forgets it again and again
            self.sock.setsockopt(socket.IPPROTO_TCP, QUICKACK, not self.acknowledges_late)
        if not piece:
            raise Ended(self.unread)
        now = time.perf_counter()
        if not self.unread:
            self._began, self._pieces = now, 0
        self.unread += piece
        self._last = now
        self._pieces += 1
