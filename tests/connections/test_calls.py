"""EngineCalls over every carrier: parameters, time scale, pause, pictures and goals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest

from tests.harness.lab import Lab
from tests.support.carriers import WAITING, served
from tests.support.steps import advance, begin, totals
from ue_rl.bridges import run_in_thread
from ue_rl.bridges.tcp.server import ServerWaits
from ue_rl.cli.do_nothing import DoNothingBridge
from ue_rl.connections import MultiTcpConnection
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing import MemoryTransport, RawClient
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.protocol.spec import Parameter
from ue_rl.protocol.text import calls as lines
from ue_rl.protocol.transport import Transport
from ue_rl.system import errors

each_carrier = pytest.mark.parametrize("carrier", WAITING)
each_wiring = pytest.mark.parametrize("carrier", ["shared", "per_env"])


class Noted:
    """A transport whose calls are noted.

    Args:
        answer: to each of them; None: the engine's.
    """

    def __init__(self, transport: Transport, answer: str | None = None) -> None:
        self._transport = transport
        self._given = answer
        self.lines: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def call(self, line: str) -> str:
        self.lines.append(line)
        if self._given is None:
            return self._transport.call(line)
        return self._given


@contextmanager
def lab(
    carrier: str = "shared", num_envs: int = 3, bridge: Any = None, **options: Any
) -> Iterator[tuple[Lab, Any, EngineCalls]]:
    bridge = Lab(num_envs) if bridge is None else bridge
    with served(carrier, bridge, ring_size=4096) as (url, how):
        with open_transport(url, **{"timeout": 20.0, **how, **options}) as connection:
            yield bridge, connection, EngineCalls(connection)


@each_carrier
def test_all_calls_between_steps(carrier: str) -> None:
    with lab(carrier) as (bridge, connection, calls):
        assert connection.spec.parameters[0] == Parameter("gravity", 9.8, 0.0, 20.0)
        assert calls.get_parameters() == {"gravity": 9.8, "wind[m/s]": 0.0}  # before the first reset
        begin(connection)
        assert calls.set_parameters({"gravity": 3.5}) == {"gravity": 3.5}
        assert calls.set_parameters({"gravity": 1.5}, env_id=2) == {"gravity": 1.5}
        assert totals(connection, 0.5) == [4.0, 4.0, 2.0]
        assert calls.get_parameters(["gravity"], env_id=2) == {"gravity": 2.0}
        assert calls.list_parameters()["gravity"] == Parameter("gravity", 4.0, 0.0, 20.0)
        calls.set_time_scale(4)
        calls.pause()
        assert bridge.lockstep.paused
        assert totals(connection, 0.0) == [4.0, 4.0, 2.0]  # single steps go on
        calls.resume()
        picture = calls.render(0)
        assert picture.dtype == np.uint8
        assert picture.tolist() == np.arange(24).reshape(2, 4, 3).tolist()
        achieved = np.array([[1, 2], [3, 4], [0.1, 0]], np.float32)
        rewards = calls.compute_reward(achieved, np.zeros((3, 2), np.float32))
        assert rewards.dtype == np.float32
        assert rewards.tolist() == [-3.0, -7.0, -np.float32(0.1)]
        assert calls.compute_reward([1, 2], [1, 3]).tolist() == [-1.0]
        assert totals(connection, 1.0) == [5.0, 5.0, 3.0]
    assert bridge.scales == [4.0]
    assert bridge.pauses == [True, False]


@each_carrier
def test_parameters_travel_with_resets(carrier: str) -> None:
    with lab(carrier) as (bridge, connection, _):
        connection.draw_parameters = lambda env: {"gravity": 2.0 + env} if env != 1 else None
        assert begin(connection).obs[:, 0].tolist() == [2.0, np.float32(9.8), 4.0]
        resets = [entry for entry in bridge.log if entry[0] == "reset"]
        assert sorted(resets) == [("reset", 0, 2.0), ("reset", 1, 9.8), ("reset", 2, 4.0)], "they are set before it"
        assert advance(connection, 1, resets=[2]).obs[:, 0].tolist() == [
            3.0,
            np.float32(10.8),
            4.0,
        ]


@each_wiring
def test_goals_that_need_several_lines(carrier: str) -> None:
    rng = np.random.default_rng(0)
    achieved, desired = rng.normal(size=(2, 5000, 3)).astype(np.float32)
    with lab(carrier) as (_, connection, _calls):
        noted = Noted(connection)
        rewards = EngineCalls(cast(Transport, noted), call_limit=20_000).compute_reward(achieved, desired)
    assert len(noted.lines) > 10
    assert max(map(len, noted.lines)) < 20_000
    assert (rewards == -np.abs(achieved - desired).sum(axis=1)).all()


@each_carrier
def test_a_large_picture_and_then_a_step(carrier: str) -> None:
    """Over shared memory it comes in pieces, as it is larger than the ring."""
    bridge = Lab(2)
    shown = np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)
    bridge.render = lambda env_id: shown  # type: ignore[method-assign]
    with lab(carrier, bridge=bridge, timeout=20) as (_, connection, calls):
        assert (calls.render(1) == shown).all()
        if "shared" in carrier or "per_env" in carrier:
            assert connection._admin.lines.max_line < 1 << 20  # what a step may bring is as it was
        begin(connection)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda connection: EngineCalls(connection).render(1), "no picture"),
        (lambda connection: connection.call("SET=gravity:21"), "out of range"),
        (lambda connection: connection.call("GET;ENV=7"), "does not exist"),
    ],
)
@each_carrier
def test_refusals_cost_nothing(ask: Any, said: str, carrier: str) -> None:
    with lab(carrier) as (_, connection, calls):
        with pytest.raises(errors.CommandFailed, match=said):
            ask(connection)
        assert calls.get_parameters(["gravity"]) == {"gravity": 9.8}
        begin(connection)


def test_a_reason_in_any_script() -> None:
    with lab(num_envs=1) as (bridge, _, calls):
        bridge.broken = True
        with pytest.raises(errors.CommandFailed) as caught:
            calls.render(0)
    assert caught.value.got == "the game's code failed: ZeroDivisionError('no GPU \u2026 \u00e9')"


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda calls: calls.get_parameters(), "parameters"),
        (lambda calls: calls.set_parameters({"a": 1}), "parameters"),
        (lambda calls: calls.set_time_scale(2), "TIME_SCALE"),
        (lambda calls: calls.pause(), "PAUSE"),
        (lambda calls: calls.resume(), "PAUSE"),
        (lambda calls: calls.render(0), "RENDER"),
        (lambda calls: calls.compute_reward([1], [1]), "GOAL_REWARD"),
    ],
)
def test_what_the_engine_does_not_announce_is_never_sent(ask: Any, named: str) -> None:
    with lab(bridge=DoNothingBridge(2)) as (_, connection, _calls):
        noted = Noted(connection)
        calls = EngineCalls(cast(Transport, noted))
        with pytest.raises(errors.UnsupportedByEngine, match=named):
            ask(calls)
        assert calls.list_parameters() == {}
        assert noted.lines == []
        begin(connection)


@pytest.mark.parametrize(
    ("ask", "kind", "said"),
    [
        (lambda calls: calls.get_parameters(["mass"]), errors.UnsupportedByEngine, "mass"),
        (lambda calls: calls.set_parameters({"mass": 1}), errors.UnsupportedByEngine, "mass"),
        (lambda calls: calls.set_parameters({"gravity": 21}), errors.ConfigurationError, "0 to 20"),
        (lambda calls: calls.set_parameters({"gravity": float("nan")}), errors.ConfigurationError, "0 to 20"),
        (lambda calls: calls.set_parameters({"gravity": 1}, env_id=3), errors.ConfigurationError, "0 to 2"),
        (lambda calls: calls.set_time_scale(0), errors.ConfigurationError, "TIME_SCALE"),
        (lambda calls: calls.set_time_scale(float("inf")), errors.ConfigurationError, "finite"),
        (lambda calls: calls.render(3), errors.ConfigurationError, "0 to 2"),
        (lambda calls: calls.compute_reward([[1.0]], [[1.0, 2.0]]), errors.ConfigurationError, "shape"),
        (lambda calls: calls.compute_reward([np.nan], [1.0]), errors.ConfigurationError, "finite"),
    ],
)
def test_a_callers_mistake_costs_nothing(ask: Any, kind: type[Exception], said: str) -> None:
    with lab() as (_, connection, calls):
        with pytest.raises(kind, match=said):
            ask(calls)
        assert calls.set_parameters({}) == {}
        assert calls.compute_reward(np.empty((0, 2)), np.empty((0, 2))).shape == (0,)
        begin(connection)


@each_carrier
def test_no_call_while_a_step_is_under_way(carrier: str) -> None:
    with lab(carrier) as (_, connection, calls):
        connection.reset()
        with pytest.raises(errors.UnexpectedMessage, match="still unanswered"):
            calls.get_parameters()
        connection.receive()


def test_old_engines_are_asked_nothing() -> None:
    with lab(bridge=Lab(2, version=0)) as (_, connection, calls):
        with pytest.raises(errors.UnsupportedByEngine, match="no requests beside the steps"):
            connection.call("GET")
        with pytest.raises(errors.UnsupportedByEngine, match="no parameters"):
            calls.get_parameters()
        begin(connection)


@each_carrier
def test_an_engine_that_does_not_answer_a_call(carrier: str) -> None:
    bridge, hold = Lab(2), threading.Event()
    bridge.set_time_scale = lambda scale: hold.wait(5) and None  # type: ignore[method-assign, func-returns-value]
    with lab(carrier, bridge=bridge, timeout=0.3, connect_timeout=20) as (_, connection, calls):
        with pytest.raises(errors.EngineTimeout, match=r"within 0\.3 s") as caught:
            calls.set_time_scale(2)
        assert "TIME_SCALE" in str(caught.value)
        with pytest.raises(errors.ConnectionUnusable):
            connection.reset()
        hold.set()


# -- the engine's side, spoken to by hand


def test_a_call_as_the_first_line_leaves_the_wiring_open() -> None:
    bridge = Lab(2)
    # env sockets of which one is silent are taken behind this
    with run_in_thread(bridge, port=0, waits=ServerWaits(patience=0.1)) as server:
        for wiring in ("shared", "per_env"):
            with RawClient(("127.0.0.1", server.port)) as first:
                first.line()
                assert first.ask("GET=gravity") == "VALUES=gravity:9.8"
                first.send("\r\n\nGET=gra")
                first.send("vity\r\nPAUSE=0\n")
                assert [first.line(), first.line()] == ["VALUES=gravity:9.8", "OK"]
                if wiring == "shared":
                    assert first.ask("ACT=RESET;ENV=1").endswith("ENV=1")
                    assert first.ask("GET=gravity") == "VALUES=gravity:9.8"
                    continue
                with RawClient(("127.0.0.1", server.port)) as one, RawClient(("127.0.0.1", server.port)) as two:
                    assert first.ask("GET=gravity") == "VALUES=gravity:9.8"
                    assert one.ask("ACT=RESET").startswith("OBS=")
                    first.send("ACT=RESET;ENV=0\nHELLO\nGETTING=1\n")  # ignored
                    assert first.ask("RENDER;ENV=1").startswith("REFUSED=")
                    first.send("x" * 2_000_000 + "\n")  # ignored however long it is
                    assert first.ask("get") == "VALUES=gravity:9.8,wind[m/s]:0"
                    assert two.ask("ACT=RESET").startswith("OBS=")


def test_a_call_while_a_request_is_open_ends_the_session() -> None:
    bridge, running = Lab(2), threading.Event()
    bridge.is_action_running_for_env = lambda env_id: not running.is_set()  # type: ignore[method-assign]
    with run_in_thread(bridge, port=0) as server, RawClient(("127.0.0.1", server.port)) as first:
        first.line()
        assert first.ask("ACT=RESET;ENV=0").startswith("OBS=")
        first.send("ACT=0.5;ENV=0\nGET\n")
        assert b"VALUES" not in first.read_to_end()


def test_calls_beyond_the_limit_end_the_session() -> None:
    with run_in_thread(Lab(1), port=0) as server, RawClient(("127.0.0.1", server.port)) as first:
        first.line()
        assert first.ask("GET=" + ",".join(f"p{n}" for n in range(20_000))).startswith("REFUSED=")
        first.send("GET=" + "x" * lines.CALL_LIMIT)
        assert b"VALUES" not in first.read_to_end()


def test_calls_are_no_calls_where_nobody_announced_them() -> None:
    with run_in_thread(Lab(1, version=0), port=0) as server, RawClient(("127.0.0.1", server.port)) as first:
        first.line()
        first.send("GET\n")
        assert first.read_to_end() == b""


def test_the_game_goes_on_when_the_trainer_that_paused_it_has_gone() -> None:
    bridge = Lab(1)
    with run_in_thread(bridge, port=0) as server:
        connection = MultiTcpConnection("127.0.0.1", server.port)
        connection.connect()
        EngineCalls(connection).pause()
        connection.close()
        with MultiTcpConnection("127.0.0.1", server.port) as again:
            begin(again)
            assert bridge.pauses == [True, False]


@pytest.mark.parametrize(
    ("answer", "ask"),
    [
        ("VALUES=wind:1", lambda calls: calls.get_parameters(["gravity"])),
        ("OK", lambda calls: calls.set_parameters({"gravity": 3.0})),
        ("VALUES=gravity:1", lambda calls: calls.set_time_scale(2)),
        ("PICTURE=2,2,3;DATA=AAAA", lambda calls: calls.render(0)),
        ("REW=1", lambda calls: calls.compute_reward([[1.0], [2.0]], [[1.0], [2.0]])),
    ],
)
def test_a_wrong_answer_ends_the_connection(answer: str, ask: Any) -> None:
    """It may be the answer to something else: nothing that follows could be trusted."""
    transport = MemoryTransport(Lab(2))
    transport.connect()
    with pytest.raises(errors.ProtocolError):
        ask(EngineCalls(cast(Transport, Noted(transport, answer))))
    with pytest.raises(errors.ConnectionUnusable, match="failed before"):
        transport.reset()


def test_many_goals_of_the_longest_numbers_fit_into_calls() -> None:
    """Two pairs of this size are a few bytes beyond what one call may have."""
    longest = np.float32(-6.843686e15)
    assert lines.write_goals(np.float32([[longest]]), np.float32([[longest]])) == "GOALS=" + "/".join(
        ["-6843686000000000"] * 2
    )
    size = lines.CALL_LIMIT // (4 * len("-6843686000000000,")) + 1
    with lab("shared", num_envs=1) as (_, connection, calls):
        begin(connection)
        goals = np.full((2, size), longest, np.float32)
        assert calls.compute_reward(goals, goals).shape == (2,)
