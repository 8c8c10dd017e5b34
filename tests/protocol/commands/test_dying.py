"""A side that dies, or breaks the protocol."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.protocol.commands.game import Game, GameClock, M, Session, fill_from_trainer, lonely, unhosted
from ue_rl.bridges import ShmHost, run_shm_in_thread
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.commands.dispatcher import Dispatcher
from ue_rl.protocol.commands.envelope import Method, decode, encode
from ue_rl.system import errors


def test_garbage_from_the_trainer_ends_its_session_only(caplog: pytest.LogCaptureFixture) -> None:
    with run_shm_in_thread(Game()) as handle:
        with SharedMemoryConnection(handle.name, timeout=10) as connection:
            connection.commands.send_entry(b"\xff" * 40)
            with pytest.raises(errors.EngineDisconnected, match=r"ended the session: .*a command cannot be read"):
                connection.commands.ping()
            with pytest.raises(errors.ConnectionUnusable):
                connection.commands.ping()
        assert "a command cannot be read" in caplog.text
        with SharedMemoryConnection(handle.name, timeout=10) as connection:
            connection.commands.ping()


def test_garbage_from_the_engine_kills_the_connection() -> None:
    with unhosted(Game()) as (host, connection):
        commands = connection.commands
        commands.ping()
        assert host.memory.s2c is not None
        host.memory.s2c.try_write(b"\xff" * 40)
        with pytest.raises(errors.MalformedMessage, match="a command cannot be read"):
            commands.request(Method.PING, M.PingT())
        with pytest.raises(errors.ConnectionUnusable, match="failed before"):
            commands.ping()
        with pytest.raises(errors.ConnectionUnusable):
            connection.send_actions(np.zeros((3, 1), np.float32))


def test_before_and_after(session: Session) -> None:
    _, connection = session
    with pytest.raises(errors.ConnectionUnusable, match="Call connect"):
        _ = SharedMemoryConnection("x").commands
    commands = connection.commands
    connection.close()
    calls: list[Callable[[], object]] = [
        commands.ping,
        commands.poll,
        lambda: commands.send(2000),
        commands.wait_event,
        lambda: connection.commands,
    ]
    for call in calls:
        with pytest.raises(errors.ConnectionUnusable, match="closed"):
            call()


def test_an_engine_without_rings() -> None:
    """A plain producer may have none."""
    commands = lonely(None, None)
    options = functools.partial(commands.reset_entry, Method.RESET_OPTIONS, 0, {"a": 1})
    for call in (commands.ping, lambda: commands.send(2000), options):
        with pytest.raises(errors.UnsupportedByEngine, match="no command rings"):
            call()
    assert commands.poll() == []


DYING = """
import os, sys
sys.path.insert(0, {root!r})
from tests.protocol.commands.game import Game
from ue_rl.bridges import ShmHost, ShmUpgrader, run_in_thread

class Dying(Game):
    def register_commands(self, dispatcher):
        dispatcher.register(1000, lambda payload, command: os._exit(3))

if sys.argv[1] == "attached":
    host = ShmHost(Dying())
    print(host.name, flush=True)
    host.run()
else:
    handle = run_in_thread(Dying(), port=0, upgrader=ShmUpgrader())
    print(handle.port, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["attached", "upgraded"])
def test_an_engine_that_dies_during_a_request(how: str, slack: float) -> None:
    code = DYING.format(root=str(Path(__file__).parents[3]))
    engine = subprocess.Popen(
        [sys.executable, "-c", code, how], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert engine.stdout is not None
    assert engine.stdin is not None
    try:
        said = engine.stdout.readline().strip()
        name, address = (said, None) if how == "attached" else (None, ("127.0.0.1", int(said)))
        with SharedMemoryConnection(name, engine=address, timeout=30, wait=10) as connection:
            connection.commands.ping()
            begun = time.monotonic()
            with pytest.raises(errors.EngineDisconnected, match="went away"):
                connection.commands.request(1000)
            assert time.monotonic() - begun < 10 * slack
            with pytest.raises(errors.ConnectionUnusable):
                connection.commands.ping()
    finally:
        engine.stdin.close()
        engine.stdout.close()
        assert engine.wait(10) == 3


def test_an_engine_that_closes_during_a_request() -> None:
    clock = GameClock()
    with unhosted(Game(), ticking=False, clock=clock) as (host, connection):
        clock.at_each_look = host.close
        with pytest.raises(errors.EngineDisconnected, match=r"ended the session: .*the engine stops"):
            connection.commands.request(Method.PING, M.PingT())


def test_an_engine_that_closes_while_its_ring_is_full() -> None:
    with unhosted(Game(), ticking=False, ring_size=4096) as (host, connection):
        fill_from_trainer(connection, encode(2000))
        host.close()
        with pytest.raises(errors.EngineDisconnected, match=r"ended the session: .*the engine stops"):
            connection.commands.send(2000, timeout=60)


def test_answers_of_the_engine_are_decodable_by_anyone() -> None:
    """The entry is a size-prefixed FlatBuffer: what a C++ engine reads in place."""
    with unhosted(Game(), ticking=False) as (host, connection):
        connection.commands.send(Method.PING, M.PingT(stamp=7))
        ring = host.memory.c2s
        assert ring is not None
        data = ring.try_read()
        assert data is not None
        assert decode(data).payload.stamp == 7
        start, _ = host.memory.header.regions["cmd_c2s"]
        envelope = M.Envelope.GetRootAs(bytes(host.memory.buffer)[start + 8 :], 4)
        assert (envelope.Method(), envelope.CorrelationId()) == (Method.PING, 0)


def test_handlers_of_ones_own() -> None:
    dispatcher = Dispatcher()
    dispatcher.register(1000, lambda payload, command: None)
    with ShmHost(Game(), dispatcher=dispatcher) as host:
        assert host.dispatcher is dispatcher
