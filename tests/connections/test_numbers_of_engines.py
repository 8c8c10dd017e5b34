"""The numbers of requests (FEATURES=SEQ) as a bridge echoes them: in each answer that of the request it answers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.games import Steps
from tests.support.steps import begin
from ue_rl.bridges import run_in_thread
from ue_rl.bridges.tcp.numbers import RequestNumbers
from ue_rl.connections import open_engine
from ue_rl.devtools.testing.raw_client import RawClient
from ue_rl.protocol.spec import AgentGroup, Channel, EnvSpec, EnvType
from ue_rl.protocol.text import Codec

N = 3


class Slow(Steps):
    """Actions of 1 and more run until the test ends them."""

    def is_action_running_for_env(self, env_id: int) -> bool:
        return self.acted[env_id] >= 1

    def end(self) -> None:
        """All of them, in one tick."""
        with self.lock:
            self.acted = [0.0] * N


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


def test_rows_of_two_requests_are_answered_in_lines_of_their_own(slow: tuple[Slow, RawClient]) -> None:
    bridge, client = slow
    assert rows(client.ask("ACT=1;ENV=0||ACT=0;ENV=1||ACT=1;ENV=2;SEQ=4")) == [(1, "4")]
    assert rows(client.ask("ACT=0;ENV=1;SEQ=5")) == [(1, "5")]
    client.send("ACT=1;ENV=1;SEQ=6\n")
    while bridge.acted[1] < 1:
        time.sleep(0.001)
    bridge.end()
    answers = sorted([rows(client.line()), rows(client.line())], key=str)
    assert answers == [[(0, "4"), (2, "4")], [(1, "6")]]
    assert rows(client.ask("ACT=0;ENV=0||ACT=0;ENV=1||ACT=0;ENV=2;SEQ=7")) == [(0, "7"), (1, "7"), (2, "7")]
    assert rows(client.ask("ACT=1;ENV=0||ACT=0;ENV=1;SEQ=8")) == [(1, "8")]
    client.send("ACT=0;ENV=1\n")  # without a number
    assert client.line().endswith("ENV=1")
    bridge.end()
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
    numbers, command = RequestNumbers(codec), np.array([1, 1, 2, 2], np.uint8)
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
