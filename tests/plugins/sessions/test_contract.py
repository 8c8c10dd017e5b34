"""The contract of every Transport, for sessions of a game over gRPC, and as envs of the text protocol."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.carriers.contract import Contract, N, Opener
from tests.harness.several import Walk
from ue_rl.connections.dialling import open_transport
from ue_rl.plugins.sessions.grpc import serve
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.realtime.engine import serve as serve_sessions
from ue_rl.protocol.transport import Transport


@pytest.mark.parametrize("kind", ["grpc", "shared", "upgraded"])
class TestContract(Contract):
    envs_apart = True
    draws_seeds = True

    @pytest.fixture
    def opener(self, kind: str) -> Iterator[Opener]:
        with contextlib.ExitStack() as stack:

            def opened(make: Callable[..., Any] = Walk) -> Transport:
                pool = SessionPool(make, max_sessions=N, workers=1)
                stack.callback(pool.close)
                options: dict[str, Any] = {"num_envs": N}
                if kind == "grpc":
                    server: Any = serve(pool, port=0)
                else:
                    server = serve_sessions(pool, "127.0.0.1", 0, num_envs=N)
                    options = {"transport": "tcp" if kind == "shared" else "shm"}
                stack.callback(server.close)
                return stack.enter_context(contextlib.closing(open_transport(server.url, **options)))

            yield opened
