"""Who listens on a port? Looked up in the system's tables: a connection to try it would be taken for a trainer's."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable

import psutil

# of <linux/netlink.h> and its sock_diag.h
_SOCK_DIAG = 4
_BY_FAMILY = 20
_DUMP = 0x301
_DONE = 3
_LISTEN = 10
_ANY = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1", "::ffff:0.0.0.0": "127.0.0.1"}


class Stranger(Exception):
    """A process that is not the engine's listens there, and did so before the engine was started."""


def address(port: int, keeper: int, started_at: float) -> str | None:
    """Where to dial the engine, such as "tcp://127.0.0.1:7801"; None while it does not listen.

    Args:
        port: that it was given. keeper: the process whose descendants are the engine's. started_at: of the keeper,
            seconds since the epoch.

    Raises:
        Stranger: with a sentence.
    """
    if not somebody_listens(port):
        return None
    tree = []
    with contextlib.suppress(psutil.Error):
        tree = psutil.Process(keeper).children(recursive=True)
    for process in tree:
        with contextlib.suppress(psutil.Error):
            found = _of(process.net_connections("tcp"), port)
            if found is not None:
                return _url(found, port)
    # in a container the engine is no descendant of ours, but whoever listens for it was started after us
    with contextlib.suppress(psutil.AccessDenied):
        for connection in psutil.net_connections("tcp"):
            found = _of([connection], port)
            if found is None:
                continue
            with contextlib.suppress(psutil.Error):
                owner = None
                if connection.pid:
                    owner = psutil.Process(connection.pid)
                if owner is not None and owner.create_time() < started_at - 1.0:
                    raise Stranger(f"process {owner.pid} ({owner.name()}) listens on port {port}")
            return _url(found, port)
    return None


def somebody_listens(port: int) -> bool:
    """A quick look; True where the system cannot be asked like this.

    Linux is asked over netlink for those who listen: /proc/net/tcp takes 5 to 10 ms, as it goes through all that the
    kernel has room for.
    """
    try:
        return any(port in _listened_to(family) for family in (socket.AF_INET, socket.AF_INET6))
    except (AttributeError, OSError):
        return True


def _listened_to(family: int) -> set[int]:
    found: set[int] = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as system:
        request = struct.pack("=BBxxI48x", family, socket.IPPROTO_TCP, 1 << _LISTEN)
        system.send(struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, _DUMP, 0, 0) + request)
        while True:
            data = system.recv(1 << 16)
            while data:
                size, kind = struct.unpack_from("=IH", data)
                if kind == _DONE:
                    return found
                if kind != _BY_FAMILY:
                    raise OSError("the kernel has no sock_diag")
                found.update(struct.unpack_from("!H", data, 20))
                data = data[size + 3 & ~3 :]


def _of(connections: Iterable[object], port: int) -> str | None:
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:  # type: ignore[attr-defined]
            return str(connection.laddr.ip)  # type: ignore[attr-defined]
    return None


def _url(ip: str, port: int) -> str:
    host = _ANY.get(ip, ip).removeprefix("::ffff:")  # an IPv4 address that a socket for both families shows
    with contextlib.suppress(OSError):
        socket.inet_pton(socket.AF_INET6, host)
        host = f"[{host}]"
    return f"tcp://{host}:{port}"
