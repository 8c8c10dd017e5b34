"""Which status of gRPC an error is."""

from __future__ import annotations

import logging

import grpc

from ue_rl.system.errors import ActionError, ConfigurationError, ProtocolError, SessionError, ToolError, UeRlError
from ue_rl.system.errors import UnsupportedByEngine as Unsupported

_log = logging.getLogger("ue_rl.plugins.sessions.grpc")


def status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    """The code and the sentence that the client gets.

    RESOURCE_EXHAUSTED, NOT_FOUND, ABORTED and INTERNAL are a SessionError's own code; what is wrong in a request is
    INVALID_ARGUMENT, what the game does not offer UNIMPLEMENTED.
    """
    if isinstance(error, SessionError):
        return grpc.StatusCode[error.code], str(error)
    if isinstance(error, ToolError):
        return grpc.StatusCode.INVALID_ARGUMENT, f"{error.code}: {error}"
    if isinstance(error, Unsupported):
        return grpc.StatusCode.UNIMPLEMENTED, str(error)
    if isinstance(error, (ActionError, ConfigurationError, ProtocolError)):
        return grpc.StatusCode.INVALID_ARGUMENT, str(error)
    if not isinstance(error, UeRlError):
        _log.error("a request failed", exc_info=error)
    return grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
