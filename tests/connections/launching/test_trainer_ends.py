"""However a trainer ends, its engines end with it, and nothing of them stays: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.connections.launching.conftest import SERVES, keepers, lock_of, processes_with
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

TRAINER = """
import os, signal, sys, time
from pathlib import Path
from tests.connections.launching.standing_in import Dialled, Listened, python
from ue_rl.connections.launching.engine import LaunchedEngine

def start(token, code):
    engine = LaunchedEngine(python(code, token, "{port}"), 2, None, 0, None, Dialled, 20.0)
    connection = engine.open(Listened())
    print("ready", flush=True)
    return engine, connection

def wait():
    while True:  # not signal.pause(): it sleeps on after a signal that came just before it
        time.sleep(0.02)
"""
FAMILY = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(60)
"""
ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def trainer(token: str, then: str, engine: str = FAMILY + SERVES) -> Iterator[subprocess.Popen[str]]:
    """In a session of its own, as behind a terminal, with an engine that runs."""
    code = TRAINER + f"engine, connection = start({token!r}, {engine!r})\n" + textwrap.dedent(then)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        yield process
    finally:
        process.kill()
        process.communicate()


def test_kill_9_leaves_nothing(token: str) -> None:
    with trainer(token, "signal.pause()") as process:
        # the trainer, the keeper and its stand-in, the engine, its daemon
        eventually(lambda: len(processes_with(token)) >= 5)
        lock = lock_of(keepers(token)[0])
        assert lock.exists()
        process.kill()
        process.wait()
    eventually(lambda: not processes_with(token))
    assert not lock.exists()


def test_kill_9_of_its_children_and_then_of_itself(token: str) -> None:
    """Ray's workers kill their children when they end: the keeper must not be among them."""
    with trainer(token, "signal.pause()") as process:
        lock = lock_of(keepers(token)[0])
        eventually(lambda: len(processes_with(token)) >= 4)
        for child in psutil.Process(process.pid).children():
            child.kill()
        process.kill()
        process.wait()
        eventually(lambda: not processes_with(token))
    eventually(lambda: not lock.exists())


def test_kill_9_of_it_and_its_keeper_together(token: str) -> None:
    """The engine goes with the keeper; what it has started, as a script starts a game, goes too."""
    with trainer(token, "signal.pause()") as process:
        eventually(lambda: len(processes_with(token)) >= 5)
        (stand_in,) = psutil.Process(process.pid).children()
        (keeper,) = stand_in.children()
        for each in (keeper, process):
            each.kill()
        process.wait()
        eventually(lambda: not processes_with(token))


def test_kill_9_of_the_keeper_alone(token: str) -> None:
    with trainer(token, "engine._process.ended.wait(); time.sleep(60)") as process:
        eventually(lambda: len(processes_with(token)) >= 5)
        psutil.Process(process.pid).children()[0].children()[0].kill()
        eventually(lambda: [each.pid for each in processes_with(token)] == [process.pid])


def test_kill_9_of_one_with_a_child_that_has_its_pipes(token: str) -> None:
    """A worker that was forked from the trainer lives on, with the trainer's end of the keeper's pipe."""
    then = """
    if os.fork() == 0:
        os.close(1); os.close(2)
        time.sleep(60)
        os._exit(0)
    signal.pause()
    """
    with trainer(token, then) as process:
        eventually(lambda: len(processes_with(token)) >= 6)
        keeping = {each.pid for each in keepers(token)}
        (worker,) = eventually(lambda: [p for p in psutil.Process(process.pid).children() if p.pid not in keeping])
        process.kill()
        process.wait()
        eventually(lambda: [p.pid for p in processes_with(token)] == [worker.pid])
        worker.kill()


def test_kill_9_while_an_engine_ignores_everything(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n" + SERVES
    with trainer(token, "signal.pause()", stubborn) as process:
        process.kill()
        process.wait()
        eventually(lambda: not processes_with(token), 20.0)


def test_ctrl_c_reaches_the_trainer_alone(token: str) -> None:
    """The terminal sends SIGINT to its whole process group; the engine ends when the trainer says so."""
    then = """
    try:
        print("waits", flush=True)
        wait()
    except KeyboardInterrupt:
        connection.sock.recv(10)
        connection.sock.settimeout(0.3)
        try:
            connection.sock.recv(10)
        except TimeoutError:
            print("it still runs", flush=True)
        engine.close()
        print("closed", connection.sock.recv(10), flush=True)
    """
    with trainer(token, then) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate()[0] == "it still runs\nclosed b''\n"
        assert processes_with(token) == []


@pytest.mark.parametrize(
    ("then", "code"),
    [
        ("", 0),
        ("raise ValueError('a mistake')", 1),
        pytest.param("os.abort()", -6, marks=pytest.mark.exhaustive),
        ("os._exit(5)", 5),
    ],
)
def test_every_way_out(token: str, then: str, code: int) -> None:
    with trainer(token, then) as process:
        process.communicate()
        assert process.returncode == code
        if code in (0, 1):  # an orderly end waits for its engines
            assert processes_with(token) == []
        eventually(lambda: not processes_with(token))


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.exhaustive)])
def test_signals_that_end_it(token: str, number: int) -> None:
    with trainer(token, "wait()") as process:
        process.send_signal(number)
        process.wait()
        eventually(lambda: not processes_with(token))
