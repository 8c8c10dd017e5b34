"""Commands between a trainer and a hosted bridge: every method, events, deadlines, full rings, dead sides."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import ue_rl
from ue_rl import errors
from ue_rl.bridges import MultiEnvBridge, ShmHost, ShmUpgrader, VectorBridge, run_in_thread, run_shm_in_thread
from ue_rl.bridges.shm.commands import answer_commands
from ue_rl.commands.dispatcher import Dispatcher
from ue_rl.commands.envelope import Command, Method, decode, encode, messages, text
from ue_rl.commands.json_entry import json_entry
from ue_rl.commands.text_entry import TextReader
from ue_rl.connections import SharedMemoryConnection
from ue_rl.connections.shm.commands import ShmCommands
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.shm.ring import Ring
from ue_rl.spec import EnvSpec
from ue_rl.testing.memory import MemoryTransport

M = messages()
SPEC = EnvSpec(2, 1, num_envs=3, features=frozenset({"SEED", "OPTIONS", "INFO"}))


class Game(VectorBridge):
    """Counts steps; notes what it is told. Method 1000 raises, 1001 doubles a stamp, 1002 sends an event."""

    def __init__(self, spec: EnvSpec = SPEC) -> None:
        super().__init__(spec)
        self.values = {"gravity": 9.81, "friction": 0.5}
        self.per_env: dict[tuple[int, str], float] = {}
        self.told: list[Any] = []
        self.resets: list[Any] = []
        self.observation_names, self.action_names = ["x", "v"], ["push"]

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        return {"gravity": (self.values["gravity"], 0.0, 20.0), "friction": (self.values["friction"], 0.0, 1.0)}

    def get_parameter(self, name: str, env_id: int) -> float:
        return self.per_env.get((env_id, name), self.values[name])

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        if env_id < 0:
            self.values[name] = value
        else:
            self.per_env[env_id, name] = value

    def set_time_scale(self, scale: float) -> None:
        self.told.append(scale)

    def begin_contract(self, *contract: Any) -> None:
        self.told.append(contract)

    def trainer_closes(self, reason: str) -> None:
        self.told.append(reason)

    def register_commands(self, dispatcher: Dispatcher) -> None:
        dispatcher.register(1000, lambda payload, command: 1 // 0)
        dispatcher.register(1001, lambda payload, command: M.PingT(stamp=2 * payload.stamp))
        dispatcher.register(1002, lambda payload, command: self.told.append(self.send_event(payload.stamp)))

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.outbox.obs[env_ids] = 0
        self.resets.append((env_ids.tolist(), list(seeds), list(options)))
        for env in env_ids.tolist():
            self.write_info(env, {"reset": len(self.resets)})

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.outbox.obs[env_ids] += 1
        self.outbox.rewards[env_ids] = self.outbox.obs[env_ids, 0]
        for env in env_ids.tolist():
            if actions[env, 0] > 0:
                self.write_info(env, {"step": float(self.outbox.obs[env, 0])})


Session = tuple[Game, SharedMemoryConnection]


@contextmanager
def attached(game: Game, **options: Any) -> Iterator[SharedMemoryConnection]:
    with run_shm_in_thread(game, **options) as handle, SharedMemoryConnection(handle.name, timeout=10) as connection:
        yield connection


@contextmanager
def upgraded(game: Game) -> Iterator[SharedMemoryConnection]:
    with run_in_thread(game, port=0, upgrader=ShmUpgrader()) as handle:
        with SharedMemoryConnection(engine=("127.0.0.1", handle.port), timeout=10) as connection:
            yield connection


@pytest.fixture(params=[attached, upgraded], ids=["attached", "upgraded"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    game = Game()
    with request.param(game) as connection:
        yield game, connection


@contextmanager
def unhosted(game: Game, ticking: bool = True, **options: Any) -> Iterator[tuple[ShmHost, SharedMemoryConnection]]:
    """No thread: the engine ticks when the trainer waits, or when the test says so."""
    with ShmHost(game, **options) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        if ticking:
            connection.commands._wait = lambda ms: host.tick(0) and None
        yield host, connection


# -- every method


def test_ping(session: Session) -> None:
    _, connection = session
    assert 0 < connection.commands.ping() < 10
    assert connection.commands.request(Method.PING, M.PingT(stamp=2**64 - 1)).stamp == 2**64 - 1


def test_get_schema(session: Session) -> None:
    game, connection = session
    schema = connection.commands.get_schema()
    assert schema["config"] == game.build_handshake()
    assert (schema["observation_names"], schema["action_names"]) == (["x", "v"], ["push"])
    assert {Method.PING, Method.RESET_OPTIONS, 1000, 1001, 1002} <= set(schema["methods"])
    assert Method.GET_ENTITY not in schema["methods"]


def test_parameters(session: Session) -> None:
    _, connection = session
    commands = connection.commands
    assert commands.list_parameters() == {"gravity": (9.81, 0, 20), "friction": (0.5, 0, 1)}
    commands.set_parameters({"gravity": 3.7, "friction": 1})
    assert commands.get_parameters() == {"gravity": 3.7, "friction": 1}
    commands.set_parameters({"gravity": 1.6}, env_id=2)
    assert commands.get_parameters(["gravity"]) == {"gravity": 3.7}
    assert commands.get_parameters(["gravity"], env_id=2) == {"gravity": 1.6}
    assert commands.get_parameters(env_id=1) == {"gravity": 3.7, "friction": 1}


@pytest.mark.parametrize(
    ("values", "env_id", "words"),
    [
        ({"friction": 0.1, "mass": 1}, -1, "no such parameter (field mass); expected ['friction', 'gravity']"),
        ({"friction": 0.1, "gravity": 20.5}, -1, "out of range (field gravity); expected 0.0 to 20.0; got 20.5"),
        ({"gravity": float("nan")}, -1, "out of range"),
        ({"gravity": 1}, 3, "env id does not exist (field ENV); expected 0 to 2; got 3"),
        ({"gravity": 1}, -2, "env id does not exist"),
    ],
)
def test_refused_parameters(session: Session, values: dict[str, float], env_id: int, words: str) -> None:
    game, connection = session
    with pytest.raises(errors.CommandFailed) as caught:
        connection.commands.set_parameters(values, env_id)
    assert words in str(caught.value.got)
    assert caught.value.field == "SET_PARAMETERS"
    assert game.values == {"gravity": 9.81, "friction": 0.5}, "half of a refused request was applied"
    assert not game.per_env
    connection.commands.ping()


def test_refused_queries(session: Session) -> None:
    _, connection = session
    for names, env_id in ((["mass"], -1), (["gravity"], 3), ([], -2)):
        with pytest.raises(errors.CommandFailed):
            connection.commands.get_parameters(names, env_id)


def test_time_scale(session: Session) -> None:
    game, connection = session
    connection.commands.set_time_scale(2.5)
    assert game.told == [2.5]
    for scale in (0, -1, float("inf"), float("nan")):
        with pytest.raises(errors.CommandFailed, match="positive and finite"):
            connection.commands.set_time_scale(scale)
    assert game.told == [2.5]


def test_contract(session: Session) -> None:
    game, connection = session
    commands = connection.commands
    commands.set_contract(
        seed=2**63 - 1, parameters={"gravity": 5}, randomization={"friction": (0.25, 0.75)}, env_ids=[2, 0]
    )
    commands.set_contract()
    assert game.told == [(2**63 - 1, {"gravity": 5.0}, {"friction": (0.25, 0.75)}, [2, 0]), (None, {}, {}, [])]
    refused: list[dict[str, Any]] = [
        {"env_ids": [3]}, {"parameters": {"gravity": 21}}, {"parameters": {"mass": 1}},
        {"randomization": {"mass": (0, 1)}},
        {"randomization": {"friction": (0.5, 0.25)}}, {"randomization": {"friction": (0.5, 1.5)}},
        {"randomization": {"friction": (float("nan"), 1)}},
    ]  # fmt: skip
    for contract in refused:
        with pytest.raises(errors.CommandFailed):
            commands.set_contract(**contract)
    with pytest.raises(errors.CommandFailed, match="contract is missing"):
        commands.request(Method.RESET_AGENT, M.ResetAgentT())
    for seed in (-1, 2**63):
        with pytest.raises(errors.ConfigurationError):
            commands.set_contract(seed=seed)
    assert len(game.told) == 2


def test_close_says_why(session: Session) -> None:
    game, connection = session
    connection.commands.close("the run is over")
    assert game.told == ["the run is over"]
    connection.commands.ping()


def test_methods_that_the_bridge_lacks(session: Session) -> None:
    _, connection = session
    for method in Method:
        if method in (Method.GET_ENTITY, Method.LIST_CAMERAS, Method.STREAM_VIEWPORT, Method.SET_SIMULATION_MODE):
            with pytest.raises(errors.CommandFailed, match=f"does not know method {method.name}"):
                connection.commands.request(method)


def test_a_bridge_that_offers_nothing() -> None:
    class Bare(VectorBridge):
        def reset_envs(self, *_: Any) -> None: ...

        def step_envs(self, *_: Any) -> None: ...

    with unhosted(Bare(SPEC)) as (_, connection):  # type: ignore[arg-type]
        commands = connection.commands
        commands.ping()
        commands.close()
        calls: list[tuple[Callable[[], object], str]] = [
            (commands.list_parameters, "list_parameters"), (lambda: commands.set_parameters({}), "set_parameter"),
            (lambda: commands.set_time_scale(1), "set_time_scale"), (commands.set_contract, "begin_contract"),
        ]  # fmt: skip
        for call, name in calls:
            with pytest.raises(errors.CommandFailed, match=f"this engine has no {name}"):
                call()


def test_handlers_of_the_games_own(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    _, connection = session
    assert connection.commands.request(1001, M.PingT(stamp=21)).stamp == 42
    with pytest.raises(errors.CommandFailed, match="ZeroDivisionError") as caught:
        connection.commands.request(1000)
    assert (caught.value.field, caught.value.fault) == ("1000", "engine")
    assert "method 1000 failed" in caplog.text
    with pytest.raises(errors.CommandFailed, match="AttributeError"):
        connection.commands.request(1001)
    with pytest.raises(errors.CommandFailed, match="does not know method 1003"):
        connection.commands.request(1003)
    connection.commands.send(1000)
    connection.commands.ping()


def test_a_vec_env_reaches_its_commands(session: Session) -> None:
    game, connection = session
    env = UnrealVecEnv(connection)
    env.reset()
    env.transport.commands.set_parameters({"gravity": 1})  # type: ignore[attr-defined]
    env.step(np.zeros((3, 1), np.float32))
    assert game.values["gravity"] == 1


def test_text_has_no_commands() -> None:
    with run_in_thread(Game(), port=0) as handle:
        transport: Any = ue_rl.connections.open_engine("127.0.0.1", handle.port, transport="tcp", timeout=10)
        with pytest.raises(errors.UnsupportedByEngine, match=r"need shared memory.*TCP.*Connect with"):
            _ = transport.commands
        assert not hasattr(transport, "commands")
        assert Game().send_event(Method.CLOSE, M.CloseT()) is False
        transport.close()
    with pytest.raises(errors.UnsupportedByEngine):
        _ = MemoryTransport(Game()).commands


# -- beside the steps


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
    connection.reset()
    connection.receive()
    assert game.resets == [([0, 1, 2], [None] * 3, [None] * 3)]


def test_commands_while_an_action_runs_for_many_ticks() -> None:
    class Slow(MultiEnvBridge):
        running = False

        def register_commands(self, dispatcher: Dispatcher) -> None:
            dispatcher.register(1000, lambda payload, command: setattr(self, "running", False))

        def create_state_string_for_env(self, env_id: int) -> list[float]:
            return [float(env_id), 0]

        def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool]:
            return 1.0, False

        def handle_reset_for_env(self, env_id: int) -> None: ...

        def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
            self.running = True

        def is_action_running_for_env(self, env_id: int) -> bool:
            return self.running

    bridge = Slow(SPEC)
    with attached(bridge) as connection:  # type: ignore[arg-type]
        connection.reset()
        connection.receive()
        connection.send_actions(np.zeros((3, 1), np.float32))
        for _ in range(20):
            connection.commands.ping()
        before = bridge.ticks
        connection.commands.ping()
        connection.commands.ping()
        assert bridge.ticks > before, "the action does not run on"
        connection.commands.request(1000)
        assert connection.receive().rewards.tolist() == [1, 1, 1]


def test_a_frame_that_comes_during_a_request_is_not_lost() -> None:
    with unhosted(Game(), ticking=False) as (host, connection):
        connection.send_actions(np.ones((3, 1), np.float32))
        commands = connection.commands
        assert host.tick(0), "the step was not answered"
        commands._wait = lambda ms: host.tick(0) and None
        commands.ping()
        buffers = connection.receive()
        assert buffers.infos == {env: {"step": 1.0} for env in range(3)}
        assert buffers.rewards.tolist() == [1, 1, 1]


def test_an_answer_that_came_while_messages_were_read_is_not_late() -> None:
    """The first message may take long to read (its classes are imported then); the deadline ends meanwhile."""
    with unhosted(Game(), ticking=False) as (host, connection):
        drain, answered = connection.commands.drain, []

        def slow_drain() -> int:
            if not answered:
                time.sleep(0.3)  # the deadline passes
                answered.append(host.tick(0))  # and the engine answers
            return drain()

        connection._watch._timeout = 0.2
        connection.send_actions(np.zeros((3, 1), np.float32))
        connection.commands.drain = slow_drain  # type: ignore[method-assign]
        assert connection.receive().rewards.tolist() == [1, 1, 1]
        assert answered == [True]


@pytest.mark.parametrize("info", [{"x": object()}, {"x": float("inf")}, {"x": "y" * 300_000}])
def test_infos_that_cannot_go_over_end_the_session_by_name(info: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(Game):
        def step_envs(self, actions: Any, env_ids: Any) -> None:
            self.write_info(1, info)

    with attached(Wrong()) as connection:
        with pytest.raises(errors.EngineDisconnected):
            connection.send_actions(np.zeros((3, 1), np.float32))
            connection.receive()
    assert "env 1, field INFO" in caplog.text


# -- events


def events(game: Game) -> list[tuple[int, Any]]:
    return [
        (Method.TELEMETRY_FRAME, M.TelemetryFrameT(time=1.5, values=np.arange(4.0), envId=1)),
        (Method.JOINT_STATE, M.JointStateT(names=["hip"], positions=[0.5], velocities=[1], efforts=[2], envId=2)),
        (Method.IMAGE_FRAME, M.ImageFrameT(width=2, height=2, channels=1, pixels=bytes(4), cameraId=7)),
        (Method.DEBUG_DRAW, M.DebugDrawT(lines=[M.DrawLineT(M.Vec3T(1, 2, 3), M.Vec3T(4, 5, 6), 0xFF0000FF, 1.0)])),
        (Method.CLOSE, M.CloseT(reason="level change")),
        (1234, None),
    ]


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
    connection.reset()
    connection.receive()
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
        host._next_check = 0
        host.tick(0)
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


def test_events_that_nobody_takes_are_dropped_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ue_rl.connections.shm.commands.MAX_EVENTS", 5)
    with unhosted(Game()) as (host, connection):
        commands = connection.commands
        commands.ping()
        for stamp in range(8):
            host.send(2000, M.PingT(stamp=stamp))
        assert [event.payload.stamp for event in commands.poll()] == [3, 4, 5, 6, 7]
        assert commands.dropped == 3
        monkeypatch.setattr("ue_rl.connections.shm.commands.MAX_EVENT_BYTES", 3000)
        for value in range(4):
            host.send(Method.IMAGE_FRAME, M.ImageFrameT(pixels=np.full(1000, value, np.uint8)))
        assert [event.payload.pixels[0] for event in commands.poll()] == [2, 3]
        assert commands.dropped == 5


def test_waiting_for_an_event_has_a_deadline() -> None:
    with unhosted(Game()) as (_, connection):
        with pytest.raises(errors.EngineTimeout, match=r"did not send a message within 0\.01 s"):
            connection.commands.wait_event(0.01)
        connection.commands.ping()


# -- deadlines and late answers


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
    with unhosted(Game(), ticking=False) as (host, connection):
        commands = connection.commands
        wait = commands._wait
        for stamp in range(20):
            commands._wait = wait
            with pytest.raises(errors.EngineTimeout):
                commands.request(1001, M.PingT(stamp=1000 + stamp), timeout=0)
            commands._wait = lambda ms: host.tick(0) and None
            assert commands.request(1001, M.PingT(stamp=stamp)).stamp == 2 * stamp
        assert commands.poll() == []
        connection.send_actions(np.ones((3, 1), np.float32))
        assert host.tick(0)
        assert connection.receive().rewards.tolist() == [1, 1, 1]


def test_a_late_answer_to_a_trainer_that_left_does_not_reach_the_next() -> None:
    with ShmHost(Game()) as host:
        for stamp in (5, 6):
            with SharedMemoryConnection(host.name, timeout=10) as connection:
                with pytest.raises(errors.EngineTimeout):
                    connection.commands.request(1001, M.PingT(stamp=100), timeout=0)
                host.tick(0)  # answers it
                connection.commands._wait = lambda ms: host.tick(0) and None
                assert connection.commands.request(1001, M.PingT(stamp=stamp)).stamp == 2 * stamp
                with pytest.raises(errors.EngineTimeout):
                    connection.commands.request(1001, M.PingT(stamp=200), timeout=0)
            host._next_check = 0
            host.tick(0)


class Flood:
    """A ring that always has one more message."""

    capacity, write_pos, max_payload = 4096, 0, 4096

    def __init__(self, data: bytes) -> None:
        self.data, self.count = data, 0

    def try_read(self) -> bytes:
        self.count += 1
        return self.data


def lonely(incoming: Any, out: Any = ...) -> ShmCommands:
    def fail(error: errors.UeRlError) -> None:
        raise error

    nothing: Any = lambda *_: None  # noqa: E731
    return ShmCommands(
        Ring(bytearray(4096)) if out is ... else out,
        incoming,
        nudge=nothing,
        wait=nothing,
        check=nothing,
        fail=fail,
        infos={},
        num_rows=1,
        timeout=5,
    )


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


@pytest.mark.parametrize(
    "answer",
    [
        encode(Method.CLOSE, M.EmptyT(), 1), encode(Method.PING, M.CloseT(), 1), encode(Method.PING, None, 1),
        encode(Method.TELEMETRY_FRAME, M.PingT()), encode(Method.ENV_INFO), encode(Method.ENV_INFO, M.PingT()),
        b"", b"12345678",
    ],
)  # fmt: skip
def test_answers_and_events_that_cannot_be(answer: bytes) -> None:
    with pytest.raises(errors.MalformedMessage) as caught:
        lonely(Flood(answer)).request(Method.PING, M.PingT(), timeout=5)
    assert caught.value.fault == "engine"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN}', "[" * 100_000, '{"a":' + "9" * 10_000 + "}", None])
def test_infos_that_are_no_json_objects(text: Any) -> None:
    with pytest.raises(errors.MalformedMessage, match="not a JSON object"):
        lonely(Flood(encode(Method.ENV_INFO, M.EnvInfoT(envId=0, json=text)))).drain()


@pytest.mark.parametrize("env", [-1, 1, 2**31 - 1])
def test_infos_of_envs_that_do_not_exist(env: int) -> None:
    with pytest.raises(errors.UnknownEnv):
        lonely(Flood(encode(Method.ENV_INFO, M.EnvInfoT(envId=env, json="{}")))).drain()


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"a": NaN}', b"\xff{}", b"[" * 100_000])
def test_json_entries_that_are_no_json_objects(text: bytes) -> None:
    entry = json_entry(Method.ENV_INFO, 0, {}, 100)[:-2] + text
    with pytest.raises(errors.MalformedMessage, match=r"not a JSON object.*at fault: engine"):
        lonely(Flood(entry)).drain()


def test_json_entries_of_another_kind_or_env() -> None:
    for wrong in (json_entry(Method.RESET_OPTIONS, 0, {}, 100), b"JSON", b"JSON" + bytes(7)):
        with pytest.raises(errors.MalformedMessage, match="another kind"):
            lonely(Flood(wrong)).drain()
    for env in (-1, 1, 2**31 - 1):
        with pytest.raises(errors.UnknownEnv):
            lonely(Flood(json_entry(Method.ENV_INFO, env, {}, 100))).drain()


@pytest.mark.parametrize(
    "entry",
    [json_entry(Method.ENV_INFO, 0, {}, 100), json_entry(Method.RESET_OPTIONS, 3, {}, 100), b"JSON1234", b"JSON" * 4],
)
def test_broken_options_end_the_session_and_are_never_applied(entry: bytes) -> None:
    game = Game()
    with run_shm_in_thread(game) as handle:
        with SharedMemoryConnection(handle.name, timeout=10) as connection:
            connection.commands.send_entry(entry)
            with pytest.raises(errors.EngineDisconnected):
                connection.reset()
                connection.receive()
        with SharedMemoryConnection(handle.name, timeout=10) as connection:
            connection.reset()
            connection.receive()
    assert game.resets == [([0, 1, 2], [None] * 3, [None] * 3)]


def test_a_peer_that_sends_infos_and_options_as_flatbuffers_is_read() -> None:
    game = Game()
    with unhosted(game) as (host, connection):
        options = M.ResetOptionsT(envId=1, json='{"level": 4}')
        connection.commands.send(Method.RESET_OPTIONS, options)
        connection.reset()
        host._write(encode(Method.ENV_INFO, M.EnvInfoT(envId=2, json='{"old": true}')))
        assert host.tick(0)
        infos = connection.receive().infos
        assert game.resets == [([0, 1, 2], [None] * 3, [None, {"level": 4}, None])]
        assert infos == {0: {"reset": 1}, 1: {"reset": 1}, 2: {"reset": 1}}  # the engine's own came later
        host._write(encode(Method.ENV_INFO, M.EnvInfoT(envId=2, json='{"old": true}')))
        assert connection.commands.poll() == []
        assert connection.buffers.infos[2] == {"old": True}


WITHOUT_FLATBUFFERS = """
import sys, logging
sys.modules["flatbuffers"] = None
logging.basicConfig(level="WARNING")
import numpy as np
import ue_rl
from ue_rl import errors
from ue_rl.bridges import ShmUpgrader, VectorBridge, run_in_thread
from ue_rl.spec import EnvSpec

