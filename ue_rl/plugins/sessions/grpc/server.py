"""GrpcServer: a pool's sessions on one port, with reflection and the health service, on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from grpc import aio
from grpc_health.v1 import health, health_pb2
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from ue_rl.bridges.serving.thread import LoopServer
from ue_rl.plugins.sessions.grpc.access import TokenGuard, credentials_of
from ue_rl.plugins.sessions.grpc.service import SessionService
from ue_rl.plugins.sessions.limits import MAX_CALLS, SERVICE, server_options
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.sessions_pb2_grpc import add_SessionsServicer_to_server
from ue_rl.protocol.access.server_access import ServerAccess, warn_if_open, warn_if_readable
from ue_rl.system.vanished import WATCHES, watch_port

_GRACE = 1.0  # seconds that requests under way have when the server closes


def serve(
    pool: SessionPool,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    stalled_after: float | None = None,
    access: ServerAccess | None = None,
    asks_every: float | None = None,
) -> LoopServer:
    """Serves the sessions of `pool` over gRPC from a thread of its own; returns when it listens.

    Args:
        port: 0 takes a free one; the server's `url` has it.
        stalled_after: seconds after which a client of Play that reads nothing has lost its session; None: as many as a
            session may be idle.
        access: asks each call for a token (metadata `authorization: Bearer TOKEN`), and speaks TLS; None: neither.
        asks_every: seconds between two questions for a client's sign of life, which has as long to answer. None: none
            are asked where the system finds out who has vanished, else one in 30 s with 5 minutes to answer.

    Raises:
        ConfigurationError: the token cannot stand in a header. OSError: the address cannot be listened on.
    """
    door = access or ServerAccess()
    guards = []
    if door.token is not None:
        guards = [TokenGuard(door.token)]
    if ":" in host:
        shown = f"[{host}]"
    else:
        shown = host

    async def run(ready: Callable[[str], None], stop: asyncio.Event) -> None:
        if not door.asks:
            warn_if_open(host)
        warn_if_readable(host, door)
        server = aio.server(
            options=server_options(WATCHES, asks_every), interceptors=guards, maximum_concurrent_rpcs=MAX_CALLS
        )
        if stalled_after is None:
            patience = pool.idle_timeout
        else:
            patience = stalled_after
        add_SessionsServicer_to_server(SessionService(pool, patience), server)
        healthy = health.aio.HealthServicer()  # type: ignore[attr-defined]
        add_HealthServicer_to_server(healthy, server)
        reflection.enable_server_reflection((SERVICE, "grpc.health.v1.Health", reflection.SERVICE_NAME), server)
        try:
            if door.tls is None:
                bound = server.add_insecure_port(f"{shown}:{port}")
            else:
                bound = server.add_secure_port(f"{shown}:{port}", credentials_of(door))
        except RuntimeError as error:
            raise OSError(f"cannot listen on {shown}:{port}: {error}") from error
        watch_port(bound)
        await server.start()
        for name in ("", SERVICE):
            await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
        ready(f"{'grpc' if door.tls is None else 'grpcs'}://{shown}:{bound}")
        await stop.wait()
        await healthy.enter_graceful_shutdown()
        await server.stop(_GRACE)

    return LoopServer(run, "grpc")
