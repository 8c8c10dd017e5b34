"""Sessions for clients of MCP (docs/mcp.md): `serve(pool, host, port)`, `serve_stdio(pool)`.

Needs the extra `sessions`.
"""

from __future__ import annotations

from ue_rl.plugins.sessions.mcp.server import application, serve, serve_stdio
from ue_rl.plugins.sessions.mcp.standard_streams import StandardStreams

__all__ = ["StandardStreams", "application", "serve", "serve_stdio"]
