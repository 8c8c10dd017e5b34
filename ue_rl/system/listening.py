"""listen: an asyncio server on one port, whose loop stays free for those who are served while a crowd connects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ue_rl.system.forks import leave_to_parent
from ue_rl.system.vanished import watch_port

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
    loop = asyncio.get_running_loop()
    server = await loop.create_server(make, host, port, backlog=_ACCEPTS)  # which is how many a turn accepts
    ports = [int(sock.getsockname()[1]) for sock in server.sockets]
    if len(set(ports)) > 1:  # each took a free one
        server.close()
        server = await loop.create_server(make, host, ports[0], backlog=_ACCEPTS)
    for sock in server.sockets:
        leave_to_parent(sock)
        with sock.dup() as same:
            same.listen(backlog)
    watch_port(ports[0])
    return server, ports[0]
