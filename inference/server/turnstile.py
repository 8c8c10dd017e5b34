"""Turnstile: connections that have not said hello are read a few at a time, so that a crowd of them delays nobody."""

from __future__ import annotations

import asyncio
import select
from collections import deque
from typing import Protocol

FEW = 8  # connections without a hello that are read as their bytes come
_EVERY, _AT_ONCE = 0.002, 8  # seconds; reads


class Waiter(Protocol):
    """A connection that waits to be read."""

    def let_in(self) -> None:
        """It is read from now on."""


class Turnstile:
    """Those that wait, by descriptor. A whole hello is one read, so its sender waits once.

    Where the system has epoll, those that have sent something come in, else each in its turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[int, Waiter] = {}
        self._order: deque[int] = deque()
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, fd: int, one: Waiter) -> None:
        """`one` is let in when its turn comes."""
        self._waiting[fd] = one
        if self._epoll is not None:
            self._epoll.register(fd, select.EPOLLIN)
        else:
            self._order.append(fd)
        if self._timer is None:
            self._timer = self._loop.call_later(_EVERY, self._let_some_in)

    def leave(self, fd: int) -> None:
        """It waits no more; before its descriptor is closed."""
        if self._waiting.pop(fd, None) is not None and self._epoll is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Nobody is let in any more."""
        for fd in [*self._waiting]:
            self.leave(fd)
        if self._epoll is not None:
            self._epoll.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _let_some_in(self) -> None:
        if self._epoll is not None:
            ready = [fd for fd, _ in self._epoll.poll(0, _AT_ONCE)]
        else:
            ready = [self._order.popleft() for _ in range(min(_AT_ONCE, len(self._order)))]
        for fd in ready:
            one = self._waiting.get(fd)
            self.leave(fd)
            if one is not None:
                one.let_in()
        self._timer = self._loop.call_later(_EVERY, self._let_some_in) if self._waiting else None
