"""Sessions over gRPC (docs/grpc.md): `serve(pool, host, port)`. Needs the extra `sessions`."""

from __future__ import annotations

from ue_rl.plugins.sessions.grpc.server import serve

__all__ = ["serve"]
