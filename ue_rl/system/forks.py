"""What a forked child must not share with its parent: connections (notify_of_forks) and sockets (leave_to_parent).

Two processes on one connection would take each other's answers, without a word. And a socket is closed when the last
process closes it: when the parent was killed, a child that lives on would keep its port taken, and whoever it talked to
waiting. It costs nothing but in a fork.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """What a fork is told to, in the child."""

    def forked(self) -> None:
        """This is another process now than the one that made the object."""


_known: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def notify_of_forks(thing: ForkAware) -> None:
    """Has `thing.forked()` called in each child that this process forks while `thing` lives."""
    _known.add(thing)


class HasDescriptor(Protocol):
    """A socket, or what asyncio gives out in its place."""

    def fileno(self) -> int:
        """Its descriptor; -1: it is closed."""
        ...


_sockets: dict[int, int] = {}  # descriptor -> inode, which tells the socket from what has its number later


def leave_to_parent(sock: HasDescriptor) -> None:
    """Has this socket closed in each child that this process forks while it is open."""
    number = sock.fileno()
    if number >= 0 and sys.platform != "win32":
        _sockets[number] = os.fstat(number).st_ino


def _close_sockets() -> None:
    """In a child. The numbers go to the null device: who believes to have a socket there closes nothing else."""
    null = -1
    for number, inode in _sockets.items():
        with contextlib.suppress(OSError):
            facts = os.fstat(number)
            if inode and stat.S_ISSOCK(facts.st_mode) and facts.st_ino == inode:
                if null < 0:
                    null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, number, inheritable=False)
    if null >= 0:
        os.close(null)
    _sockets.clear()


def _tell() -> None:
    _close_sockets()
    for thing in list(_known):
        thing.forked()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_tell)