class Game(VectorBridge):
    def reset_envs(self, env_ids, seeds, options):
        for env, option in zip(env_ids.tolist(), options):
            self.write_info(env, {"given": option})

    def step_envs(self, actions, env_ids):
        for env in env_ids.tolist():
            self.write_info(env, {"env": np.int64(env)})
            self.outbox.dones[env] = 1

game = Game(EnvSpec(1, 1, num_envs=2, features=frozenset({"OPTIONS", "INFO"})))
with run_in_thread(game, upgrader=ShmUpgrader()) as server:
    env = ue_rl.connect(server.url, timeout=10)
    print(env.transport.describe()["transport"])
    env.set_options({"low": np.float32(-0.5)})
    env.reset()
    print(env.reset_infos)
    print([info["env"] for info in env.step(np.zeros((2, 1), np.float32))[3]])
    try:
        env.transport.commands.ping()
    except errors.ConfigurationError as error:
        print(error.cure)
    env.step(np.zeros((2, 1), np.float32))
    env.close()
"""


def test_infos_and_options_need_no_flatbuffers() -> None:
    out = subprocess.run(
        [sys.executable, "-c", WITHOUT_FLATBUFFERS], capture_output=True, text=True, timeout=120, check=False
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines() == [
        "shared memory",
        "[{'given': {'low': -0.5}}, {'given': {'low': -0.5}}]",
        "[0, 1]",
        "pip install flatbuffers",
    ]
    assert not out.stderr


EVENTS_WITHOUT_FLATBUFFERS = """
import sys, logging
sys.modules["flatbuffers"] = None
logging.basicConfig(level="WARNING")
import numpy as np
import ue_rl
from ue_rl.bridges import ShmUpgrader, VectorBridge, run_in_thread
from ue_rl.spec import EnvSpec

