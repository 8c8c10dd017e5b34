"""notify_of_forks(thing): a forked child learns that a connection is its parent's.

Two processes on one connection would take each other's answers, without a word. It costs nothing but in a fork.
"""

from __future__ import annotations

import os
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


def _tell() -> None:
    for thing in list(_known):
        thing.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)
