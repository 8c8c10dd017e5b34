"""Options, infos and requests beside the steps."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests.protocol.commands.game import SPEC, Game, GameClock, Session, attached, unhosted
from tests.support.games import Steps
from tests.support.steps import advance, begin
from tests.support.waiting import eventually
from ue_rl.protocol.commands.dispatcher import Dispatcher
from ue_rl.system import errors
from ue_rl.system.timing import Timing


def test_options_and_infos_arrive_with_their_frame(session: Session) -> None:
    game, connection = session
    for turn in range(1, 60):
        connection.reset([2, 0], [turn, None], [{"level": turn}, None])
        assert {env: info["reset"] for env, info in connection.receive().infos.items()} == {2: turn, 0: turn}
        assert game.resets[-1] == ([0, 2], [None, turn], [None, {"level": turn}])
        for step in range(3):
            actions = np.array([[1.0], [0.0], [turn % 2]], np.float32)
            connection.send_actions(actions)
            if turn % 3 == 0:
                connection.commands.ping()
            buffers = connection.receive()
            assert set(buffers.infos) == ({0, 2} if turn % 2 else {0})
            for env, info in buffers.infos.items():
                assert info["step"] == buffers.rewards[env]
            assert buffers.rewards[0] == step + 1


@pytest.mark.parametrize("options", [{"x": float("nan")}, {"x": object()}, {"x": "y" * 300_000}])
def test_options_that_cannot_go_over_leave_the_connection_as_it_was(session: Session, options: Any) -> None:
    game, connection = session
    with pytest.raises(errors.ConfigurationError) as caught:
        connection.reset([1, 2], None, [{"fine": 1}, options])
    assert (caught.value.field, caught.value.env_id) == ("OPTIONS", 2)
    begin(connection)
    assert game.resets == [([0, 1, 2], [None] * 3, [None] * 3)]


def test_commands_while_an_action_runs_for_many_ticks() -> None:
    class Slow(Steps):
        running = True

        def register_commands(self, dispatcher: Dispatcher) -> None:
            dispatcher.register(1000, lambda payload, command: setattr(self, "running", False))

        def show(self, env: int) -> list[float]:
            return [self.steps[env], 0]

        def earn(self, env: int) -> tuple[float, bool]:
            return 1.0, False

        def is_action_running_for_env(self, env_id: int) -> bool:
            return self.running

    bridge = Slow(SPEC)
    with attached(bridge) as connection:  # type: ignore[arg-type]
        begin(connection)
        connection.send_actions(np.zeros((3, 1), np.float32))
        for _ in range(20):
            connection.commands.ping()
        before = bridge.lockstep.ticks
        connection.commands.ping()
        eventually(lambda: bridge.lockstep.ticks > before)  # the action runs on
        connection.commands.request(1000)
        assert connection.receive().rewards.tolist() == [1, 1, 1]


def test_a_frame_that_comes_during_a_request_is_not_lost() -> None:
    clock = GameClock()
    with unhosted(Game(), ticking=False, clock=clock) as (host, connection):
        connection.send_actions(np.ones((3, 1), np.float32))
        commands = connection.commands
        assert host.tick(0), "the step was not answered"
        clock.at_each_look = lambda: host.tick(0)
        commands.ping()
        buffers = connection.receive()
        assert buffers.infos == {env: {"step": 1.0} for env in range(3)}
        assert buffers.rewards.tolist() == [1, 1, 1]


def test_an_answer_that_came_while_messages_were_read_is_not_late() -> None:
    """The first message may take long to read (its classes are imported then); the deadline ends meanwhile."""
    looks: list[float] = []

    def slow() -> float:
        if len(looks) == 1:  # since the deadline was set the trainer has read what had come
            looks.append(time.monotonic() + 1000)  # the deadline passes
            assert host.tick(0)  # and the engine answers
        else:
            looks.append(time.monotonic())
        return looks[-1]

    clock = GameClock()
    clock.timing = Timing(slow)
    with unhosted(Game(), ticking=False, clock=clock) as (host, connection):
        connection.send_actions(np.zeros((3, 1), np.float32))
        looks.clear()
        assert connection.receive().rewards.tolist() == [1, 1, 1]
        assert len(looks) == 2


@pytest.mark.parametrize("info", [{"x": object()}, {"x": float("inf")}, {"x": "y" * 300_000}])
def test_infos_that_cannot_go_over_end_the_session_by_name(info: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(Game):
        def step_envs(self, actions: Any, env_ids: Any) -> None:
            self.write_info(1, info)

    with attached(Wrong()) as connection:
        with pytest.raises(errors.EngineDisconnected):
            advance(connection, 0)
    assert "env 1, field INFO" in caplog.text
