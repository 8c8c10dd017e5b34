"""A server, and trainers that are asyncio streams."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from ue_rl.bridges import BridgeServer

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def hosting(hosted: Any, **options: Any) -> AsyncIterator[BridgeServer]:
    async with BridgeServer(hosted, port=0, **options) as server:
        yield server


async def dial(server: BridgeServer) -> Streams:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def line(streams: Streams) -> str:
    return (await asyncio.wait_for(streams[0].readline(), 20)).decode()


async def greeted(server: BridgeServer) -> Streams:
    trainer = await dial(server)
    assert (await line(trainer)).startswith("CONFIG")
    return trainer


async def say(streams: Streams, text: str) -> None:
    streams[1].write(text.encode())
    await streams[1].drain()


async def ask(streams: Streams, text: str) -> str:
    await say(streams, text)
    return await line(streams)


async def settle() -> None:
    """Lets the server see what has been sent: a few turns of the loop."""
    for _ in range(20):
        await asyncio.sleep(0.001)


async def closed(streams: Streams) -> None:
    streams[1].close()
    await streams[1].wait_closed()


async def is_closed_by_the_server(streams: Streams) -> bool:
    """Says why, where it may, and nothing else."""
    said = await asyncio.wait_for(streams[0].read(), 20)
    return said == b"" or (said[:6] == b"ERROR=" and said.index(b"\n") == len(said) - 1)


async def largest_turn(
    kind: Any, serving: AbstractAsyncContextManager[Any], monkeypatch: pytest.MonkeyPatch, crowd: int = 100
) -> int:
    """How many of a crowd that comes at once are accepted in one turn of the loop, at most; all of them are in the end.

    Args:
        kind: whose `connection_made` is called for each. serving: the server, which has a port, not begun yet.
    """
    made: list[int] = []
    turn, original = 0, kind.connection_made

    def connection_made(*given: Any) -> None:
        made.append(turn)
        original(*given)

    monkeypatch.setattr(kind, "connection_made", connection_made)
    async with serving as server:
        socks = [socket.socket() for _ in range(crowd)]
        for sock in socks:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", server.port))
        over = time.monotonic() + 20  # on a busy machine the system may take its time to connect them
        while len(made) < crowd and time.monotonic() < over:
            turn += 1
            await asyncio.sleep(0)
        for sock in socks:
            sock.close()
    assert len(made) == crowd
    return max(map(made.count, set(made)))
