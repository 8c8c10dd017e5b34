"""keep_alive(sock): a peer whose machine or cable has gone is found within a minute, also where nothing is sent."""

from __future__ import annotations

import contextlib
import socket

IDLE, EVERY, COUNT = 30, 10, 3  # seconds of silence until the system asks, between two questions; how many
UNHEARD = 60  # seconds that what was sent may stay without any sign that it has arrived

_OPTIONS = (
    ("TCP_KEEPIDLE", IDLE),  # Linux, Windows
    ("TCP_KEEPALIVE", IDLE),  # macOS
    ("TCP_KEEPINTVL", EVERY),
    ("TCP_KEEPCNT", COUNT),
    ("TCP_USER_TIMEOUT", UNHEARD * 1000),  # Linux
)


def keep_alive(sock: socket.socket) -> None:
    """Has the system end a TCP connection whose peer has gone after a minute: the next use fails. Never raises.

    A peer that is alive and says nothing is not affected: its system answers for it. One that does not read either is
    not affected for UNHEARD seconds. What the system does not have is left out.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
