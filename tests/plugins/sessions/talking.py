"""A client of the package mcp, 1.x or 2.x, over streamable HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


@asynccontextmanager
async def mcp_session(url: str) -> AsyncIterator[Any]:
    """An initialised ClientSession."""
    from mcp import ClientSession

    try:
        from mcp.client.streamable_http import streamable_http_client as connect
    except ImportError:
        from mcp.client.streamable_http import streamablehttp_client as connect
    async with connect(url) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        yield session


def plain(result: Any) -> tuple[dict[str, Any], bool]:
    """(what a tool has answered, is it an error)."""
    told = result.model_dump(by_alias=True)
    return told["structuredContent"], told["isError"]


@asynccontextmanager
async def mcp_client(url: str) -> AsyncIterator[Call]:
    """call(tool, arguments): its answer, which is no error."""
    async with mcp_session(url) as session:

        async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            answer, wrong = plain(await session.call_tool(name, arguments))
            assert not wrong, answer
            return answer

        yield call
