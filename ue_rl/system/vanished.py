"""watch_port: ends connections to a server whose peer's machine has vanished, and no others.

Signs of life of HTTP/2 and WebSockets come from the peer's program: one that computes for half a minute without giving
way to its event loop would lose its connection. Keepalive's come from the peer's system, however busy the program is.
They fail in one case: while something is on the way to the peer, Linux does not ask, but sends it again for a quarter
of an hour. TCP_USER_TIMEOUT would end that; it also ends a peer that is alive and has read nothing for as long. So the
counters of the system are looked at here: a peer that owes an answer and gives no sign for 15 seconds has vanished.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

from ue_rl.system.forks import leave_to_parent, notify_of_forks
from ue_rl.system.keepalive import ask_for_life

LOOKS_EVERY = 5.0  # seconds
UNHEARD = 15.0  # seconds; with the pause between two looks: within 20

_log = logging.getLogger(__name__)
_SOCKETS = "/proc/self/fd"
_TCP_INFO: int | None
if sys.platform == "linux":
    _TCP_INFO = getattr(socket, "TCP_INFO", None)
else:
    _TCP_INFO = None
WATCHES = _TCP_INFO is not None and os.path.isdir(_SOCKETS)  # has this system what is looked at here?
# Of struct tcp_info in linux/tcp.h: tcpi_probes, the questions that a peer without room has not answered; tcpi_unacked,
# the segments that are under way; tcpi_last_data_sent and tcpi_last_ack_recv, milliseconds since something was sent,
# also once more, and since the peer's last sign of life.
_INFO = struct.Struct("=3xB20xI16xI8xI")
# states in which something may be sent
_ESTABLISHED = 1
_CLOSE_WAIT = 8


def watch_port(port: int) -> None:
    """Watches over all connections that this process has accepted at `port`, until none is left and nobody listens.

    Call it once the port is listened on, and before anybody is accepted. Connections are found by their port: a server
    of gRPC shows its sockets to nobody. Where the system has no such counters (only Linux has) keepalive is asked for
    where the caller has the socket (`ask_for_life`), and here nothing is done.
    """
    if WATCHES:
        PORTS.add(port)


class PortWatch:
    """Looks from time to time, in a thread that lasts as long as there is something to look at."""

    def __init__(self) -> None:
        self._looks_every = LOOKS_EVERY
        self._unheard = UNHEARD
        self.forked()

    @property
    def ports(self) -> frozenset[int]:
        """The ports that are watched."""
        return frozenset(self._ports)

    def take_time(self, looks_every: float = LOOKS_EVERY, unheard: float = UNHEARD) -> None:
        """Changes how often it looks and after how long a silence a peer has vanished, in seconds, from now on."""
        with self._lock:
            self._looks_every = looks_every
            self._unheard = unheard
        self._changed.set()

    def forked(self) -> None:
        """In the child, which has no other thread; what its parent listens at is not its own."""
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._ports: set[int] = set()
        self._thread: threading.Thread | None = None
        self._owing: dict[str, float] = {}  # name of a socket: since when its peer owes an answer

    def add(self, port: int) -> None:
        """Watches over this port, too."""
        with self._lock:
            for _, sock in _sockets({port}):
                ask_for_life(sock)
            self._ports.add(port)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ue_rl-vanished", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            while self._changed.wait(self._looks_every):
                self._changed.clear()
            with self._lock:
                self.look(time.monotonic())
                if not self._ports:
                    self._thread = None
                    return

    def look(self, now: float) -> None:
        """Ends what has vanished; forgets the ports that are no longer used."""
        if sys.platform != "linux":
            raise NotImplementedError
        used: set[int] = set()
        owing: dict[str, float] = {}
        for name, sock in _sockets(self._ports):
            used.add(sock.getsockname()[1])
            # from here on these looks find it out, which spare a peer that is alive and has no room
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)
            heard = owes_since_it_was_heard(sock)
            if heard is None:
                continue
            owing[name] = max(self._owing.get(name, now), now - heard)
            if now - owing[name] >= self._unheard:
                _log.warning("%s has vanished: its system has not answered for %.0f s", _peer(sock), self._unheard)
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # its owner sees an end
        self._owing = owing
        self._ports &= used


PORTS = PortWatch()  # the one of this process
notify_of_forks(PORTS)


def _sockets(ports: set[int]) -> Iterator[tuple[str, socket.socket]]:
    """This process's TCP sockets whose own port is one of these, each by a descriptor of its own, and its name."""
    for descriptor in os.listdir(_SOCKETS):
        try:
            name = os.readlink(f"{_SOCKETS}/{descriptor}")
            if not name.startswith("socket:"):
                continue
            copy = os.dup(int(descriptor))
        except OSError:  # closed meanwhile
            continue
        try:
            sock = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
            continue
        with sock:
            leave_to_parent(sock)  # a fork that comes now would hold it open in the child
            if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
                continue
            with contextlib.suppress(OSError):
                if sock.getsockname()[1] in ports:
                    yield name, sock


def owes_since_it_was_heard(sock: socket.socket) -> float | None:
    """Seconds since the peer's last sign of life, where it owes one; None where it owes nothing."""
    assert _TCP_INFO is not None
    told = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256)
    if len(told) < _INFO.size or told[0] not in (_ESTABLISHED, _CLOSE_WAIT):
        return None
    probes, under_way, sent, heard = _INFO.unpack_from(told)
    # A peer without room answers whatever is sent once more, at once. It is sent ever more rarely: what counts is an
    # answer to the last of it, not the time.
    return heard / 1000 if probes or (under_way and sent < heard) else None


def _peer(sock: socket.socket) -> str:
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return "a peer"
    return f"{host}:{port}"
