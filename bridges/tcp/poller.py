"""SocketPoller: reads a session's sockets between two answers: no step pays for turns of the event loop."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Any

from ue_rl.bridges.tcp.connection import Connection
from ue_rl.system.spin import DESCHEDULED, LONGEST_SPIN, SERVER_SLICE_MS, SERVER_TURN

_yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: None)  # the trainer may wait for this core


class SocketPoller:
    """One session's.

    Args:
        loop: the server's. received: told of bytes of a connection. read: told that all sockets that were readable have
            been read. awaits: is all that was asked answered, and the session not over?
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        received: Callable[[Connection, memoryview], None],
        read: Callable[[], None],
        awaits: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._received = received
        self._read_all = read
        self._awaits = awaits
        self._poller: Any = None  # a select.poll, which Windows has not
        if sys.platform != "win32":
            self._poller = select.poll()
        self._by_fd: dict[int, Connection] = {}
        self._space = memoryview(bytearray(65_536))
        self._under_way = False
        self._answered_at = self._usual_think = 0.0
        self._no_spin_before = self._not_before = 0.0
        self._vain_waits = 0

    def add(self, connection: Connection) -> None:
        """One more to read."""
        if connection.encrypted:
            self._poller = None
        if sys.platform != "win32" and self._poller is not None:
            self._by_fd[connection.fd] = connection
            self._poller.register(connection.fd, select.POLLIN)

    def asked(self) -> None:
        """A request has come: notes how long the trainer has thought."""
        think = min(time.perf_counter() - self._answered_at, 2 * LONGEST_SPIN)  # a pause to learn counts little
        self._usual_think += (think - self._usual_think) / 8

    def answered(self) -> None:
        """All is answered: waits for the next request, unless that was in vain twice running."""
        self._answered_at = now = time.perf_counter()
        if self._poller is not None and not self._under_way and now > self._not_before:
            self._under_way = True
            self._loop.call_soon(self._attend, self._poller)

    def _attend(self, poller: Any) -> None:
        """Spins where the trainer usually thinks for less than LONGEST_SPIN, then blocks for one slice.

        Other connections and tasks get their turn after SERVER_TURN seconds.
        """
        now = time.perf_counter()
        turn_ends = now + SERVER_TURN
        while self._awaits():
            spins = max(self._usual_think, now - self._answered_at) < LONGEST_SPIN and now > self._no_spin_before
            if spins:
                slice_ms = 0
            else:
                slice_ms = SERVER_SLICE_MS
            ready = poller.poll(slice_ms)
            if ready:
                self._vain_waits = 0
                if not self._read(ready):
                    break
                now = time.perf_counter()
                if now > turn_ends:
                    self._loop.call_soon(self._attend, poller)
                    return
            elif spins:
                before = time.perf_counter()
                _yield_core()
                now = time.perf_counter()
                if now - before > DESCHEDULED:  # another process needs this core: leave it to that for a while
                    self._no_spin_before = now + 0.05
            else:
                self._vain_waits += 1
                if self._vain_waits > 1:
                    self._not_before = time.perf_counter() + 0.05
                break
        self._under_way = False

    def _read(self, ready: list[tuple[int, int]]) -> bool:
        """Takes what has come on these sockets; False where the event loop must see to it: an end, or an error."""
        if sys.platform == "win32":
            raise NotImplementedError
        for fd, _ in ready:
            connection = self._by_fd[fd]
            try:
                count = os.readv(fd, [self._space])
            except OSError:
                return False
            if not count or connection.gone:
                return False
            self._received(connection, self._space[:count])
        self._read_all()
        return True
