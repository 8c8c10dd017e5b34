"""Servers of a pool of Drift, over each carrier."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.plugins.sessions.game import Drift
from tests.support.forking import forking
from ue_rl.plugins.sessions.realtime import SessionPool

__all__ = ["forking", "make_pool", "served"]


@pytest.fixture
def make_pool() -> Iterator[Callable[..., SessionPool]]:
    """A pool of Drift; what it has is closed at the end."""
    pools: list[SessionPool] = []

    def make(game: Any = Drift, **options: Any) -> SessionPool:
        pools.append(SessionPool(game, **{"max_sessions": 8, "workers": 2, **options}))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def served(make_pool: Callable[..., SessionPool]) -> Iterator[Callable[..., Any]]:
    """served("grpc", game, **options of the pool): (the pool, the running server)."""
    servers: list[Any] = []

    def serve(carrier: str, game: Any = Drift, carrier_options: dict[str, Any] | None = None, **options: Any) -> Any:
        import importlib

        pool = make_pool(game, **options)
        server = importlib.import_module(f"ue_rl.plugins.sessions.{carrier}").serve(
            pool, port=0, **(carrier_options or {})
        )
        servers.append(server)
        return pool, server

    yield serve
    for server in servers:
        server.close()
