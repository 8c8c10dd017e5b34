"""An ASGI application on a port, by uvicorn, in a thread of its own, and who may ask it."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Collection
from typing import Any

import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from ue_rl.bridges.serving.answer import JsonAnswer
from ue_rl.bridges.serving.thread import LoopServer
from ue_rl.protocol.access.server_access import Refusals, ServerAccess, is_local, warn_if_open, warn_if_readable
from ue_rl.protocol.access.visitors import Refusal, Visitors
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.forks import leave_to_parent
from ue_rl.system.keepalive import ask_for_life
from ue_rl.system.listening import listeners
from ue_rl.system.vanished import watch_port

_log = logging.getLogger("ue_rl.bridges.serving")

MOST_CONNECTIONS = 4096
_MESSAGE = 16 * 2**20  # bytes of one WebSocket message
# Seconds that a connection may be without a request. Of uvicorn's five a client that computes for as long between two
# requests would meet the end: it sends into a connection that is just being closed.
_BETWEEN = 90


def serve_app(
    app: Any,
    host: str,
    port: int,
    name: str,
    path: str = "",
    connections: int = MOST_CONNECTIONS,
    access: ServerAccess | None = None,
    allow_hosts: Collection[str] = (),
) -> LoopServer:
    """Serves `app`, of ASGI; returns when it listens.

    Args:
        port: 0 takes a free one. name: of the thread. path: behind the address in `url`.
        connections: how many at once; more are answered 503.
        access: asks for a token (Authorization: Bearer), and speaks TLS; None: neither.
        allow_hosts: names of pages and proxies that may ask, beside those of this machine (docs/security.md).

    Raises:
        ConfigurationError: a name that is none, or a token that cannot stand in a header.
        OSError: the address cannot be listened on.
    """
    if isinstance(allow_hosts, str):
        raise ConfigurationError("not a list of names", field="allow_hosts", got=allow_hosts)
    if not access:
        access = ServerAccess()
    sockets: list[socket.socket] = [_Listener(fileno=made.detach()) for made in listeners(host, port, 128)]
    for listener in sockets:
        leave_to_parent(listener)
    try:
        # what counts is where it listens: a name may stand for a loopback address
        local = all(is_local(str(listener.getsockname()[0])) for listener in sockets)
        if local and not is_local(host):
            named = [host]
        else:
            named = []
        visitors = Visitors(local, [*named, *allow_hosts], access.token)
    except BaseException:
        for listener in sockets:
            listener.close()
        raise
    if not access.asks and not local:
        warn_if_open(host)
    if not local:
        warn_if_readable(host, access)
    for listener in sockets:
        # what it accepts inherits this; asyncio sets it itself only where a socket says that its protocol is TCP
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_life(listener)
    bound = int(sockets[0].getsockname()[1])
    watch_port(bound)
    if ":" in host:
        shown = f"[{host}]"
    else:
        shown = host
    scheme = "https"
    if access.tls is None:
        scheme = "http"
    url = f"{scheme}://{shown}:{bound}{path}"
    # No pings: a client that computes without giving way to its event loop does not answer them, and would be closed.
    # The system finds out who has vanished (`ask_for_life`, `watch_port`).
    config = uvicorn.Config(
        _AsgiGate(readable_by_pages(app, allow_hosts), visitors, name),
        log_config=None,
        access_log=False,
        lifespan="on",
        ws_max_size=_MESSAGE,
        ws_ping_interval=None,
        ws_ping_timeout=None,
        timeout_graceful_shutdown=1,
        server_header=False,
        limit_concurrency=connections,
        timeout_keep_alive=_BETWEEN,
    )
    config.load()
    logging.getLogger("uvicorn.error").addFilter(_of_stopping)
    config.ssl = access.tls

    async def serve(ready: Callable[[str], None], stop: asyncio.Event) -> None:
        server = _Server(config)
        task = asyncio.ensure_future(server.serve(sockets=sockets))
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        if not task.done():
            ready(url)
            await asyncio.wait([task, asyncio.ensure_future(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await task

    return LoopServer(serve, name)


class _OfStopping(logging.Filter):
    """Leaves out what uvicorn says, with a traceback each, of requests that a stop breaks off: nothing is wrong."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = None
        if record.exc_info:
            error = record.exc_info[1]
        return not (isinstance(error, asyncio.CancelledError) or str(record.msg).startswith("Cancel "))


_of_stopping = _OfStopping()


class _Listener(socket.socket):
    """What it accepts is closed in forked children."""

    def accept(self) -> tuple[socket.socket, Any]:
        accepted = super().accept()
        leave_to_parent(accepted[0])
        return accepted


class _Server(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        """Signals are the main thread's."""


class _AsgiGate:
    """An ASGI application: asks the one behind it only what `visitors` let through."""

    def __init__(self, app: Any, visitors: Visitors, name: str) -> None:
        self._app = app
        self._visitors = visitors
        self._refusals = Refusals(_log, f"a request to {name}")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
            return
        self._refusals.log(_peer(scope), refusal.reason)
        if scope["type"] == "websocket":
            # Before it was accepted: 403. An answer with a reason, which ASGI has too, makes uvicorn 0.54 log an error
            # each time: a page could fill the disk.
            await send({"type": "websocket.close", "code": 1008})
            return
        proof = {}
        if refusal.status == 401:
            proof = {"WWW-Authenticate": "Bearer"}
        # what is left of a body that nobody reads would be taken for the next request
        answer: Response = JsonAnswer({"error": refusal.reason}, refusal.status, {"Connection": "close", **proof})
        await answer(scope, receive, send)

    def _refusal(self, scope: Any) -> Refusal | None:
        if scope["type"] not in ("http", "websocket"):
            return None
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        return self._visitors.refusal(scope.get("method", "GET"), headers)


def _peer(scope: Any) -> str:
    client = scope.get("client")
    if client:
        return f"{client[0]}:{client[1]}"
    return "?"


def readable_by_pages(app: Any, names: Collection[str]) -> Any:
    """`app`, whose answers a browser shows to pages of `names`, which it keeps from all others."""
    if not names:
        return app
    either = "|".join(re.escape(name) for name in names)
    return CORSMiddleware(
        app,
        allow_origin_regex=rf"(?i)[a-z][a-z0-9+.-]*://({either})(:[0-9]+)?",
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["mcp-session-id"],
    )
