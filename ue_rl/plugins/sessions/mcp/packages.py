"""A server of the package mcp, of 1.x or 2.x: their low-level servers differ in how handlers are registered and called.

The low-level server is used because a tool's schema is there already (bridges/tools); the high-level ones make it anew,
of a function's signature.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Awaitable, Callable
from typing import Any

import mcp.types
from mcp.server.lowlevel import Server

from ue_rl.plugins.sessions.mcp.playing import Players

types: Any = mcp.types
SESSION_ID = "mcp-session-id"  # header
MODERN = not hasattr(Server, "call_tool")  # 2.x, whose handlers are arguments
_Answer = Callable[[str | None, Any], Awaitable[Any]]  # (client, or None where it has no session; params)


def make_server(name: str, players: Players) -> Any:
    """A server that answers with `players`."""

    async def list_tools(client: str | None, params: Any) -> Any:
        return types.ListToolsResult.model_validate({"tools": players.tools(client)})

    async def call_tool(client: str | None, params: Any) -> Any:
        given = params.arguments or {}
        return types.CallToolResult.model_validate(await players.call(client, params.name, given))

    async def list_resources(client: str | None, params: Any) -> Any:
        return types.ListResourcesResult.model_validate({"resources": players.resources()})

    async def read_resource(client: str | None, params: Any) -> Any:
        try:
            contents = [players.read(str(params.uri))]
        except LookupError as error:  # there is no such resource
            if not MODERN:
                raise
            from mcp.shared.exceptions import MCPError

            raise MCPError(types.INVALID_PARAMS, str(error.args[0])) from error
        return types.ReadResourceResult.model_validate({"contents": contents})

    make: Any = Server
    version = ""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # run from a checkout that is not installed
        version = importlib.metadata.version("ue_rl")
    if MODERN:
        return make(
            name,
            version=version,
            on_list_tools=_of_2(list_tools),
            on_call_tool=_of_2(call_tool),
            on_list_resources=_of_2(list_resources),
            on_read_resource=_of_2(read_resource),
        )
    server = make(name, version)
    server.request_handlers |= {
        types.ListToolsRequest: _of_1(server, list_tools),
        types.CallToolRequest: _of_1(server, call_tool),
        types.ListResourcesRequest: _of_1(server, list_resources),
        types.ReadResourceRequest: _of_1(server, read_resource),
    }
    return server


def _of_1(server: Any, answer: _Answer) -> Callable[[Any], Awaitable[Any]]:
    async def handler(asked: Any) -> Any:
        return types.ServerResult(await answer(_client(server.request_context.request), asked.params))

    return handler


def _of_2(answer: _Answer) -> Callable[[Any, Any], Awaitable[Any]]:
    async def handler(ctx: Any, params: Any) -> Any:
        return await answer(_client(ctx.request), params)

    return handler


def _client(request: Any) -> str | None:
    """Who asks: the session that the package keeps for a client over HTTP; "" over stdio, where there is one client.

    None: over HTTP without a session, as of MCP 2026-07-28.
    """
    if request is None:
        return ""
    name = request.headers.get(SESSION_ID)
    if name is None:
        return None
    return str(name)
