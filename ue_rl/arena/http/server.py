"""ArenaServer: uvicorn with the routes of an arena, in an event loop or a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ue_rl.system.lazy import named_if_missing

if TYPE_CHECKING:
    from ue_rl.arena.arena import AgentArena


class ArenaServer:
    """Listens at the arena's host and port as soon as it is made.

    Attributes:
        url: where.

    Raises:
        OSError: the address cannot be listened on. MissingPackage: starlette or uvicorn is not installed.
    """

    def __init__(self, arena: AgentArena) -> None:
        with named_if_missing("the arena's server"):
            import uvicorn

            from ue_rl.arena.http.app import make_app
        self._socket = _listening(arena.host, arena.port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{arena.host}:{self.port}"
        config = uvicorn.Config(
            make_app(arena),
            log_level="warning",
            access_log=False,
            lifespan="off",
            limit_concurrency=2000,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    async def serve(self, ready: Callable[[str], None] | None = None) -> None:
        """Until `stop`; `ready` gets the URL."""
        if ready is not None:
            ready(self.url)
        try:
            await self._server.serve([self._socket])
        finally:
            self._socket.close()

    def start(self) -> None:
        """Serves in a thread."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self.serve()), name="ue_rl-arena", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it; idempotent, from any thread."""
        self._server.should_exit = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(10.0)


def _listening(host: str, port: int) -> socket.socket:
    """asyncio switches Nagle's algorithm off only where a socket says that it is TCP: 40 ms an answer otherwise."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(512)
    except OSError:
        listening.close()
        raise
    return listening