class Game(VectorBridge):
    def reset_envs(self, env_ids, seeds, options):
        pass

    def step_envs(self, actions, env_ids):
        print(self.send_event(1000))

with run_in_thread(Game(EnvSpec(1, 1, num_envs=2)), upgrader=ShmUpgrader()) as server:
    for transport in ("auto", "tcp"):
        env = ue_rl.connect(server.url, transport, timeout=10)
        print(env.transport.describe()["transport"])
        env.reset()
        for _ in range(2):
            env.step(np.zeros((2, 1), np.float32))
        env.close()
"""


def test_a_game_that_sends_events_goes_on_without_flatbuffers() -> None:
    out = subprocess.run(
        [sys.executable, "-c", EVENTS_WITHOUT_FLATBUFFERS], capture_output=True, text=True, timeout=120, check=False
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines() == ["shared memory", "False", "False", "tcp", "False", "False"]
    assert len(out.stderr.splitlines()) == 1
    assert "need the package flatbuffers" in out.stderr


def test_events_that_cannot_be_read_without_flatbuffers_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with unhosted(Game()) as (host, connection):
        connection.commands.ping()
        for _ in range(3):
            assert host.send(Method.CLOSE, M.CloseT())

        def missing() -> Any:
            raise errors.ConfigurationError("commands over shared memory need the package flatbuffers")

        ping = encode(Method.PING, M.PingT(stamp=1), 5)
        monkeypatch.setattr("ue_rl.commands.envelope.messages", missing)
        connection.send_actions(np.zeros((3, 1), np.float32))
        assert host.tick(0)
        assert connection.receive().rewards.tolist() == [1, 1, 1]
        assert connection.commands.dropped == 3
        assert len([line for line in caplog.messages if "flatbuffers" in line]) == 1
        connection.commands.send_entry(ping)
        assert host.tick(0) is False
        assert "cannot be read or answered" in caplog.text
        connection.send_actions(np.zeros((3, 1), np.float32))
        assert host.tick(0)
        connection.receive()


# -- full rings


def fill_from_trainer(connection: SharedMemoryConnection, data: bytes) -> int:
    connection.commands.timeout = 0
    for count in range(100_000):
        try:
            connection.commands.send_entry(data)
        except errors.RingFull:
            connection.commands.timeout = 10
            return count
    raise AssertionError("the ring never filled")


def fill_from_engine(host: ShmHost) -> int:
    for count in range(100_000):
        try:
            assert host.send(2000, M.PingT(stamp=count), timeout=0)
        except errors.RingFull:
            return count
    raise AssertionError("the ring never filled")


def test_a_full_ring_to_the_engine(slack: float) -> None:
    with unhosted(Game(), ticking=False, ring_size=4096) as (host, connection):
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
        connection.commands._wait = lambda ms: host.tick(0) and None
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


def test_a_trainer_that_dies_with_a_full_ring_does_not_hold_the_game(
    monkeypatch: pytest.MonkeyPatch, slack: float
) -> None:
    """The writer looks after its reader while it waits: it does not wait out the five seconds."""
    game = Game()
    with unhosted(game, ring_size=4096) as (host, connection):
        connection.commands.ping()
        fill_from_engine(host)
        connection.send_actions(np.ones((3, 1), np.float32))
        monkeypatch.setattr("ue_rl.processes.alive", lambda *_: False)
        begun = time.monotonic()
        assert host.tick(0) is False
        assert time.monotonic() - begun < 2 * slack
        assert not host._serving
        assert game.send_event(2000) is False


# -- a side that dies, or breaks the protocol


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
        host._write(b"\xff" * 40)
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
        commands.ping, commands.poll, lambda: commands.send(2000), commands.wait_event, lambda: connection.commands
    ]  # fmt: skip
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
sys.path.insert(0, {tests!r})
from test_over_shm import Game
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
    code = DYING.format(tests=str(__file__).rpartition("/")[0])
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
    with unhosted(Game(), ticking=False) as (host, connection):
        real = connection.commands._wait

        def close(ms: int) -> None:
            host.close()
            real(ms)

        connection.commands._wait = close
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
