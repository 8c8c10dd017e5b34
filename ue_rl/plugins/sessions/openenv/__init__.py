"""Sessions for clients of OpenEnv (docs/openenv.md): `serve(pool, host, port)`. Needs the extra `sessions`."""

from __future__ import annotations

from ue_rl.plugins.sessions.openenv.app import application, serve

__all__ = ["application", "serve"]
