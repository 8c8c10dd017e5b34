"""listen: an asyncio server on one port, whose loop stays free for those who are served while a crowd connects."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from typing import Any

from ue_rl.system.forks import leave_to_parent
from ue_rl.system.vanished import watch_port

_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # a family that this machine has not, though a name has it
_TRIES = 10  # ports, of which another program may have one on the second address
_ACCEPTS = 2  # a turn of the loop; each costs about 0.1 ms


async def listen(
    make: Callable[[], asyncio.Protocol], host: str, port: int, backlog: int
) -> tuple[asyncio.Server, int]:
    """A listening server and its port; a name with an IPv4 and an IPv6 address has the same port on both.

    Args:
        backlog: connections that may wait to be accepted. A turn of the loop accepts a few of them: in a crowd of
            hundreds, who is served must not wait for all.

    Raises:
        OSError: the address cannot be listened on.
    """
    server = await _one_port(make, host, port)
    for sock in server.sockets:
        leave_to_parent(sock)
        with sock.dup() as same:
            same.listen(backlog)
    listened = _ports(server)[0]
    watch_port(listened)
    return server, listened


async def _one_port(make: Callable[[], asyncio.Protocol], host: str, port: int) -> asyncio.Server:
    """A server that has the same port on each address of the name.

    Raises:
        OSError: the address cannot be listened on, or each port that was free on one address was taken on another.
    """
    loop = asyncio.get_running_loop()
    for tries_left in reversed(range(_TRIES)):
        server = await loop.create_server(make, host, port, backlog=_ACCEPTS)  # which is how many a turn accepts
        ports = _ports(server)
        if len(set(ports)) == 1:
            break
        server.close()  # each address took a free one: all try the first's
        try:
            server = await loop.create_server(make, host, ports[0], backlog=_ACCEPTS)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not tries_left:
                raise
        else:
            break
    return server


def _ports(server: asyncio.Server) -> list[int]:
    return [int(sock.getsockname()[1]) for sock in server.sockets]


def listeners(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Listening sockets on one port of each address of `host`, as `listen` has them, for servers that take sockets.

    Raises:
        OSError: the address cannot be listened on.
    """
    wanted_host = None
    if host:
        wanted_host = host
    found = socket.getaddrinfo(wanted_host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses: list[tuple[int, Any]] = list(dict.fromkeys((each[0], each[4]) for each in found))
    if port or len(addresses) == 1:
        return _on_all(addresses, port, backlog)
    for _ in range(_TRIES):
        with socket.create_server(addresses[0][1], family=addresses[0][0]) as free:
            chosen = int(free.getsockname()[1])
        try:
            return _on_all(addresses, chosen, backlog)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return _on_all(addresses[:1], 0, backlog)


def _on_all(addresses: list[tuple[int, Any]], port: int, backlog: int) -> list[socket.socket]:
    """Raises OSError: on one of them it cannot, or this machine has none of them."""
    with contextlib.ExitStack() as undone:
        sockets = []
        absent: OSError | None = None
        for family, (where, _, *scope) in addresses:
            try:
                sock = socket.create_server((where, port, *scope), family=family, backlog=backlog)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
            else:
                sockets.append(undone.enter_context(sock))
        if absent is not None and not sockets:
            raise absent
        undone.pop_all()
    return sockets
