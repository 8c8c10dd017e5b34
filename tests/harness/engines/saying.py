"""Saying: an engine of a few words, which judges nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable

from ue_rl.devtools.testing.engines.loop import LineEngine


class Saying(LineEngine):
    """Sends `greeting` on the first connection, and answer(n) to the nth line, on whichever connection it comes.

    Args:
        greeting, answer: with their line feeds, if they are to have some. closes: the first connection ends behind the
            greeting. threaded: see LineEngine.
    """

    def __init__(
        self,
        greeting: bytes,
        answer: Callable[[int], bytes] = lambda n: b"",
        *,
        closes: bool = False,
        threaded: bool = False,
    ) -> None:
        self._greeting = greeting
        self._reply = answer
        self._closes = closes
        self._taken = 0
        self._count = 0
        super().__init__("saying", "127.0.0.1", 5, threaded=threaded)

    def _take(self, sock: socket.socket) -> None:
        self._taken += 1
        if self._taken > 1:
            return
        self._send(sock, self._greeting)
        if self._closes:
            self.close_one(sock)

    def _answer(self, sock: socket.socket, line: bytes) -> None:
        self._send(sock, self._reply(self._count))
        self._count += 1
