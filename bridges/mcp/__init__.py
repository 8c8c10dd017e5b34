"""Sessions for clients of MCP (docs/mcp.md): `serve(pool, host, port)`, `serve_stdio(pool)`. Needs the extra `mcp`."""

from __future__ import annotations

from ue_rl.bridges.mcp.server import application, serve, serve_stdio

__all__ = ["application", "serve", "serve_stdio"]
