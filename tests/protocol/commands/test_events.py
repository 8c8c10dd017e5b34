"""Events that a game sends to its trainer."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.protocol.commands.game import Game, M, Session, events, let_go, unhosted
from tests.support.steps import begin
from ue_rl.bridges import ShmHost
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.commands.envelope import Command, Method, text
from ue_rl.system import errors


def check_events(got: list[Command]) -> None:
    telemetry, joints, image, drawing, close, own = got
    assert telemetry.payload.values.tolist() == [0, 1, 2, 3]
    assert (joints.payload.names, joints.payload.envId) == ([b"hip"], 2)
    assert (image.payload.cameraId, image.payload.pixels.tolist()) == (7, [0] * 4)
    assert (drawing.payload.lines[0].end.z, drawing.payload.lines[0].color) == (6, 0xFF0000FF)
    assert text(close.payload.reason) == "level change"
    assert (own.method, own.payload, own.correlation_id, own.error) == (1234, None, 0, None)


def test_events_reach_the_trainer_from_another_thread_and_from_a_tick(session: Session) -> None:
    game, connection = session
    connection.commands.ping()  # the host has greeted
    assert all(game.send_event(*event) for event in events(game))
    connection.commands.ping()
    check_events(connection.commands.poll())
    assert connection.commands.poll() == []
    connection.commands.request(1002, M.PingT(stamp=4321))
    assert game.told == [True]
    assert connection.commands.wait_event().method == 4321


def test_events_come_in_with_the_steps(session: Session) -> None:
    game, connection = session
    begin(connection)
    for event in events(game):
        assert game.send_event(*event)
    connection.send_actions(np.ones((3, 1), np.float32))
    assert len(connection.receive().infos) == 3
    check_events(connection.commands.poll())


def test_many_threads_send_and_nothing_is_lost_or_torn(session: Session) -> None:
    game, connection = session
    connection.commands.ping()
    sent, each = 4, 300

    def send(number: int) -> None:
        for i in range(each):
            assert game.send_event(2000 + number, M.PingT(stamp=i))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(sent)]
    for thread in threads:
        thread.start()
    got: dict[int, list[int]] = {2000 + n: [] for n in range(sent)}
    while sum(map(len, got.values())) < sent * each:
        connection.send_actions(np.ones((3, 1), np.float32))
        assert len(connection.receive().infos) == 3
        for event in connection.commands.poll():
            got[event.method].append(event.payload.stamp)
    for thread in threads:
        thread.join()
    assert all(stamps == list(range(each)) for stamps in got.values())


def test_nobody_there_is_no_error() -> None:
    game = Game()
    assert game.send_event(Method.PING, M.PingT()) is False
    with ShmHost(game) as host:
        assert host.send(Method.PING, M.PingT()) is False
        with SharedMemoryConnection(host.name, timeout=10):
            host.tick(0)
            assert game.send_event(Method.PING, M.PingT()) is True
        let_go(host)
        assert game.send_event(Method.PING, M.PingT()) is False
        with SharedMemoryConnection(host.name, timeout=10) as connection:
            host.tick(0)
            assert connection.commands.poll() == [], "an event of the trainer before"
    assert host.send(Method.PING, M.PingT()) is False


def test_events_that_cannot_be_sent() -> None:
    with unhosted(Game()) as (host, connection):
        connection.commands.ping()
        for method, payload in ((Method.TELEMETRY_FRAME, M.PingT()), (Method.PING, None), (2000, object())):
            with pytest.raises(errors.ConfigurationError):
                host.send(method, payload)
        with pytest.raises(errors.ConfigurationError, match="longer than its ring takes"):
            host.send(Method.IMAGE_FRAME, M.ImageFrameT(pixels=np.zeros(2**20, np.uint8)))
        connection.commands.ping()
        assert connection.commands.poll() == []


def test_events_that_nobody_takes_are_dropped_oldest_first() -> None:
    with unhosted(Game()) as (host, connection):
        commands = connection.commands
        commands.max_events = 5
        commands.ping()
        for stamp in range(8):
            host.send(2000, M.PingT(stamp=stamp))
        assert [event.payload.stamp for event in commands.poll()] == [3, 4, 5, 6, 7]
        assert commands.dropped == 3
        commands.max_event_bytes = 3000
        for value in range(4):
            host.send(Method.IMAGE_FRAME, M.ImageFrameT(pixels=np.full(1000, value, np.uint8)))
        assert [event.payload.pixels[0] for event in commands.poll()] == [2, 3]
        assert commands.dropped == 5


def test_waiting_for_an_event_has_a_deadline() -> None:
    with unhosted(Game()) as (_, connection):
        with pytest.raises(errors.EngineTimeout, match=r"did not send a message within 0\.01 s"):
            connection.commands.wait_event(0.01)
        connection.commands.ping()
