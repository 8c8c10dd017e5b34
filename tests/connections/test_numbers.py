"""The numbers of requests (FEATURES=SEQ): an answer that is late, or comes twice, is never taken for another."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.clocks import EngineClock
from tests.support.steps import advance, begin
from ue_rl.connections import open_engine
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing.engines.loop import LineEngine
from ue_rl.system import errors
from ue_rl.system.timing import Timing

LATE = Path(__file__).parents[2] / "benchmarks" / "late_answers.py"
N = 3
ACTIONS = np.zeros((N, 1), np.float32)
Change = Callable[[str, str], str]  # (rows, number) -> the line that answers


PARAMS = ";PARAMS=wind:0"


class Numbered(LineEngine):
    """An engine with N envs, and whose answer number `at` is what `change` makes of its rows and its number."""

    def __init__(
        self,
        change: Change,
        *,
        channel: str = "SHARED",
        at: int = 2,
        words: str = PARAMS + ";FEATURES=SEQ",
        threaded: bool = True,
    ) -> None:
        self._change, self._channel, self._at, self._words = change, channel, at, words
        self.sessions = 0
        self.lines: list[str] = []
        super().__init__("numbered", "127.0.0.1", N + 1, threaded=threaded)

    def _take(self, sock: socket.socket) -> None:
        if self.admin is not None:
            self.env_socks.append(sock)
            return
        self.admin = sock
        self.sessions += 1
        config = f"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT={N};VERSION=1;CHANNEL={self._channel}"
        self._send(sock, f"{config}{self._words}\n".encode())

    def _answer(self, sock: socket.socket, line: bytes) -> None:
        text = line.decode().strip()
        self.lines.append(text)
        asks, _, number = text.partition(";SEQ=")
        rows = "VALUES=wind:0"
        if not asks.startswith("GET"):
            rows = "||".join(
                f"OBS=0;REW=0;DONE=0;ENV={ask.partition('ENV=')[2] or self.env_socks.index(sock)}"
                for ask in asks.split("||")
            )
        struck = number == str(self._at)
        answer = self._change(rows, number) if struck else f"{rows};SEQ={number}" if number else rows
        self._send(sock, f"{answer}\n".encode())


WIRINGS = [("shared", True), ("per_env", True), ("shared", False), ("per_env", False)]
per_wiring = pytest.mark.parametrize(
    ("channel", "compiled"), WIRINGS, ids=[f"{c}-{'compiled' if k else 'pure'}" for c, k in WIRINGS]
)


def take_steps(engine: Any, channel: str, compiled: bool, steps: int = 5) -> None:
    connection = open_engine("127.0.0.1", engine.port, transport="tcp", channel=channel, compiled=compiled, timeout=10)
    try:
        begin(connection)
        for _ in range(steps):
            advance(connection, ACTIONS)
    finally:
        connection.close()


MISTAKES: dict[str, tuple[Change, type[errors.UeRlError], str]] = {
    "none": (lambda rows, n: rows, errors.MalformedMessage, "without the number of its request"),
    "in the first row": (
        lambda rows, n: rows.replace("DONE=0", f"DONE=0;SEQ={n}", 1) + ";X=1", errors.MalformedMessage, "without the",
    ),
    "in a row, and at the end": (
        lambda rows, n: rows.replace("DONE=0", f"DONE=0;SEQ={n}", 1) + f";SEQ={n}", errors.MalformedMessage,
        "once, at the end",
    ),
    "in front": (lambda rows, n: f"SEQ={n};{rows};SEQ={n}", errors.MalformedMessage, "once, at the end"),
    "another before it": (lambda rows, n: f"{rows}; seq = x ;SEQ={n}", errors.MalformedMessage, "once, at the end"),
    "no number": (lambda rows, n: f"{rows};SEQ=two", errors.MalformedMessage, "cannot be read"),
    "zero": (lambda rows, n: f"{rows};SEQ=0", errors.MalformedMessage, "cannot be read"),
    "nothing": (lambda rows, n: f"{rows};SEQ=", errors.MalformedMessage, "cannot be read"),
    "too long": (lambda rows, n: f"{rows};SEQ=0000000000000000002", errors.MalformedMessage, "cannot be read"),
    "lower": (lambda rows, n: f"{rows};SEQ={int(n) - 1}", errors.UnexpectedMessage, "twice or too late"),
    "higher": (lambda rows, n: f"{rows};SEQ={n}1", errors.UnexpectedMessage, "never made"),
    "twice": (lambda rows, n: f"{rows};SEQ={n}\n{rows};SEQ={n}", errors.UnexpectedMessage, "twice or too late"),
    "the one before": (
        lambda rows, n: f"{rows};SEQ={int(n) - 1}\n{rows};SEQ={n}", errors.UnexpectedMessage, "twice or too late",
    ),
}  # fmt: skip


@per_wiring
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_number_is_a_named_error(mistake: str, channel: str, compiled: bool) -> None:
    change, kind, said = MISTAKES[mistake]
    with Numbered(change, channel="ANY") as engine:
        with pytest.raises(kind, match=said) as caught:
            take_steps(engine, channel, compiled)
        assert type(caught.value) is kind
        assert (caught.value.field, caught.value.fault) == ("SEQ", "engine")
        of_row = (N - 1 if mistake == "another before it" else 0) if "once" in said else None
        assert caught.value.env_id == (0 if channel == "per_env" else of_row)


SPELLINGS: dict[str, Change] = {
    "spaces": lambda rows, n: f"{rows} ; SEQ = {n} \t",
    "case": lambda rows, n: f"{rows};seq={n}",
    "zeros": lambda rows, n: f"{rows};SEQ=000{n}",
    "carriage return": lambda rows, n: f"{rows};SEQ={n}\r",
    "semicolon behind": lambda rows, n: f"{rows};SEQ={n};",
    "empty lines around": lambda rows, n: f"\r\n\n{rows};SEQ={n}\n",
    "lines of blanks around": lambda rows, n: f" \t\n{rows};SEQ={n}\n \r\n\t",
    "beside an unknown field": lambda rows, n: f"{rows};X=1;SEQ={n}",
}


@per_wiring
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings(spelling: str, channel: str, compiled: bool, caplog: pytest.LogCaptureFixture) -> None:
    with Numbered(SPELLINGS[spelling], channel="ANY") as engine:
        take_steps(engine, channel, compiled)
    assert "SEQ" not in caplog.text  # it is no unknown field


@per_wiring
def test_an_end_of_the_session_has_no_number(channel: str, compiled: bool) -> None:
    with Numbered(lambda rows, n: "ERROR=out%20of%20memory", channel="ANY") as engine:
        with pytest.raises(errors.EngineDisconnected, match="out of memory"):
            take_steps(engine, channel, compiled)


def numbers_of(lines: list[str]) -> list[str]:
    return [line.rpartition(";SEQ=")[2] for line in lines]


@pytest.mark.parametrize("compiled", [True, False])
def test_what_a_trainer_counts(compiled: bool) -> None:
    with Numbered(lambda rows, n: f"{rows};SEQ={n}", channel="ANY") as engine:
        connection = open_engine("127.0.0.1", engine.port, transport="tcp", channel="shared", compiled=compiled)
        begin(connection)
        assert connection.call("GET") == "VALUES=wind:0"
        advance(connection, ACTIONS, [1])
        begin(connection, [2])
        connection.close()
        assert engine.lines == [
            "ACT=RESET;ENV=0||ACT=RESET;ENV=1||ACT=RESET;ENV=2;SEQ=1",
            "GET;SEQ=2",
            "ACT=0;ENV=0||ACT=0;ENV=2||ACT=RESET;ENV=1;SEQ=3",
            "ACT=RESET;ENV=2;SEQ=4",
        ]
        assert connection.last_number == 4
        engine.lines.clear()
        connection = open_engine("127.0.0.1", engine.port, transport="tcp", channel="per_env", compiled=compiled)
        begin(connection, [1])
        connection.call("GET")
        advance(connection, ACTIONS, [1])
        connection.close()
        assert engine.lines[:2] == ["ACT=RESET;SEQ=1", "GET;SEQ=1"]
        assert sorted(engine.lines[2:]) == ["ACT=0;SEQ=1", "ACT=0;SEQ=1", "ACT=RESET;SEQ=2"]
        assert connection.last_number == 2


@pytest.mark.parametrize("channel", ["shared", "per_env"])
@pytest.mark.parametrize(
    ("numbers", "kind", "said"),
    [("7", errors.UnexpectedMessage, "never made"), ("7;SEQ=1", errors.MalformedMessage, "once, at the end")],
)
def test_the_answer_to_a_call_has_its_number(
    numbers: str, kind: type[errors.UeRlError], said: str, channel: str
) -> None:
    with Numbered(lambda rows, n: f"{rows};SEQ={numbers}", at=1, channel="ANY") as engine:
        connection = open_engine("127.0.0.1", engine.port, transport="tcp", channel=channel)
        with pytest.raises(kind, match=said) as caught:
            connection.call("GET")
        assert caught.value.field == "SEQ"
        with pytest.raises(errors.ConnectionUnusable):
            connection.reset()


def test_engines_that_do_not_number_are_sent_none() -> None:
    for features in ("SEED", "ERROR"):
        with Numbered(lambda rows, n: rows, words=f"{PARAMS};FEATURES={features}", channel="ANY") as engine:
            for channel, compiled in WIRINGS:
                take_steps(engine, channel, compiled, 2)
            assert not any("SEQ" in line for line in engine.lines)


# -- after a loss


def clock(engine: Any) -> Timing:
    """A trainer's, with an engine without a thread."""
    return EngineClock(engine.turn, 0.005).timing


