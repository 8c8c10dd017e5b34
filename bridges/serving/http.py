"""An ASGI application on a port, by uvicorn, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from ue_rl.bridges.serving.thread import LoopServer
from ue_rl.security.doors import warn_if_open

if TYPE_CHECKING:
    from starlette.applications import Starlette

MOST_CONNECTIONS = 4096
_MESSAGE = 16 * 2**20  # bytes of one WebSocket message
# seconds between signs of life, and for the answer: a client that is gone without a word loses its session
_PING = 10.0


def serve_app(
    app: Starlette, host: str, port: int, name: str, path: str = "", connections: int = MOST_CONNECTIONS
) -> LoopServer:
    """Serves `app`; returns when it listens.

    Args:
        port: 0 takes a free one. name: of the thread. path: behind the address in `url`.
        connections: how many at once; more are answered 503.

    Raises:
        OSError: the address cannot be listened on.
    """
    warn_if_open(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=128)
    # what it accepts inherits this; asyncio sets it itself only where a socket says that its protocol is TCP
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}{path}"
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", ws_max_size=_MESSAGE, ws_ping_interval=_PING,
        ws_ping_timeout=_PING, timeout_graceful_shutdown=1, server_header=False, limit_concurrency=connections,
    )  # fmt: skip

    async def serve(ready: Callable[[str], None], stop: asyncio.Event) -> None:
        server = _Server(config)
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        if not task.done():
            ready(url)
            await asyncio.wait([task, asyncio.ensure_future(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await task

    return LoopServer(serve, name)


class _Server(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        """Signals are the main thread's."""
