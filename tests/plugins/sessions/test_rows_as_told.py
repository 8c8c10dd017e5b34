"""Every row of every field is what the game sent for it in this request, with sessions as envs."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.harness.asker import judge
from tests.harness.telling import TellingArrays
from ue_rl.connections.dialling import open_transport
from ue_rl.plugins.sessions.grpc import serve
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.realtime.engine import serve as serve_sessions


@pytest.mark.parametrize("carrier", ["grpc", "shared", "upgraded"])
def test_sessions_as_envs(carrier: str) -> None:
    with contextlib.ExitStack() as stack:
        pool = SessionPool(TellingArrays, max_sessions=3, workers=1, together=True)
        stack.callback(pool.close)
        options: dict[str, Any] = {"num_envs": 3}
        if carrier == "grpc":
            server: Any = serve(pool, port=0)
        else:
            server = serve_sessions(pool, "127.0.0.1", 0, num_envs=3)
            options = {"transport": "tcp" if carrier == "shared" else "shm"}
        stack.callback(server.close)
        transport = stack.enter_context(contextlib.closing(open_transport(server.url, **options)))
        judge(transport, 2)
