"""Rings that are full."""

from __future__ import annotations

import subprocess
import threading
import time

import numpy as np
import pytest

from tests.protocol.commands.game import Game, GameClock, M, attached, fill_from_trainer, unhosted
from ue_rl.bridges import ShmHost
from ue_rl.protocol.commands.envelope import Method, encode
from ue_rl.protocol.memory.header import CLIENT_PID
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system import errors


def fill_from_engine(host: ShmHost) -> int:
    for count in range(100_000):
        try:
            assert host.send(2000, M.PingT(stamp=count), timeout=0)
        except errors.RingFull:
            return count
    raise AssertionError("the ring never filled")


def test_a_full_ring_to_the_engine(slack: float) -> None:
    clock = GameClock()
    with unhosted(Game(), ticking=False, clock=clock, ring_size=4096) as (host, connection):
        count = fill_from_trainer(connection, encode(2000))
        assert count > 20
        begun = time.monotonic()
        with pytest.raises(
            errors.RingFull, match=r"does not read its commands \(field cmd_c2s\).*within 0\.05 s"
        ) as caught:
            connection.commands.request(Method.PING, M.PingT(), timeout=0.05)
        assert 0.05 <= time.monotonic() - begun < 2 * slack
        assert caught.value.fault == "engine"
        with pytest.raises(errors.RingFull):
            connection.commands.send(2000, timeout=0.01)
        host.tick(0)
        clock.at_each_look = lambda: host.tick(0)
        connection.commands.ping()


def test_a_full_ring_to_the_trainer(slack: float) -> None:
    with unhosted(Game(), ring_size=4096) as (host, connection):
        connection.commands.ping()
        count = fill_from_engine(host)
        begun = time.monotonic()
        with pytest.raises(errors.RingFull, match=r"field cmd_s2c") as caught:
            host.send(2000, M.PingT(), timeout=0.05)
        assert 0.05 <= time.monotonic() - begun < 2 * slack
        assert caught.value.fault == "trainer"
        assert [event.payload.stamp for event in connection.commands.poll()] == list(range(count))
        assert host.send(2000, M.PingT())


def test_two_full_rings_do_not_wait_for_each_other() -> None:
    """The trainer has written all it can, of what wants answers; so has the engine; then both go on writing."""
    game = Game()
    with unhosted(game, ticking=False, ring_size=4096) as (host, connection):
        host.tick(0)
        asked = fill_from_trainer(connection, encode(1001, M.PingT(stamp=1), 2**40))
        sent = fill_from_engine(host)
        stop = threading.Event()
        thread = threading.Thread(target=host.run, args=(stop,))
        thread.start()
        try:
            for _ in range(2 * asked):
                connection.commands.ping()
            assert len(connection.commands.poll()) == sent
            fill_from_trainer(connection, encode(1001, M.PingT(stamp=1), 2**40))
            connection.send_actions(np.ones((3, 1), np.float32))
            assert len(connection.receive().infos) == 3
        finally:
            stop.set()
            thread.join()


def test_infos_of_more_than_a_ringful_arrive() -> None:
    spec = EnvSpec(2, 1, num_envs=300, features=frozenset({"INFO"}))
    with attached(Game(spec), ring_size=4096) as connection:
        for _ in range(3):
            connection.send_actions(np.ones((300, 1), np.float32))
            assert len(connection.receive().infos) == 300


def test_a_trainer_that_dies_with_a_full_ring_does_not_hold_the_game(slack: float) -> None:
    """The writer looks after its reader while it waits: it does not wait out the five seconds."""
    game = Game()
    with unhosted(game, ring_size=4096) as (host, connection):
        connection.commands.ping()
        fill_from_engine(host)
        connection.send_actions(np.ones((3, 1), np.float32))
        with subprocess.Popen(["true"]) as ended:  # as if it had attached
            host.memory.store_u32(CLIENT_PID, ended.pid)
        begun = time.monotonic()
        assert host.tick(0) is False
        assert time.monotonic() - begun < 2 * slack
        assert game.send_event(2000) is False
