"""Engines that hang, or are away: how long a step waits for them, on every carrier."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.harness.several import FragileSource, Walk
from tests.support.carriers import served
from tests.support.clocks import fast, once
from tests.support.steps import advance, begin
from tests.support.waiting import eventually
from ue_rl.connections.dialling import open_transport, url_engines
from ue_rl.connections.engines.lifecycle import Change, Life, LifeState
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.system import errors

CARRIERS = ("shared", "per_env", "upgraded", "shm")


class Hanging(Walk):
    """Answers nothing while its gate is closed.

    Attributes:
        hangs: it is waiting for its gate.
    """

    def __init__(self) -> None:
        super().__init__(2)
        self.gate = threading.Event()
        self.gate.set()
        self.hangs = False

    def _wait(self) -> None:
        self.hangs = not self.gate.is_set()
        self.gate.wait()
        self.hangs = False

    def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
        self._wait()
        super().handle_response_actions_for_env(env_id, actions)

    def get_parameter(self, name: str, env_id: int) -> float:
        self._wait()
        return super().get_parameter(name, env_id)


@contextlib.contextmanager
def hosted(carrier: str, count: int = 1) -> Iterator[tuple[list[Hanging], list[str], dict[str, Any]]]:
    """Games, their URLs, and the options for open_transport."""
    games, urls = [Hanging() for _ in range(count)], []
    with contextlib.ExitStack() as stack:
        for game in games:
            url, how = stack.enter_context(served(carrier, game))
            urls.append(url)
            stack.callback(game.gate.set)
        yield games, urls, how


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("before", [30.0, 0.05])
def test_a_timeout_that_is_changed_holds(carrier: str, before: float) -> None:
    with hosted(carrier) as (games, urls, options):
        timing = once(lambda: games[0].hangs, 0.1)
        connection: Any = open_transport(urls[0], timeout=before, connect_timeout=20, timing=timing, **options)
        with connection as transport:
            transport.timeout = 20
            begin(transport)
            games[0].gate.clear()
            transport.timeout = 0.3
            transport.send_actions(np.ones((2, 1), np.float32))
            began = timing.now()
            with pytest.raises(errors.EngineTimeout, match=r"within 0\.3 s"):
                transport.receive()
            assert 0.25 < timing.now() - began < 10


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
@pytest.mark.parametrize("resets", [None, [0, 1]])
def test_engines_that_hang_together_are_not_waited_for_one_after_another(
    carrier: str, resets: list[int] | None
) -> None:
    with hosted(carrier, 4) as (games, urls, options):
        # The clock goes on once the first engine has done all that it is asked: two resets, then two more or two steps.
        timing = once(lambda: all(game.hangs for game in games[1:]) and len(games[0].log) == 4, 0.1)
        engines = url_engines(urls, reconnect=20, timeout=20, connect_timeout=20, timing=timing, **options)
        with EnginesTransport(engines, restarts=Restarts()) as transport:
            begin(transport)
            for game, part in zip(games[1:], transport._parts[1:], strict=True):
                game.gate.clear()
                part.transport.timeout = 0.6
            transport.send_actions(np.ones((8, 1), np.float32), resets)
            began = timing.now()
            buffers = transport.receive()
            took = timing.now() - began
            assert buffers.dones.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
            said = [buffers.infos[row]["engine_lost"] for row in (2, 4, 6)]
            assert "within 0.6 s" in said[0]
            assert all("within 0.5 s" in text for text in said[1:])
            assert took < 10
            for game in games:
                game.gate.set()


@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_engine_that_serves_another_trainer_is_busy_and_waited_for(carrier: str) -> None:
    with hosted(carrier) as (_, urls, options):
        options["timing"] = fast(10)
        first = open_transport(urls[0], timeout=200, **options)
        with pytest.raises(errors.EngineBusy, match=r"(?i)another trainer|serves a trainer.*wait="):
            open_transport(urls[0], timeout=200, **options)
        with pytest.raises(errors.EngineBusy):
            open_transport(urls[0], timeout=200, wait=0.1 if carrier == "shm" else 1.0, **options)
        leaves = threading.Timer(0.2, first.close)
        leaves.start()
        with open_transport(urls[0], timeout=200, wait=200, **options) as second:  # type: ignore[attr-defined]
            assert begin(second).obs[:, 2].tolist() == [0, 0]
        leaves.join()


class Together(FragileSource):
    """From its second life on it opens only while all others do."""

    barrier = threading.Barrier(1)
    fails = False
    behind: Callable[[Any], None] | None = None  # is called with what was opened

    def open(self, life: Life) -> Any:
        if self.bridges:
            self.barrier.wait(10)
            if self.fails:
                life.to(LifeState.CONNECTING)
                life.to(LifeState.CONNECTION_LOST)
                raise errors.EngineUnreachable("nobody listens")
        opened = super().open(life)
        if self.behind is not None:
            self.behind(opened)
        return opened


def together(count: int, **options: Any) -> tuple[EnginesTransport, list[Together]]:
    sources = [Together(lambda life, at=at: Walk(1, at), f"m{at}") for at in range(count)]  # type: ignore[misc]
    transport = EnginesTransport(sources, restarts=Restarts(), **options)
    barrier = threading.Barrier(count - 1)  # engine 0 is never lost
    for source in sources:
        source.barrier = barrier
    begin(transport)
    for source in sources[1:]:
        source.breaks = ["collect"]
    assert advance(transport, 1).lost == set(range(1, count))
    return transport, sources


@pytest.mark.parametrize("in_a_step", [True, False])
def test_lost_engines_are_opened_at_the_same_time(in_a_step: bool) -> None:
    threads: set[int] = set()
    transport, sources = together(5, on_change=lambda change: threads.add(threading.get_ident()))
    sources[2].fails = True
    lost = [1, 2, 3, 4]
    if in_a_step:
        transport.send_actions(np.ones((5, 1), np.float32), lost)
    else:
        transport.reset(lost)
    buffers = transport.receive()
    assert buffers.lost == {2}
    assert "nobody listens" in buffers.infos[2]["engine_lost"]
    assert buffers.obs[:, 2].tolist() == [2 if in_a_step else 1, 0, 0, 0, 0]
    assert threads == {threading.get_ident()}  # listeners are the trainer's
    assert [life.state for life in transport.lives[:2]] == [LifeState.PLAYING] * 2
    transport.close()


def test_an_engine_that_comes_back_after_the_end_is_closed() -> None:
    def interrupt(change: Change) -> None:
        if change.engine == 1 and change.after is LifeState.STREAMING and armed:
            assert eventually(lambda: made)  # the other one is being opened by now
            raise KeyboardInterrupt

    armed: list[bool] = []
    transport, sources = together(3, on_change=interrupt)
    goes_on, made = threading.Event(), []

    def slowly(opened: Any) -> None:
        made.append(opened)
        goes_on.wait(10)

    sources[2].behind = slowly
    armed.append(True)
    with pytest.raises(KeyboardInterrupt):
        transport.reset([1, 2])
    for thread in threading.enumerate():
        if thread.name == "engine 2":
            goes_on.set()
            thread.join(10)
    assert goes_on.is_set()
    assert sources[1].closed
    assert sources[2].closed
    with pytest.raises(errors.ConnectionUnusable):
        made[0].reset()
