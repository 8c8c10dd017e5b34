"""Deadlines, late answers, floods."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.protocol.commands.game import Flood, Game, GameClock, M, let_go, lonely, unhosted
from ue_rl.bridges import ShmHost
from ue_rl.bridges.shm.commands import answer_commands
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.commands.dispatcher import Dispatcher
from ue_rl.protocol.commands.entries import TextReader
from ue_rl.protocol.commands.envelope import Method, encode
from ue_rl.system import errors


def test_a_request_without_an_answer(slack: float) -> None:
    with unhosted(Game(), ticking=False) as (_, connection):
        for timeout in (0, 0.02):
            begun = time.monotonic()
            with pytest.raises(
                errors.EngineTimeout, match=f"did not send an answer to method PING within {timeout:g} s"
            ) as caught:
                connection.commands.request(Method.PING, M.PingT(stamp=1), timeout=timeout)
            assert caught.value.fault == "engine"
            assert timeout <= time.monotonic() - begun < 2 * slack
        for wrong in (-1, float("nan"), float("inf")):
            with pytest.raises(errors.ConfigurationError, match="deadline"):
                connection.commands.request(Method.PING, M.PingT(), timeout=wrong)


def test_late_answers_are_never_taken_for_others() -> None:
    """Each request times out, its answer comes in before that of the next one."""
    clock = GameClock()
    with unhosted(Game(), ticking=False, clock=clock) as (host, connection):
        commands = connection.commands
        for stamp in range(20):
            clock.at_each_look = lambda: None
            with pytest.raises(errors.EngineTimeout):
                commands.request(1001, M.PingT(stamp=1000 + stamp), timeout=0)
            clock.at_each_look = lambda: host.tick(0)
            assert commands.request(1001, M.PingT(stamp=stamp)).stamp == 2 * stamp
        assert commands.poll() == []
        connection.send_actions(np.ones((3, 1), np.float32))
        assert host.tick(0)
        assert connection.receive().rewards.tolist() == [1, 1, 1]


def test_a_late_answer_to_a_trainer_that_left_does_not_reach_the_next() -> None:
    with ShmHost(Game()) as host:
        for stamp in (5, 6):
            clock = GameClock()
            with SharedMemoryConnection(host.name, timeout=10, timing=clock.timing) as connection:
                with pytest.raises(errors.EngineTimeout):
                    connection.commands.request(1001, M.PingT(stamp=100), timeout=0)
                host.tick(0)  # answers it
                clock.at_each_look = lambda: host.tick(0)
                assert connection.commands.request(1001, M.PingT(stamp=stamp)).stamp == 2 * stamp
                clock.at_each_look = lambda: None
                with pytest.raises(errors.EngineTimeout):
                    connection.commands.request(1001, M.PingT(stamp=200), timeout=0)
            let_go(host)


def test_a_flood_of_events_does_not_hold_up_the_deadline() -> None:
    flood = Flood(encode(2000, M.PingT()))
    with pytest.raises(errors.EngineTimeout):
        lonely(flood).request(Method.PING, M.PingT(), timeout=0.05)
    assert flood.count > 0


def test_a_flood_of_commands_does_not_stop_the_game() -> None:
    game = Game()
    with ShmHost(game) as host:
        flood, real = Flood(encode(2000)), host.memory.c2s
        host.memory.c2s = flood  # type: ignore[assignment]
        count = answer_commands(host.memory, Dispatcher(), game, lambda data: None, TextReader("trainer", 100), False)
        assert 0 < count == flood.count <= 4096
        host.memory.c2s = real
