"""`serve` (streamable HTTP) and `serve_stdio`: a pool's sessions for clients of MCP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection
from typing import Any

import anyio
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route

from ue_rl.bridges.serving.http import serve_app
from ue_rl.bridges.serving.thread import LoopServer
from ue_rl.plugins.sessions.mcp.packages import SESSION_ID, make_server
from ue_rl.plugins.sessions.mcp.playing import Players
from ue_rl.plugins.sessions.mcp.standard_streams import StandardStreams
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.protocol.access.server_access import ServerAccess

_IDLE = 1800.0  # seconds after which the package forgets a client that asks for nothing; 1.x remembers them for ever


def serve(
    pool: SessionPool,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    access: ServerAccess | None = None,
    allow_hosts: Collection[str] = (),
) -> LoopServer:
    """Serves the sessions of `pool` to clients of MCP over streamable HTTP; returns when it listens.

    Args:
        port: 0 takes a free one; the server's `url` has it, with the path /mcp.
        access: asks for a token (Authorization: Bearer), and speaks TLS; None: neither.
        allow_hosts: names of pages and proxies that may ask, beside those of this machine (docs/security.md).

    Raises:
        OSError: the address cannot be listened on. ConfigurationError: the game has a tool of a name that is taken,
            or the token or a name cannot be used.
    """
    app = application(pool, local=False)  # `serve_app` looks at Host and Origin, for each server alike
    return serve_app(app, host, port, "mcp", "/mcp", access=access, allow_hosts=allow_hosts)


def serve_stdio(pool: SessionPool, streams: StandardStreams | None = None) -> None:
    """Speaks MCP on standard input and output until the input ends. What the game prints goes to standard error.

    Args:
        streams: made before the game was imported, which may print; None: made here, and closed at the end.
    """
    if streams is None:
        with StandardStreams() as made:
            serve_stdio(pool, made)
        return
    players = Players(pool)

    async def main() -> None:
        server = make_server(pool.name, players)
        async with stdio_server(streams.input, streams.output) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        await players.close()

    anyio.run(main)


def application(pool: SessionPool, local: bool = True) -> Starlette:
    """The application, for a server of one's own.

    Args:
        local: it serves this machine alone: a page in a browser must not reach it under another name.

    Raises:
        ConfigurationError: the game has a tool of a name that is taken.
    """
    players = Players(pool)
    names = [f"{name}:*" for name in ("127.0.0.1", "localhost", "[::1]")]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=local, allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names]
    )
    # Not sooner than the game's session ends: a client that is there hears of that, and may begin another one.
    patience = max(_IDLE, 2 * pool.idle_timeout)
    manager = StreamableHTTPSessionManager(
        make_server(pool.name, players), json_response=True, security_settings=security, session_idle_timeout=patience
    )

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield
        await players.close()

    return Starlette(routes=[Route("/mcp", _Endpoint(manager, players))], lifespan=lifespan)


class _Endpoint:
    """An ASGI application: what the package's session manager answers."""

    def __init__(self, manager: StreamableHTTPSessionManager, players: Players) -> None:
        self._manager = manager
        self._players = players

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        refused = False

        async def answer_with(message: Any) -> None:
            nonlocal refused
            refused = refused or message.get("status", 0) >= 400
            await send(message)

        await self._manager.handle_request(scope, receive, answer_with)
        if scope["method"] == "DELETE" and not refused:
            await self._players.leave(headers.get(SESSION_ID, ""))
