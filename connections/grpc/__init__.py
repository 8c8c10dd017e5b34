"""The client's side over gRPC (docs/grpc.md): sessions as envs, or one session in real time. Needs the extra `grpc`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
    from ue_rl.connections.grpc.client import SessionClient as SessionClient
    from ue_rl.connections.grpc.client import an_action as an_action
    from ue_rl.connections.grpc.client import numbers as numbers
    from ue_rl.connections.grpc.connection import GrpcConnection as GrpcConnection

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {"client": "SessionClient an_action numbers", "connection": "GrpcConnection"},
    optional=("GrpcConnection", "SessionClient", "an_action", "numbers"),
)
