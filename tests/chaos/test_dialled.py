"""Engines that run by themselves, behind a network that fails: `ue-rl train --port`, with and without --reconnect."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.chaos.conftest import over_tcp, shm_in_each_run
from ue_rl.devtools.testing import ChaosEngine, FaultyNetwork, RawClient


@dataclass
class Line:
    """A trainer that trains in `engine` through `network`. It waits `slack` seconds for an answer."""

    engine: ChaosEngine
    network: FaultyNetwork
    stage: Any
    slack: float

    def train(self, *words: Any, steps: int = 60) -> Any:
        """Starts, and waits until it has made so many steps."""
        run = self.stage.dial(self.network.url, "--timeout", f"{self.slack:.1f}", *words)
        if steps:
            self.stage.wait_for_steps(steps)
        return run


@pytest.fixture
def line(stage: Any, slack: float) -> Iterator[Line]:
    with stage.engine(step_seconds=0.001) as engine, FaultyNetwork(engine.url) as network:
        yield Line(engine, network, stage, slack)


def kill(line: Line) -> None:
    line.engine.kill()


def freeze(line: Line) -> None:
    line.engine.freeze()


def cut(line: Line) -> None:
    line.network.cut(0, reset=True)


def hold(line: Line) -> None:
    for connection in range(line.network.count):
        line.network.hold(connection)


def garble(line: Line) -> None:
    line.network.garble(b"\xff\x00\x17" * 20 + b"\n")


STOPS: dict[str, tuple[Callable[[Line], None], str]] = {
    "killed": (kill, r"EngineDisconnected"),
    "frozen": (freeze, r"EngineTimeout"),
    "cut": (cut, r"EngineDisconnected"),
    "half-open": (hold, r"EngineTimeout"),
    "garbage": (garble, r"ProtocolError|Malformed|Unexpected"),
}


# Once shared memory is agreed upon, the socket only rings: garbage on it stops nothing.
HARMLESS = "garbage"


# Each blow once in each run: of a run that stops, or of one that goes on.
nightly = pytest.mark.exhaustive
both_each_night = pytest.mark.parametrize("stage", ["tcp", "shm"], indirect=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "name"),
    [
        ("tcp", "killed"),
        ("shm", "frozen"),
        *(pytest.param("tcp", name, marks=nightly) for name in ("frozen", "cut", "half-open", "garbage")),
        pytest.param("shm", "killed", marks=nightly),
    ],
    indirect=["stage"],
)
def test_without_reconnect_the_run_stops_with_its_model(line: Line, name: str) -> None:
    blow, sees = STOPS[name]
    run = line.train("--timesteps", 1_000_000)
    blow(line)
    assert run.wait(60) == 1, run.text
    run.wait_for(sees, 0)
    run.wait_for(r"--resume", 0)
    assert "Traceback" not in run.text
    assert line.stage.newest_checkpoint().env_steps > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "name"),
    [
        ("tcp", "cut"),
        ("shm", HARMLESS),
        pytest.param("tcp", "garbage", marks=nightly),
        pytest.param("shm", "cut", marks=nightly),
    ],
    indirect=["stage"],
)
def test_with_reconnect_the_run_goes_on(line: Line, name: str) -> None:
    run = line.train("--reconnect", 10, "--timesteps", 1024, "--timeout", 20)  # no deadline notices these
    STOPS[name][0](line)
    assert run.wait(60) == 0, run.text
    assert line.network.count == (1 if line.stage.carrier == "shm" and name == HARMLESS else 2)
    assert line.stage.saved_steps() >= 1024


@shm_in_each_run
def test_an_engine_that_is_started_again_by_hand(line: Line) -> None:
    run = line.train("--reconnect", 20, "--timesteps", 1024)
    line.engine.kill()
    with line.stage.engine(port=line.engine.port):
        assert run.wait(60) == 0, run.text
    assert line.stage.record(0).lives[0] == 2


@nightly
@both_each_night
def test_an_engine_that_goes_on_late(line: Line) -> None:
    """It is stopped past the deadline, given up, and then it continues."""
    run = line.train("--reconnect", 20, "--timesteps", 1024)
    line.engine.freeze()
    run.wait_for(r"(no answer|did not answer|within).*")
    line.engine.thaw()
    assert run.wait(60) == 0, run.text


@nightly
@over_tcp
def test_a_half_open_connection_that_comes_back(line: Line) -> None:
    """The engine hears that its trainer has gone as soon as the network carries anything again."""
    run = line.train("--reconnect", 20, "--timesteps", 1024)
    hold(line)
    run.wait_for(r"is dialled for 20 s")
    line.network.release()
    assert run.wait(60) == 0, run.text


@nightly
@over_tcp
def test_a_half_open_connection_that_stays(line: Line) -> None:
    """The engine believes in its first trainer, so the second dial is told who that is; the run stops, and is saved."""
    seconds = round(line.slack)  # for the engine to say that it is busy
    run = line.train("--reconnect", seconds, "--timesteps", 1_000_000)
    hold(line)
    assert run.wait(60) == 1, run.text
    run.wait_for(rf"did not come back within {seconds} s.*serves a trainer", 0)
    run.wait_for(r"--resume", 0)
    assert line.stage.newest_checkpoint().env_steps > 0


@pytest.mark.slow
@over_tcp
def test_one_of_several_sockets_is_cut(line: Line) -> None:
    run = line.train("--channel", "per-env", "--reconnect", 10, "--timesteps", 1024)
    assert line.network.count == 3
    line.network.cut(1)
    assert run.wait(60) == 0, run.text
    assert line.network.count == 6


@nightly
@both_each_night
def test_a_slow_and_dripping_network_changes_nothing(line: Line) -> None:
    line.network.delay, line.network.piece = 0.002, 7
    run = line.train("--timeout", 20, steps=0)
    assert run.wait(60) == 0, run.text
    assert line.stage.saved_steps() >= 512
    assert line.network.count == 1


@pytest.mark.slow
@over_tcp
def test_probes_and_a_second_trainer_change_nothing(line: Line) -> None:
    with socket.create_connection(("127.0.0.1", line.engine.port)):  # before: silent, and gone when it trains
        time.sleep(0.05)
    run = line.train("--timesteps", 1_000_000, "--timeout", 20)
    with RawClient(("127.0.0.1", line.engine.port)) as silent:
        silent.send("GET / HTTP/1.1\r\n\r\n")
        before = line.stage.trainer
        second = line.stage.dial(line.engine.url, "--run-id", "second")
        assert second.wait(60) == 1, second.text
        line.stage.trainer = before
    done = line.stage.record(0).total
    line.stage.wait_for_steps(done + 100)
    run.signal(signal.SIGTERM)
    run.wait(60)
    assert run.code == 143, run.text
