"""SIGTERM and SIGHUP: whoever hosts a bridge ends in order; nothing of it stays."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ue_rl
from tests.harness.warm_cli import WarmCli, WarmProcess
from ue_rl.bridges import run_shm_in_process
from ue_rl.cli.do_nothing import DoNothingBridge

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /dev/shm")
ENDS = [(signal.SIGTERM, 143), (signal.SIGHUP, 129)]
SHM = Path("/dev/shm")


HEAD = """
    import signal, sys
    from ue_rl.bridges import ShmUpgrader, serve, serve_shm
    from ue_rl.cli.do_nothing import DoNothingBridge
    def say(host): print(host.url, flush=True)
"""


def joined(*parts: str) -> str:
    return "\n".join(textwrap.dedent(part) for part in (HEAD, *parts))


Serve = Callable[..., tuple[WarmProcess, str]]


@pytest.fixture
def serve(warm_cli: WarmCli, tmp_path: Path) -> Iterator[Serve]:
    """Starts a script, which prints its address when it serves; the process, and that address."""
    started: list[WarmProcess] = []

    def start(code: str, before: str = "") -> tuple[WarmProcess, str]:
        started.append(warm_cli.start([], output=tmp_path / "said.txt", script=joined(before, code)))
        return started[-1], started[-1].wait_for(r"(shm|tcp)://\S+(?=\n)")

    yield start
    for process in started:
        process.signal(signal.SIGKILL)


@contextmanager
def script(code: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that has imported everything itself and prints its address when it serves, and that address."""
    process = subprocess.Popen(
        [sys.executable, "-c", joined(code)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_serve_shm_deletes_its_segment(serve: Serve, number: int, code: int) -> None:
    process, url = serve("serve_shm(DoNothingBridge(2), ready=say)")
    segment = SHM / url.removeprefix("shm://")
    assert segment.exists()
    process.signal(number)
    assert process.wait() == code
    assert process.text == f"{url}\n"
    assert not segment.exists()


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_serve_with_a_trainer_attached_and_code_that_follows(serve: Serve, number: int, code: int) -> None:
    then = """
    try:
        serve(DoNothingBridge(2), port=0, ready=say, upgrader=ShmUpgrader())
    finally:
        print("closed")
    """
    process, url = serve(then)
    env = ue_rl.connect(url, transport="shm")
    env.reset()
    segment = SHM / env.transport.describe()["address"].removeprefix("shm://")
    assert segment.exists()
    process.signal(number)
    assert process.wait() == code
    assert process.text == f"{url}\nclosed\n"
    assert not segment.exists()
    env.close()


def test_the_second_signal_changes_nothing() -> None:
    """Two that come together, as from a service manager, do not tear the end apart."""
    then = """
    try:
        serve_shm(DoNothingBridge(2), ready=say)
    finally:
        print("closing", flush=True)
        sys.stdin.read()
    """
    with script(then) as (process, url):
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "closing\n"
    assert not (SHM / url.removeprefix("shm://")).exists()


def test_nohup_is_heeded(serve: Serve) -> None:
    process, url = serve("serve_shm(DoNothingBridge(2), ready=say)", "signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    process.signal(signal.SIGHUP)
    env = ue_rl.connect(url)
    env.reset()
    env.close()
    process.signal(signal.SIGTERM)
    assert process.wait() == 143


def test_a_handler_of_the_program_stays(serve: Serve) -> None:
    own = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
    process, url = serve("serve_shm(DoNothingBridge(2), ready=say)", own)
    process.signal(signal.SIGTERM)
    assert process.wait() == 7
    assert not (SHM / url.removeprefix("shm://")).exists()


def test_in_a_process_of_its_own() -> None:
    """multiprocessing ends its daemons with SIGTERM when the program ends."""
    with run_shm_in_process(functools.partial(DoNothingBridge, 2)) as engine:
        segment = SHM / engine.name
        assert segment.exists()
        engine.process.terminate()
        engine.process.join(60)
        assert engine.process.exitcode == 143
        assert not segment.exists()


def test_handlers_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from ue_rl.bridges.runners import ends_in_order, signal_of

    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as end, ends_in_order():
            with ends_in_order():
                os.kill(os.getpid(), signal.SIGTERM)
                for _ in range(1000):  # not signal.pause(): it may have come before that
                    time.sleep(0.01)
        assert signal_of(end.value.code) == "SIGTERM"
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signal_of(1) is None
    assert signal_of("text") is None
