"""A server over HTTP that is stopped in the middle of requests: it ends, and nothing looks like a failure."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extras that serve over HTTP are not installed")

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from ue_rl.bridges.serving.http import serve_app


@pytest.mark.parametrize(
    "middle",
    [
        "a handler that thinks",
        pytest.param("a body that is half sent", marks=pytest.mark.exhaustive),
        pytest.param("an answer that goes on", marks=pytest.mark.exhaustive),
    ],
)
def test_a_stop_breaks_off_requests_without_a_traceback(middle: str, caplog: pytest.LogCaptureFixture) -> None:
    begun = threading.Event()

    async def read(request: Any) -> Any:
        begun.set()
        await request.body()

    async def think(request: Any) -> Any:
        begun.set()
        await asyncio.sleep(3600)
        return PlainTextResponse("")

    async def go_on(request: Any) -> Any:
        async def parts() -> Any:
            yield "a"
            begun.set()
            await asyncio.sleep(3600)

        return StreamingResponse(parts())

    handler = {"a body that is half sent": read, "a handler that thinks": think}.get(middle, go_on)
    caplog.set_level(logging.INFO)
    server = serve_app(Starlette(routes=[Route("/", handler, methods=["POST"])]), "127.0.0.1", 0, "test")
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n")
        client.sendall(b'Content-Length: 9\r\n\r\n{"a"' if handler is read else b"Content-Length: 2\r\n\r\n{}")
        assert begun.wait(30)
        server.close()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