def go_on(transport: Any, action: float) -> None:
    _ = begin(transport) if transport.buffers.lost else advance(transport, action)


@pytest.mark.parametrize("channel", ["shared", "per_env"])
@pytest.mark.parametrize("fault", ["double", "delay", "next", "drop", "swap"])
def test_no_row_is_wrong_where_an_answer_goes_wrong(fault: str, channel: str, load_script: Any) -> None:
    """benchmarks/late_answers.py makes hundreds of such runs."""
    script = load_script(LATE)
    for delay, step, lengths in ((0, 1, (10, 10, 10, 10)), (5, 1, (7, 10, 12, 9)), (5, 0, (7, 10, 12, 9))):
        seen = script.run(script.Case(fault, delay, step, channel, lengths), clock=clock)
        assert seen.rows > 200
        assert seen.wrong == 0
        assert fault in ("double", "delay") or seen.errors


@pytest.mark.parametrize("channel", ["shared", "per_env"])
@pytest.mark.parametrize("compiled", [True, False])
def test_an_answer_to_the_lost_connection_is_dropped_and_counted(
    channel: str, compiled: bool, load_script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    script = load_script(LATE)
    with script.LateEngine(script.Case("next", 0, 0, channel, at=3), threaded=False) as engine:
        options: dict[str, Any] = {"channel": channel, "compiled": compiled, "timing": clock(engine)}
        transport: Any = open_transport(engine.url, "tcp", timeout=0.2, connect_timeout=20, reconnect=5, **options)
        begin(transport)
        for tag in (11, 12, 13, 14):
            go_on(transport, tag)
        np.testing.assert_array_equal(transport.buffers.obs[:, 1], [14, 14, 14, 14])
        assert transport.describe()["late answers"] == "1 dropped"
        assert caplog.text.count("answers are dropped") == 1
        transport.close()


class Forgetful(Numbered):
    """An engine that does not number its answers, and whose answer to a step comes on the next connection."""

    def __init__(self, channel: str = "SHARED", calls: bool = True, late: str = "") -> None:
        self.late = late
        super().__init__(lambda rows, n: rows, channel=channel, words=PARAMS if calls else "", threaded=False)

    def _answer(self, sock: socket.socket, line: bytes) -> None:
        if self.sessions == 1 and b"ACT=1" in line:  # not in this session
            self.lines.append(line.decode().strip())
            return
        if self.sessions == 2 and self.late:
            late, self.late = self.late, ""
            self._send(self.env_socks[0] if self.env_socks else sock, late.encode() + b"\n")
        super()._answer(sock, line)


ALL = "||".join(f"OBS=9;REW=9;DONE=0;ENV={env}" for env in range(N))


@pytest.mark.parametrize(
    ("channel", "calls", "late", "asked", "said"),
    [
        ("SHARED", True, ALL, "GET", "asked a call first"),
        ("SHARED", False, ALL, "ACT=RESET;ENV=0", "env 0 was reset alone first"),
        ("PER_ENV", True, "OBS=9;REW=9;DONE=0", "GET", "asked a call first"),
        ("PER_ENV", False, "", "ACT=RESET", "nothing can tell"),
    ],
)
def test_an_engine_without_numbers_must_answer_before_it_is_trusted(
    channel: str, calls: bool, late: str, asked: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Forgetful(channel, calls, late) as engine:
        timing = EngineClock(engine.turn).timing
        options: dict[str, Any] = {"timeout": 0.3, "connect_timeout": 5, "reconnect": 20, "restarts": 5}
        transport: Any = open_transport(engine.url, "tcp", timing=timing, **options)
        begin(transport)
        assert advance(transport, 1).lost
        engine.lines.clear()
        for _ in range(4):
            go_on(transport, 0)
            assert (transport.buffers.obs == 0).all()
            assert (transport.buffers.rewards == 0).all()
        assert engine.lines[0] == asked
        assert engine.sessions == (3 if late else 2)
        assert caplog.text.count("does not number its answers") == caplog.text.count(said) == 1
        transport.close()


@pytest.mark.parametrize(("channel", "compiled"), WIRINGS)
def test_without_numbers_a_second_answer_that_is_there_is_found_before_the_next_step(
    channel: str, compiled: bool
) -> None:
    with Numbered(lambda rows, n: rows, words=f"{PARAMS};FEATURES=ERROR", channel="ANY") as engine:
        connection = open_engine("127.0.0.1", engine.port, transport="tcp", channel=channel, compiled=compiled)
        begin(connection)
        advance(connection, ACTIONS)
        sock = engine.env_socks[1] if channel == "per_env" else engine.admin
        assert sock is not None
        sock.sendall(b"OBS=0;REW=0;DONE=0;ENV=1\n")
        with pytest.raises(errors.UnexpectedMessage, match="nobody asked for"):
            for _ in range(100):  # it may not have come before the first of them
                advance(connection, ACTIONS)
        connection.close()
