"""How TCP connections end: with peers whose machine has gone, and no others (notice_dead_peer, ask_for_life); at once
(reset_at_close).

A peer whose program is busy, stopped or slow has a system that answers for it, and stays.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys

# seconds of silence until the system asks, between two questions; how many
IDLE = 10
EVERY = 5
COUNT = 2
UNHEARD = 20  # seconds that what was sent may stay without any sign that it has arrived

OPTIONS = (
    ("TCP_KEEPIDLE", IDLE),  # Linux, Windows
    ("TCP_KEEPALIVE", IDLE),  # macOS
    ("TCP_KEEPINTVL", EVERY),
    ("TCP_KEEPCNT", COUNT),
)


def ask_for_life(sock: socket.socket) -> None:
    """Has the system ask an idle peer for a sign of life, and end the connection within 20 s if none comes.

    What a listening socket accepts inherits it. Never raises; what the system does not have is left out. A peer that
    vanishes while something is on the way to it is seen to by ue_rl.system.vanished.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in OPTIONS:
        _set(sock, name, value)


def notice_dead_peer(sock: socket.socket) -> None:
    """As `ask_for_life`; and what was sent may be without a sign of arrival for 20 s, too.

    The next use of the socket fails then. A peer that is alive and says nothing is not affected. One that reads nothing
    is, once its system has no room for more: servers watch instead, where the system can (ue_rl/system/vanished.py),
    which lifts this limit of theirs; who dials sends little, and waits no longer than its own deadlines.
    """
    ask_for_life(sock)
    _set(sock, "TCP_USER_TIMEOUT", UNHEARD * 1000)  # Linux


def _set(sock: socket.socket, name: str, value: int) -> None:
    if hasattr(socket, name):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def reset_at_close(sock: socket.socket) -> None:
    """close() of this socket resets the connection, as the end of a killed process may; what is unsent is lost."""
    with contextlib.suppress(OSError):
        two_numbers = "ii"
        if sys.platform == "win32":
            two_numbers = "hh"
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(two_numbers, 1, 0))
