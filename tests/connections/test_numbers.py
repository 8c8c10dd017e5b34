"""The numbers of requests (FEATURES=SEQ): an answer that is late, or comes twice, is never taken for another."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.steps import advance, begin
from ue_rl import errors
from ue_rl.bridges import MultiEnvBridge, run_in_thread
from ue_rl.bridges.tcp.numbers import Numbers
from ue_rl.connecting import open_transport
from ue_rl.connections import open_engine
from ue_rl.spec import AgentGroup, Channel, EnvSpec, EnvType
from ue_rl.system.compiled import load
from ue_rl.testing.engines.loop import LineEngine
from ue_rl.testing.raw_client import RawClient
from ue_rl.wire import Codec, kernels_pure

LATE = Path(__file__).parents[2] / "benchmarks" / "late_answers.py"
N = 3
ACTIONS = np.zeros((N, 1), np.float32)
Change = Callable[[str, str], str]  # (rows, number) -> the line that answers


class Numbered(LineEngine):
    """An engine with N envs, and whose answer number `at` is what `change` makes of its rows and its number."""

    def __init__(self, change: Change, *, channel: str = "SHARED", at: int = 2, features: str = "SEQ") -> None:
        self._change, self._channel, self._at, self._features = change, channel, at, features
        self.lines: list[str] = []
        super().__init__("numbered", "127.0.0.1", N + 1)

    def _take(self, sock: socket.socket) -> None:
        if self._admin is not None:
            self._envs.append(sock)
            return
        self._admin = sock
        config = f"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT={N};VERSION=1;CHANNEL={self._channel}"
        self._send(sock, f"{config};PARAMS=wind:0;FEATURES={self._features}\n".encode())

    def _answer(self, sock: socket.socket, line: bytes) -> None:
        text = line.decode().strip()
        self.lines.append(text)
        asks, _, number = text.partition(";SEQ=")
        rows = "VALUES=wind:0"
        if not asks.startswith("GET"):
            rows = "||".join(
                f"OBS=0;REW=0;DONE=0;ENV={ask.partition('ENV=')[2] or self._envs.index(sock)}"
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
def test_the_answer_to_a_call_has_its_number(channel: str) -> None:
    with Numbered(lambda rows, n: f"{rows};SEQ=7", at=1, channel="ANY") as engine:
        connection = open_engine("127.0.0.1", engine.port, transport="tcp", channel=channel)
        with pytest.raises(errors.UnexpectedMessage, match="never made"):
            connection.call("GET")
        with pytest.raises(errors.ConnectionUnusable):
            connection.reset()


def test_engines_that_do_not_number_are_sent_none() -> None:
    for features in ("SEED", "ERROR"):
        with Numbered(lambda rows, n: rows, features=features, channel="ANY") as engine:
            for channel, compiled in WIRINGS:
                take_steps(engine, channel, compiled, 2)
            assert not any("SEQ" in line for line in engine.lines)


# -- the engine's side


class Slow(MultiEnvBridge):
    """Actions of 1 and more run until the test ends them."""

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__(spec)
        self.running: set[int] = set()

    def handle_reset_for_env(self, env_id: int) -> None:
        self.running.discard(env_id)

    def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
        if actions[0] >= 1:
            self.running.add(env_id)

    def is_action_running_for_env(self, env_id: int) -> bool:
        return env_id in self.running

    def create_state_string_for_env(self, env_id: int) -> list[float]:
        return [float(env_id)]

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool]:
        return 0.0, False


@pytest.fixture
def slow() -> Iterator[tuple[Slow, RawClient]]:
    bridge = Slow(EnvSpec(1, 1, num_envs=N, channel=Channel.ANY))
    with run_in_thread(bridge) as server, RawClient(("127.0.0.1", server.port)) as client:
        assert "SEQ" in client.line().partition("FEATURES=")[2].split(",")
        yield bridge, client


def rows(line: str) -> list[tuple[int, str]]:
    """(env, number of the line) of each row."""
    text, _, number = line.partition(";SEQ=")
    return [(int(row.rpartition("ENV=")[2]), number) for row in text.split("||")]


def test_an_engine_echoes_what_came(slow: tuple[Slow, RawClient]) -> None:
    _, client = slow
    everybody = "||".join(f"ACT=0;ENV={env}" for env in range(N))
    for number in ("7", "3", "999999999999999999", "3"):  # it never judges
        assert client.ask(f"{everybody};SEQ={number}").endswith(f";ENV=2;SEQ={number}")
    assert client.ask(f"{everybody} ; seq = 0012 ;\r").endswith(";ENV=2;SEQ=12")
    for spelling in (everybody, f"{everybody};X=7"):
        assert "SEQ" not in client.ask(spelling)
    assert client.ask("GET;SEQ=8").startswith("REFUSED=")
    assert client.ask("GET ; seq = 9").endswith(";SEQ=9")
    assert "SEQ" not in client.ask("GET")


@pytest.mark.parametrize("number", ["x", "", "0", "-1", "1.0", "1234567890123456789", "7 8"])
@pytest.mark.parametrize("request_line", ["ACT=0;ENV=0", "GET"])
def test_a_number_that_is_none_ends_the_session(number: str, request_line: str, slow: tuple[Slow, RawClient]) -> None:
    _, client = slow
    assert "SEQ" in client.ask(f"{request_line};SEQ={number}")
    assert client.read_to_end() == b""


@pytest.mark.parametrize(
    "line", ["ACT=0;ENV=0;SEQ=5||ACT=0;ENV=1", "ACT=0;ENV=0;SEQ=5||ACT=0;ENV=1;SEQ=6", "ACT=0;ENV=0;SEQ=6;SEQ=6",
             "SEQ=6;ACT=0;ENV=0;SEQ=6", "GET;SEQ=5;SEQ=6", "GET;SEQ=x;X=1"],
)  # fmt: skip
def test_a_number_that_does_not_stand_last_ends_the_session(line: str, slow: tuple[Slow, RawClient]) -> None:
    _, client = slow
    assert "once%2C%20at%20the%20end%20of%20the%20line" in client.ask(line)
    assert client.read_to_end() == b""


@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_the_answer_to_a_call_has_one_number(channel: str) -> None:
    with Numbered(lambda rows, n: f"{rows};SEQ=7;SEQ={n}", at=1, channel="ANY") as engine:
        connection = open_engine("127.0.0.1", engine.port, transport="tcp", channel=channel)
        with pytest.raises(errors.MalformedMessage, match="once, at the end") as caught:
            connection.call("GET")
        assert caught.value.field == "SEQ"


def test_rows_of_two_requests_are_answered_in_lines_of_their_own(slow: tuple[Slow, RawClient]) -> None:
    bridge, client = slow
    assert rows(client.ask("ACT=1;ENV=0||ACT=0;ENV=1||ACT=1;ENV=2;SEQ=4")) == [(1, "4")]
    assert rows(client.ask("ACT=0;ENV=1;SEQ=5")) == [(1, "5")]
    client.send("ACT=1;ENV=1;SEQ=6\n")
    while 1 not in bridge.running:
        time.sleep(0.001)
    with bridge.lock:
        bridge.running.clear()  # all three in one tick
    answers = sorted([rows(client.line()), rows(client.line())], key=str)
    assert answers == [[(0, "4"), (2, "4")], [(1, "6")]]
    assert rows(client.ask("ACT=0;ENV=0||ACT=0;ENV=1||ACT=0;ENV=2;SEQ=7")) == [(0, "7"), (1, "7"), (2, "7")]
    assert rows(client.ask("ACT=1;ENV=0||ACT=0;ENV=1;SEQ=8")) == [(1, "8")]
    client.send("ACT=0;ENV=1\n")  # without a number
    assert client.line().endswith("ENV=1")
    with bridge.lock:
        bridge.running.clear()
    assert rows(client.line()) == [(0, "8")]


def test_env_sockets_have_numbers_of_their_own() -> None:
    with run_in_thread(Slow(EnvSpec(1, 1, num_envs=2, channel=Channel.ANY))) as server:
        address = ("127.0.0.1", server.port)
        with RawClient(address) as admin:
            admin.line()
            with RawClient(address) as one, RawClient(address) as two:
                one.send("ACT=RESET;SEQ=1\n")
                two.send("ACT=RESET\n")
                assert one.line().endswith(";ENV=0;SEQ=1")
                assert two.line().endswith(";ENV=1")
                assert two.ask("ACT=0;SEQ=9").endswith(";ENV=1;SEQ=9")
                assert admin.ask("GET;SEQ=1").endswith(";SEQ=1")
                assert one.ask("ACT=0;SEQ=2").endswith(";ENV=0;SEQ=2")


def test_all_agents_of_an_env_are_answered_with_one_number() -> None:
    one = EnvSpec(1, 1)
    features = frozenset({"SEQ"})
    codec = Codec(EnvSpec(1, 1, num_envs=2, groups=(AgentGroup("a", 2, one),), features=features))
    numbers, command = Numbers(codec), np.array([1, 1, 2, 2], np.uint8)
    numbers.asked(0, 4, None, command)
    command[:2] = 0  # env 0 has answered, and one of its agents is asked again
    before = command.copy()
    command[1] = 1
    numbers.asked(0, 5, before, command)
    lines = [(rows.tolist(), number) for rows, number in numbers.lines(None) if rows is not None]
    assert lines == [([2, 3], 4), ([0, 1], 5)]
    numbers.asked(0, 6, None, command)
    assert [*numbers.lines(None)] == [(None, 6)]


@pytest.mark.parametrize(
    ("spec", "announced"),
    [
        (EnvSpec(1, 1, num_envs=2), True),
        (EnvSpec(1, 1, EnvType.SINGLE), True),
        (EnvSpec(1, 1, num_envs=2, version=0), False),
        (EnvSpec(1, 1, EnvType.SINGLE, version=0), False),
        (EnvSpec(1, 1, EnvType.RLBASE), False),
    ],
)
def test_who_announces_it(spec: EnvSpec, announced: bool) -> None:
    bridge = Slow(spec)
    assert ("SEQ" in bridge.spec.features) is announced
    with run_in_thread(bridge) as server:
        connection = open_engine("127.0.0.1", server.port, transport="tcp")
        begin(connection)
        assert connection.last_number == int(announced)
        connection.close()


# -- after a loss


def late(load_script: Any) -> Any:
    return load_script(LATE)


@pytest.mark.parametrize("channel", ["shared", "per_env"])
@pytest.mark.parametrize("fault", ["double", "delay", "next", "drop", "swap"])
def test_no_row_is_wrong_where_an_answer_goes_wrong(fault: str, channel: str, load_script: Any) -> None:
    """benchmarks/late_answers.py makes hundreds of such runs."""
    script = late(load_script)
    for delay, step, lengths in ((0, 3, (10, 10, 10, 10)), (5, 3, (7, 10, 12, 9)), (5, 0, (7, 10, 12, 9))):
        seen = script.run(script.Case(fault, delay, step, channel, lengths))
        assert seen.rows > 200
        assert seen.wrong == 0
        assert fault in ("double", "delay") or seen.errors


@pytest.mark.parametrize("channel", ["shared", "per_env"])
@pytest.mark.parametrize("compiled", [True, False])
def test_an_answer_to_the_lost_connection_is_dropped_and_counted(
    channel: str, compiled: bool, load_script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    script = late(load_script)
    with script.LateEngine(script.Case("next", 0, 0, channel, at=3)) as engine:
        transport: Any = open_transport(
            engine.url, "tcp", channel=channel, timeout=0.05, connect_timeout=5, reconnect=5, compiled=compiled
        )
        begin(transport)
        for tag in (11, 12, 13, 14):
            lost = bool(transport.buffers.lost)
            if lost:
                transport.reset()
            else:
                transport.send_actions(np.full((4, 1), tag, np.float32))
            transport.receive()
        np.testing.assert_array_equal(transport.buffers.obs[:, 1], [14, 14, 14, 14])
        assert transport.describe()["late answers"] == "1 dropped"
        assert caplog.text.count("answers are dropped") == 1
        transport.close()


class Forgetful(Numbered):
    """An engine that does not number its answers, and whose answer to a step comes on the next connection."""

    def __init__(self, channel: str = "SHARED", calls: bool = True, late: str = "") -> None:
        super().__init__(lambda rows, n: rows, channel=channel, features="SEED")
        self._calls, self.late = calls, late
        self.sessions = 0

    def _take(self, sock: socket.socket) -> None:
        if self._admin is not None:
            self._envs.append(sock)
            return
        self._admin = sock
        self.sessions += 1
        config = f"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT={N};VERSION=1;CHANNEL={self._channel}"
        self._send(sock, f"{config}{';PARAMS=wind:0' if self._calls else ''}\n".encode())

    def _answer(self, sock: socket.socket, line: bytes) -> None:
        if self.sessions == 1 and b"ACT=1" in line:  # not in this session
            self.lines.append(line.decode().strip())
            return
        if self.sessions == 2 and self.late:
            late, self.late = self.late, ""
            self._send(self._envs[0] if self._envs else sock, late.encode() + b"\n")
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
        transport: Any = open_transport(engine.url, "tcp", timeout=0.3, connect_timeout=5, reconnect=10, restarts=5)
        begin(transport)
        assert advance(transport, 1).lost
        engine.lines.clear()
        for _ in range(4):
            if transport.buffers.lost:
                transport.reset()
            else:
                transport.send_actions(ACTIONS)
            transport.receive()
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
    with Numbered(lambda rows, n: rows, features="ERROR", channel="ANY") as engine:
        connection = open_engine("127.0.0.1", engine.port, transport="tcp", channel=channel, compiled=compiled)
        begin(connection)
        advance(connection, ACTIONS)
        sock = engine._envs[1] if channel == "per_env" else engine._admin
        assert sock is not None
        sock.sendall(b"OBS=0;REW=0;DONE=0;ENV=1\n")
        with pytest.raises(errors.UnexpectedMessage, match="nobody asked for"):
            for _ in range(100):  # it may not have come before the first of them
                advance(connection, ACTIONS)
        connection.close()


# -- both kernels


@pytest.mark.parametrize(
    ("line", "end", "number"),
    [
        (b"ACT=1;SEQ=7", 5, 7), (b"ACT=1", 5, 0), (b"", 0, 0), (b"SEQ=7", 5, 0), (b";SEQ=7", 0, 7), (b";;;", 3, 0),
        (b"ACT=1 ;\tseq\t=\r12 ; ", 6, 12), (b"ACT=1;SEQ=7;X=1", 15, 0), (b"ACT=1;XSEQ=7", 12, 0),
        (b"ACT=1;SEQX=7", 12, 0), (b"ACT=1;SEQ", 9, 0), (b"ACT=1;SEQ=", 5, -1), (b"ACT=1;SEQ=0", 5, -1),
        (b"ACT=1;SEQ=1e1", 5, -1), (b"ACT=1;SEQ=+1", 5, -1), (b"ACT=1;SEQ=1 1", 5, -1), (b"ACT=1;SEQ=\xb2", 5, -1),
        (b"ACT=1;SEQ=999999999999999999", 5, 10**18 - 1), (b"ACT=1;SEQ=1000000000000000000", 5, -1),
        (b"ACT=1;SEQ=7\n", 5, -1), (b"ACT=1;S\x05Q=7", 11, 0), (b"ACT=1;SEQ=7||ACT=2", 5, -1),
    ],
)  # fmt: skip
def test_where_a_number_stands(line: bytes, end: int, number: int) -> None:
    for kernels in (kernels_pure, load("kernels")):
        assert kernels.find_number(line, 0, len(line)) == (end, number)
        padded = bytearray(b";SEQ=5" + line + b";SEQ=6")
        found = kernels.find_number(padded, 6, 6 + len(line))
        assert found == (6 + end, number)
