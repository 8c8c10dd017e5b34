"""How TCP connections end: notice_dead_peer finds one that has gone without a word, reset_at_close leaves so."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys

IDLE, EVERY, COUNT = 30, 10, 3  # seconds of silence until the system asks, between two questions; how many
UNHEARD = 60  # seconds that what was sent may stay without any sign that it has arrived

_OPTIONS = (
    ("TCP_KEEPIDLE", IDLE),  # Linux, Windows
    ("TCP_KEEPALIVE", IDLE),  # macOS
    ("TCP_KEEPINTVL", EVERY),
    ("TCP_KEEPCNT", COUNT),
    ("TCP_USER_TIMEOUT", UNHEARD * 1000),  # Linux
)


def notice_dead_peer(sock: socket.socket) -> None:
    """Has the system end a TCP connection a minute after its peer has vanished: the next use fails. Never raises.

    A peer that is alive and says nothing is not affected: its system answers for it. One that does not read either is
    not affected for UNHEARD seconds. What the system does not have is left out.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def reset_at_close(sock: socket.socket) -> None:
    """close() of this socket resets the connection, as the end of a killed process may; what is unsent is lost."""
    with contextlib.suppress(OSError):
        sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
        )
