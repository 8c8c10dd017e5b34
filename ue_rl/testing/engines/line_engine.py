"""LineEngine: an EngineLoop that takes connections of both wirings, and cuts what they send into lines."""

from __future__ import annotations

import contextlib
import socket

from ue_rl.system.keepalive import reset_at_close
from ue_rl.testing.engines.loop import EngineLoop


class Stopped(Exception):
    """The engine is to end, or to drop its client."""


class LineEngine(EngineLoop):
    """What the engines in text have in common: the first connection, those behind it, and unfinished lines.

    A subclass implements `_take` and `_answer`.

    Args:
        name, host, port, backlog: see EngineLoop.
    """

    def __init__(self, name: str, host: str, backlog: int, port: int = 0) -> None:
        self._admin: socket.socket | None = None
        self._envs: list[socket.socket] = []
        self._partial: dict[socket.socket, bytes] = {}
        self._lost_by: OSError | None = None  # how the last connection ended that did not end in order
        super().__init__(name, host, backlog, port=port)
        assert self._listener is not None
        self._watch(self._listener)

    # -- for subclasses

    def _take(self, sock: socket.socket) -> None:
        """A new connection; it is watched already."""
        raise NotImplementedError

    def _answer(self, sock: socket.socket, line: bytes) -> None:
        """A line that is not empty."""
        raise NotImplementedError

    def _cut(self, sock: socket.socket, data: bytes) -> list[bytes]:
        """What a read brought, as lines; an unfinished one is kept."""
        *lines, self._partial[sock] = (self._partial[sock] + data).split(b"\n")
        return lines

    def _gone(self, sock: socket.socket) -> None:
        """A connection has ended at its other side."""
        if sock is self._admin or not self._envs:
            self._close_clients()
        else:
            self._unwatch(sock)

    def _turn(self) -> float | None:
        """Called before each wait; the longest time to wait, None: for ever."""
        return None

    # -- own

    def _loop(self) -> None:
        while not self._stop.is_set():
            ready = {key.fileobj for key, _ in self._selector.select(self._turn())}
            # In the order of the envs, whatever the selector's is: what a fault does to the envs behind it must not
            # depend on that. New connections come last, so that the end of an old one is seen first.
            for sock in [sock for sock in self._partial if sock in ready]:
                if sock in self._partial and not self._stop.is_set():  # it may have been closed in this round
                    with contextlib.suppress(Stopped):
                        self._read(sock)
            if self._listener is not None and self._listener in ready and not self._stop.is_set():
                with contextlib.suppress(Stopped):
                    self._accept()

    def _accept(self) -> None:
        assert self._listener is not None
        sock, _ = self._listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(0.05)
        self._partial[sock] = b""
        self._watch(sock)
        self._take(sock)

    def _read(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(65536)
        except OSError as error:
            data, self._lost_by = b"", error
        if not data:
            self._gone(sock)
            return
        for line in self._cut(sock, data):
            if line.strip() and sock in self._partial:  # an answer may have ended the session
                self._answer(sock, line)

    def _wait(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped

    def _send(self, sock: socket.socket, data: bytes) -> None:
        if not self._send_all(sock, data):
            self._close_clients()
            raise Stopped

    def _close(self, sock: socket.socket, reset: bool = False) -> None:
        """Closes one connection; `reset`: with a RST."""
        self._unwatch(sock)
        self._partial.pop(sock, None)
        if reset:
            reset_at_close(sock)
        sock.close()

    def _close_clients(self, reset: bool = False) -> None:
        for sock in list(self._partial):
            self._close(sock, reset)
        self._envs.clear()
        self._admin = None
