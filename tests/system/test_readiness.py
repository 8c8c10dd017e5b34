"""Sockets whose descriptors are beyond what select takes; one test a kind of user."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.devtools.check.games import Walk
from tests.support.carriers import CARRIERS, over
from tests.support.descriptors import SELECT_ENDS, many_are_open
from tests.support.games import Sum
from tests.support.steps import advance, begin
from ue_rl.bridges import run_in_thread
from ue_rl.devtools.check import Options, check
from ue_rl.devtools.testing.raw_client import RawClient
from ue_rl.protocol.spec import Channel, EnvSpec
from ue_rl.system.readiness import ready_to_read, ready_to_write


@pytest.fixture
def high_descriptors() -> Iterator[None]:
    with many_are_open():
        yield


@pytest.mark.usefixtures("high_descriptors")
def test_those_are_named_that_have_something_or_room() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert ours.fileno() > SELECT_ENDS
        assert ready_to_read([ours, theirs], 0.0) == []
        assert ready_to_write([ours], 0.0) == [ours]
        theirs.sendall(b"x")
        assert ready_to_read([theirs, ours], 10.0) == [ours]
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                theirs.send(bytes(1 << 16))
        assert ready_to_write([theirs], 0.0) == []


def test_a_peers_close_is_something_to_read() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        threading.Timer(0.05, theirs.close).start()
        assert ready_to_read([ours], 10.0) == [ours]
    with pytest.raises(ValueError):
        ready_to_read([ours], 0.0)


@pytest.mark.usefixtures("high_descriptors")
def test_a_check_of_an_engine() -> None:
    with run_in_thread(Walk()) as engine:
        report = check(
            engine.url,
            Options(timeout=20.0, patience=0.5),
            only=["requests in two pieces", "several lines in one write"],
        )
    assert report.findings
    assert not report.mistakes


@pytest.mark.usefixtures("high_descriptors")
def test_a_raw_client() -> None:
    with run_in_thread(Walk()) as engine:
        client = RawClient(("127.0.0.1", engine.port))
        assert client.sock.fileno() > SELECT_ENDS
        assert client.line().startswith("CONFIG:")
        assert not client.has_data()
        client.sock.close()


@pytest.mark.usefixtures("high_descriptors")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_env_steps_over_each_carrier(carrier: str) -> None:
    channel = Channel.PER_ENV if carrier.startswith("per_env") else Channel.SHARED
    with over(carrier, Sum(EnvSpec(1, 1, num_envs=3, channel=channel))) as transport:
        begin(transport)
        advance(transport, 1.0)
        assert advance(transport, 2.0).obs.tolist() == [[3.0]] * 3
