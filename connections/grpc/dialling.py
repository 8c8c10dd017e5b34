"""grpc://HOST:PORT: what such an address means."""

from __future__ import annotations

from typing import Any

from ue_rl.connections.grpc.connection import GrpcConnection
from ue_rl.errors import ConfigurationError
from ue_rl.security.guard import GUARDED


def dial(place: str, transport: str, **options: Any) -> GrpcConnection:
    """A connected transport; `place`: HOST:PORT; options: those of GrpcConnection, and what `connect` has beside them.

    Raises:
        ConfigurationError: a transport, a wiring, a token or a certificate. Also what GrpcConnection raises.
    """
    if transport != "auto" or options.pop("channel", "auto") != "auto":
        raise ConfigurationError("this address is gRPC", field="transport", expected="'auto'", got=transport)
    if any(options.pop(name, None) for name in GUARDED):
        what = "sessions over gRPC have neither tokens nor TLS of their own"
        raise ConfigurationError(what, field=", ".join(GUARDED), cure="put them behind a proxy that has")
    for name in ("compiled", "nul_terminated"):  # of text only
        options.pop(name, None)
    connection = GrpcConnection(place, **options)
    connection.connect()
    return connection
