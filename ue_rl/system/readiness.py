"""Which sockets have something to read, or room to write, whatever the number of their descriptors.

`select.select` refuses descriptors from 1,024 on, and a trainer that holds many engines, files and pages open has them.
"""

from __future__ import annotations

import selectors
import sys
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Waitable(Protocol):
    """A socket, or what stands for one."""

    def fileno(self) -> int:
        """The number of its descriptor, -1 once it is closed."""
        ...


_Socket = TypeVar("_Socket", bound=Waitable)


def ready_to_read(sockets: Sequence[_Socket], seconds: float) -> list[_Socket]:
    """Those of `sockets` that have something to read (data or the peer's close), once there is one or time is up.

    Args:
        seconds: how long to wait; 0.0 to look without waiting.

    Raises:
        ValueError: one of them is closed.
    """
    return _ready(sockets, selectors.EVENT_READ, seconds)


def ready_to_write(sockets: Sequence[_Socket], seconds: float) -> list[_Socket]:
    """As `ready_to_read`, for those that have room."""
    return _ready(sockets, selectors.EVENT_WRITE, seconds)


def _ready(sockets: Sequence[_Socket], event: int, seconds: float) -> list[_Socket]:
    # Windows has no poll; its select looks at no descriptor's number.
    selector: selectors.BaseSelector
    if sys.platform == "win32":
        selector = selectors.SelectSelector()
    else:
        selector = selectors.PollSelector()
    with selector:
        for each in sockets:
            selector.register(each.fileno(), event, each)
        return [key.data for key, _ in selector.select(seconds)]
