"""find_dead_peers: a TCP socket whose other machine has gone (cable pulled, power lost) fails within about a minute."""

from __future__ import annotations

import contextlib
import socket

_SECONDS = 60
# (option, value) where the system has it: silence until the first question, then three questions; unread data likewise.
_OPTIONS = (
    ("TCP_KEEPIDLE", 30), ("TCP_KEEPALIVE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", _SECONDS * 1000),
)  # fmt: skip


def find_dead_peers(sock: socket.socket) -> None:
    """Makes the system ask a silent peer whether it is there, and give up on one that takes no data; never raises.

    A peer that is alive and says nothing is no dead peer: its system answers for it.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
