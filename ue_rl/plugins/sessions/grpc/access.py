"""Who may call over gRPC: TLS by files, and a token in the metadata of each call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from ue_rl.protocol.access.server_access import ServerAccess
from ue_rl.protocol.access.visitors import Visitors


def credentials_of(access: ServerAccess) -> grpc.ServerCredentials:
    """What a secure port needs; `access` has found its files usable already."""
    cert, key, client_ca = access.tls_files
    assert cert is not None
    chain = Path(cert).read_bytes()
    if key is None:
        own = chain
    else:
        own = Path(key).read_bytes()
    known = None
    if client_ca is not None:
        known = Path(client_ca).read_bytes()
    found: grpc.ServerCredentials = grpc.ssl_server_credentials([(own, chain)], known, client_ca is not None)
    return found


class TokenGuard(aio.ServerInterceptor):
    """Refuses each call, those of reflection and health too, that does not bring the token.

    Raises:
        ConfigurationError: it cannot stand in a header.
    """

    def __init__(self, token: bytes) -> None:
        self._visitors = Visitors(local=False, token=token)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """See aio.ServerInterceptor."""
        sent = handler_call_details.invocation_metadata or ()
        shown = [value for name, value in sent if name == "authorization"]
        reason = self._visitors.unproved([value for value in shown if isinstance(value, str)])
        if reason is None:
            return await continuation(handler_call_details)

        async def refuse(request: Any, context: aio.ServicerContext[Any, Any]) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)

        # of streams both ways: such a one waits for no message of the client, whatever kind the call is
        return grpc.stream_stream_rpc_method_handler(refuse)
