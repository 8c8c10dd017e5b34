"""A peer whose machine vanishes: its sockets hear nothing any more, and its system answers nothing."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator

import pytest

from ue_rl.system import vanished

_SO_ATTACH_FILTER = 26
_DROP_ALL = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))  # of BPF: return 0

can_vanish = pytest.mark.skipif(
    sys.platform != "linux" or not os.path.isdir("/proc/self/fd"), reason="only Linux can drop what comes to one socket"
)


def vanish(sock: socket.socket) -> None:
    """What comes to this socket is dropped before its system has seen it."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(_DROP_ALL)))


def vanish_from(port: int) -> int:
    """As `vanish`, of all sockets of this process that are connected to `port`; how many there were."""
    return _each(lambda sock: sock.getpeername()[1] == port, vanish)


def vanish_at(port: int) -> int:
    """As `vanish`, of all that have `port` themselves."""
    return _each(lambda sock: sock.getsockname()[1] == port, vanish)


def cut_from(port: int) -> int:
    """Ends all connections of this process to `port`, as a network does; how many there were."""
    return _each(lambda sock: sock.getpeername()[1] == port, lambda sock: sock.shutdown(socket.SHUT_RDWR))


def ask_each_second(port: int) -> int:
    """Sockets of this process that are connected to `port` ask for signs of life each second, where they ask at all."""
    return _each(lambda sock: sock.getpeername()[1] == port, _hurry)


def ask_each_second_at(port: int) -> int:
    """As `ask_each_second`, of all that have `port` themselves."""
    return _each(lambda sock: sock.getsockname()[1] == port, _hurry)


def give_up_after(milliseconds: int, port: int) -> int:
    """Has the system end what has `port` once something sent was unheard of for so long; how many sockets there are."""

    def hurry(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    return _each(lambda sock: sock.getsockname()[1] == port, hurry)


def _hurry(sock: socket.socket) -> None:
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT):
        sock.setsockopt(socket.IPPROTO_TCP, option, 1)


def _each(wanted: Callable[[socket.socket], bool], do: Callable[[socket.socket], None]) -> int:
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.stat(int(descriptor)).st_mode):  # what is none would keep its copy open
                continue
            with socket.socket(fileno=os.dup(int(descriptor))) as sock:
                if sock.family in (socket.AF_INET, socket.AF_INET6) and wanted(sock):
                    do(sock)
                    count += 1
        except OSError:
            continue
    return count


@pytest.fixture
def quick_watch() -> Iterator[vanished.PortWatch]:
    """Who vanishes is found out within two seconds.

    Not sooner: a system without room answers what comes within half a second of its last answer with silence.
    """
    vanished.PORTS.take_time(looks_every=0.1, unheard=1.5)
    yield vanished.PORTS
    vanished.PORTS.take_time()
