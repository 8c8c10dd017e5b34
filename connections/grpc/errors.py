"""Which error a status of gRPC is."""

from __future__ import annotations

from grpc import RpcError, StatusCode

from ue_rl.errors import (
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
    StatusCode.UNAVAILABLE: EngineUnreachable,
    StatusCode.UNIMPLEMENTED: UnsupportedByEngine,
}
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
        return EngineTimeout(f"{address} did not answer in time", cure="is the game paused, or the deadline too short?")
    if kind is EngineUnreachable:
        return EngineUnreachable(f"nobody serves sessions at {address}: {details}", cure="start `ue-rl sessions` there")
    return kind(details)


def of_a_run(error: UeRlError) -> UeRlError:
    """The same once envs play: what ends a session ends the connection, which may be dialled again."""
    kind = _OF_A_RUN.get(type(error))
    return error if kind is None else kind(error.message)
