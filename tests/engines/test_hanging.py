"""Engines that hang, or are away: how long a step waits for them, on every carrier."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ue_rl import errors
from ue_rl.bridges import ShmUpgrader, run_in_thread, run_shm_in_thread
from ue_rl.connecting import open_transport, url_engines
from ue_rl.engine_calls import EngineCalls
from ue_rl.engines.restarts import Restarts
from ue_rl.engines.transport import EnginesTransport
from ue_rl.testing.several import Walk

CARRIERS = ("shared", "per_env", "upgraded", "shm")


class Hanging(Walk):
    """Answers nothing while its gate is closed."""

    def __init__(self) -> None:
        super().__init__(2)
        self.gate = threading.Event()
        self.gate.set()

    def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
        self.gate.wait()
        super().handle_response_actions_for_env(env_id, actions)

    def get_parameter(self, name: str, env_id: int) -> float:
        self.gate.wait()
        return super().get_parameter(name, env_id)


@contextlib.contextmanager
def hosted(carrier: str, count: int = 1) -> Iterator[tuple[list[Hanging], list[str], dict[str, Any]]]:
    """Games, their URLs, and the options for open_transport."""
    games = [Hanging() for _ in range(count)]
    with contextlib.ExitStack() as stack:
        urls = []
        for game in games:
            upgrader = ShmUpgrader() if carrier == "upgraded" else None
            host: Any = run_shm_in_thread(game) if carrier == "shm" else run_in_thread(game, upgrader=upgrader)
            urls.append(stack.enter_context(host).url)
            stack.callback(game.gate.set)
        wanted = {"transport": "tcp", "channel": carrier} if carrier in ("shared", "per_env") else {"transport": "shm"}
        yield games, urls, wanted


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("before", [30.0, 0.05])
def test_a_timeout_that_is_changed_holds(carrier: str, before: float) -> None:
    with hosted(carrier) as (games, urls, options):
        connection: Any = open_transport(urls[0], timeout=before, connect_timeout=20, **options)
        with connection as transport:
            transport.timeout = 20
            transport.reset()
            transport.receive()
            games[0].gate.clear()
            transport.timeout = 0.3
            transport.send_actions(np.ones((2, 1), np.float32))
            began = time.monotonic()
            with pytest.raises(errors.EngineTimeout, match=r"within 0\.3 s"):
                transport.receive()
            assert 0.25 < time.monotonic() - began < 10


@pytest.mark.parametrize("carrier", CARRIERS)
def test_for_a_call_too(carrier: str) -> None:
    with hosted(carrier) as (games, urls, options):
        connection: Any = open_transport(urls[0], timeout=30, **options)
        with connection as transport:
            transport.timeout = 0.3
            games[0].gate.clear()
            began = time.monotonic()
            with pytest.raises(errors.EngineTimeout, match=r"within 0\.3 s"):
                EngineCalls(transport).get_parameters()
            assert 0.25 < time.monotonic() - began < 10


@pytest.mark.parametrize("carrier", CARRIERS)
def test_engines_that_hang_together_are_not_waited_for_one_after_another(carrier: str) -> None:
    with hosted(carrier, 4) as (games, urls, options):
        engines = url_engines(urls, reconnect=20, timeout=1, connect_timeout=20, **options)
        with EnginesTransport(engines, restarts=Restarts()) as transport:
            transport.reset()
            transport.receive()
            for game in games[1:]:
                game.gate.clear()
            transport.send_actions(np.ones((8, 1), np.float32))
            began = time.monotonic()
            buffers = transport.receive()
            took = time.monotonic() - began
            assert buffers.dones.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
            said = [buffers.infos[row]["engine_lost"] for row in (2, 4, 6)]
            assert "within 1 s" in said[0]
            assert all("within 0.5 s" in text for text in said[1:])
            assert took < 10
            for game in games:
                game.gate.set()


@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_engine_that_serves_another_trainer_is_busy_and_waited_for(carrier: str) -> None:
    with hosted(carrier) as (_, urls, options):
        first = open_transport(urls[0], timeout=20, **options)
        with pytest.raises(errors.EngineBusy, match=r"(?i)another trainer|serves a trainer.*wait="):
            open_transport(urls[0], timeout=20, **options)
        with pytest.raises(errors.EngineBusy):
            open_transport(urls[0], timeout=20, wait=0.1, **options)
        leaves = threading.Timer(0.5, first.close)
        leaves.start()
        with open_transport(urls[0], timeout=20, wait=20, **options) as second:  # type: ignore[attr-defined]
            second.reset()
            assert second.receive().obs[:, 2].tolist() == [0, 0]
        leaves.join()
