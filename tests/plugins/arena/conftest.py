"""An arena that listens on loopback, and a client that needs no package."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pydantic", reason="the extra arena is not installed")
pytest.importorskip("starlette", reason="the extra arena is not installed")
pytest.importorskip("uvicorn", reason="the extra arena is not installed")

from ue_rl.plugins.arena import AgentArena


class Client:
    """Posts and gets; the status and the JSON of the answer."""

    def __init__(self, arena: AgentArena) -> None:
        self.arena = arena
        arena.start()
        self.port = arena.port

    def __call__(self, path: str, body: Any = None, headers: dict[str, str] = {}) -> tuple[int, Any]:  # noqa: B006
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            sent = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request("GET" if body is None else "POST", path, sent, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    started: list[Client] = []

    def make(arena: AgentArena | None = None, **options: Any) -> Client:
        started.append(Client(AgentArena.connect(port=0, **options) if arena is None else arena))
        return started[-1]

    yield make
    for each in started:
        each.arena.stop()
