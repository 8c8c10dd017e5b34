"""A server of the package mcp, of 1.x or 2.x: their low-level servers differ in how handlers are registered and called.

The low-level server is used because a tool's schema is there already (ue_rl/tools); the high-level ones make it anew,
of a function's signature.
"""

from __future__ import annotations

from typing import Any

import mcp.types
from mcp.server.lowlevel import Server

from ue_rl.bridges.mcp.playing import Players

types: Any = mcp.types
SESSION_ID = "mcp-session-id"  # header
MODERN = not hasattr(Server, "call_tool")  # 2.x, whose handlers are arguments


def make_server(name: str, players: Players) -> Any:
    """A server that answers with `players`."""
    if MODERN:
        return _of_2(name, players)
    server: Any = Server(name)

    def client() -> str:
        return _client(server.request_context.request)

    async def list_tools(_: Any) -> Any:
        return types.ServerResult(types.ListToolsResult.model_validate({"tools": players.tools()}))

    async def call_tool(asked: Any) -> Any:
        result = await players.call(client(), asked.params.name, asked.params.arguments or {})
        return types.ServerResult(types.CallToolResult.model_validate(result))

    async def list_resources(_: Any) -> Any:
        return types.ServerResult(types.ListResourcesResult.model_validate({"resources": players.resources()}))

    async def read_resource(asked: Any) -> Any:
        contents = [players.read(str(asked.params.uri))]
        return types.ServerResult(types.ReadResourceResult.model_validate({"contents": contents}))

    server.request_handlers |= {
        types.ListToolsRequest: list_tools, types.CallToolRequest: call_tool,
        types.ListResourcesRequest: list_resources, types.ReadResourceRequest: read_resource,
    }  # fmt: skip
    return server


def _of_2(name: str, players: Players) -> Any:
    async def list_tools(ctx: Any, params: Any) -> Any:
        return types.ListToolsResult.model_validate({"tools": players.tools()})

    async def call_tool(ctx: Any, params: Any) -> Any:
        return types.CallToolResult.model_validate(
            await players.call(_client(ctx.request), params.name, params.arguments or {})
        )

    async def list_resources(ctx: Any, params: Any) -> Any:
        return types.ListResourcesResult.model_validate({"resources": players.resources()})

    async def read_resource(ctx: Any, params: Any) -> Any:
        from mcp.shared.exceptions import MCPError

        try:
            return types.ReadResourceResult.model_validate({"contents": [players.read(str(params.uri))]})
        except LookupError as error:
            raise MCPError(-32002, str(error.args[0])) from error

    make: Any = Server
    return make(
        name, on_list_tools=list_tools, on_call_tool=call_tool, on_list_resources=list_resources,
        on_read_resource=read_resource,
    )  # fmt: skip


def _client(request: Any) -> str:
    """Who asks: the session that the package keeps for a client over HTTP; "" over stdio, where there is one."""
    return "" if request is None else str(request.headers.get(SESSION_ID, ""))
