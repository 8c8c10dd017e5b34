"""Sessions over HTTP are served at each address that a name has."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest

from tests.plugins.sessions.game import Drift
from ue_rl.plugins.sessions.openenv import serve
from ue_rl.plugins.sessions.realtime import SessionPool

V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
V4_AGAIN = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0))


def test_sessions_over_http_answer_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = socket.getaddrinfo

    def answer(host: Any, *more: Any, **how: Any) -> Any:
        return [V4, V4_AGAIN] if host == "localhost" else ask(host, *more, **how)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with SessionPool(Drift, max_sessions=2, workers=1) as pool, serve(pool, "localhost") as server:
        port = int(server.url.rpartition(":")[2])
        for address in ("127.0.0.1", "127.0.0.2"):
            assert httpx.get(f"http://{address}:{port}/health", trust_env=False).json() == {"status": "healthy"}
