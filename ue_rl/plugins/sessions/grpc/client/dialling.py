"""grpc://HOST:PORT and grpcs://HOST:PORT, the same within TLS: what such an address means."""

from __future__ import annotations

from typing import Any

from ue_rl.connections.base.address import refuse_given
from ue_rl.plugins.sessions.grpc.client.access import Access
from ue_rl.plugins.sessions.grpc.client.connection import GrpcConnection
from ue_rl.protocol.access.client_access import GUARDED
from ue_rl.system.errors import ConfigurationError


def dial(place: str, transport: str, **options: Any) -> GrpcConnection:
    """A connected transport; `place`: HOST:PORT; options: those of GrpcConnection, and what `connect` has beside them.

    Raises:
        ConfigurationError: a transport or a wiring, or a file that cannot be used. Also what GrpcConnection raises.
    """
    return _dialled(place, transport, False, options)


def dial_tls(place: str, transport: str, **options: Any) -> GrpcConnection:
    """The same within TLS, also where no certificate is named: then the system's list counts."""
    return _dialled(place, transport, True, options)


def _dialled(place: str, transport: str, tls: bool, options: dict[str, Any]) -> GrpcConnection:
    if transport != "auto" or options.pop("channel", "auto") != "auto":
        raise ConfigurationError("this address is gRPC", field="transport", expected="'auto'", got=transport)
    files = {name: options.pop(name) for name in GUARDED if name in options}
    refuse_given(options, ("compiled", "nul_terminated"), "gRPC carries no text")
    connection = GrpcConnection(place, access=Access.of(tls, **files), **options)
    connection.connect()
    return connection
