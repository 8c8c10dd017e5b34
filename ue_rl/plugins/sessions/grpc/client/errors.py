"""Which error a status of gRPC is."""

from __future__ import annotations

import os

from grpc import RpcError, StatusCode

from ue_rl.connections.base.address import split_place
from ue_rl.protocol.access.server_access import is_local
from ue_rl.system.errors import (
    AccessRefused,
    ConfigurationError,
    EngineDisconnected,
    EngineTimeout,
    EngineUnreachable,
    GameFailed,
    MalformedMessage,
    ResourceExhausted,
    SessionEnded,
    SessionNotFound,
    UeRlError,
    UnsupportedByEngine,
)

_NAMED: dict[StatusCode, type[UeRlError]] = {
    **{StatusCode[kind.code]: kind for kind in (GameFailed, ResourceExhausted, SessionEnded, SessionNotFound)},
    StatusCode.DEADLINE_EXCEEDED: EngineTimeout,
    StatusCode.INVALID_ARGUMENT: ConfigurationError,
    StatusCode.UNAUTHENTICATED: AccessRefused,
    StatusCode.UNAVAILABLE: EngineUnreachable,
    StatusCode.UNIMPLEMENTED: UnsupportedByEngine,
}
# What gRPC's core writes where TLS fails on this side: of each, what is meant, and what to do.
_NO_TLS = (
    ("certificate has expired", "the certificate has expired", "make the server a new one"),
    ("not yet valid", "the certificate is not valid yet", "is the clock of this machine right?"),
    ("Hostname Verification", "the certificate is of another host", "dial the name that stands in it"),
    ("not in peer certificate", "the certificate is of another host", "dial the name that stands in it"),
    ("self signed", "the certificate is signed by itself", "give who has signed it: grpcs://HOST:PORT?ca=FILE"),
    ("self-signed", "the certificate is signed by itself", "give who has signed it: grpcs://HOST:PORT?ca=FILE"),
    ("issuer certificate", "the certificate is signed by somebody whom this side does not know",
     "give who has signed it: grpcs://HOST:PORT?ca=FILE"),
    ("WRONG_VERSION_NUMBER", "the other side speaks no TLS", "dial grpc://, or start the server with --tls-cert"),
    ("handshake failed", "the handshake has failed", "do both sides accept the other's certificate?"),
    ("CERTIFICATE_VERIFY_FAILED", "the certificate is refused", "give who has signed it: grpcs://HOST:PORT?ca=FILE"),
)  # fmt: skip
_CLOSED = ("Socket closed", "Connection reset", "Broken pipe")
_OF_A_RUN: dict[type[UeRlError], type[UeRlError]] = {
    EngineUnreachable: EngineDisconnected,
    GameFailed: EngineDisconnected,
    SessionEnded: EngineDisconnected,
    SessionNotFound: EngineDisconnected,
    ConfigurationError: MalformedMessage,
}


def named(error: RpcError, address: str) -> UeRlError:
    """The error that a call's status stands for, with the server's own sentence."""
    code, details = error.code(), error.details() or "no reason was given"  # type: ignore[attr-defined]
    kind = _NAMED.get(code, EngineDisconnected)
    if kind is EngineTimeout:
        cure = _of_a_proxy(address)
        if not cure:
            cure = "is the game paused, or the deadline too short?"
        return EngineTimeout(f"{address} did not answer in time", cure=cure)
    if kind is AccessRefused:
        cure = "give the server's token: grpc://HOST:PORT?token-file=FILE"
        return AccessRefused(f"{address} lets nobody in without its token: {details}", field="token_file", cure=cure)
    if kind is EngineUnreachable:
        return _unreachable(address, details)
    return kind(details)


def _unreachable(address: str, details: str) -> UeRlError:
    for words, what, cure in _NO_TLS:
        if words in details:
            return AccessRefused(f"no TLS with {address}: {what}", got=details, cure=cure)
    if "ping timeout" in details:
        return EngineUnreachable(
            f"{address} no longer answers gRPC's pings: {details}",
            cure="is its process stopped, by a debugger say, or its machine asleep? No time-out of yours changes that",
        )
    cure = _of_a_proxy(address) or "start `ue-rl sessions` there"
    if any(words in details for words in _CLOSED):
        cure = "is it gRPC? Where it speaks TLS, dial grpcs://HOST:PORT, with cert=FILE where it asks for one"
    return EngineUnreachable(f"nobody serves sessions at {address}: {details}", cure=cure)


def _of_a_proxy(address: str) -> str | None:
    """What to do where gRPC asks a proxy for this address; None: it asks none."""
    host, _ = split_place(address)
    exempt = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""  # noqa: SIM112 - gRPC reads no other
    if is_local(host) or any(host.endswith(each.strip()) for each in exempt.split(",") if each.strip()):
        return None
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):  # in gRPC's order
        if os.environ.get(name):
            return f"the proxy of ${name} was asked for it: where it needs none, name {host} in $no_proxy"
    return None


def of_a_run(error: UeRlError) -> UeRlError:
    """The same once envs play: what ends a session ends the connection, which may be dialled again."""
    kind = _OF_A_RUN.get(type(error))
    if kind is None:
        return error
    return kind(error.message)
