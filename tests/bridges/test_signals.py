"""SIGTERM and SIGHUP: whoever hosts a bridge ends in order; nothing of it stays."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ue_rl
from ue_rl.bridges import run_shm_in_process
from ue_rl.cli.do_nothing import DoNothingBridge

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /dev/shm")
ENDS = [(signal.SIGTERM, 143), (signal.SIGHUP, 129)]
SHM = Path("/dev/shm")


@contextmanager
def script(code: str, before: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that prints one line when it serves, and that line."""
    head = """
        import signal, sys
        from ue_rl.bridges import ShmUpgrader, serve, serve_shm
        from ue_rl.cli.do_nothing import DoNothingBridge
        def say(host): print(host.url, flush=True)
    """
    text = "\n".join(textwrap.dedent(part) for part in (head, before, code))
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_serve_shm_deletes_its_segment(number: int, code: int) -> None:
    with script("serve_shm(DoNothingBridge(2), ready=say)") as (process, url):
        segment = SHM / url.removeprefix("shm://")
        assert segment.exists()
        process.send_signal(number)
        assert process.communicate(timeout=60)[0] == ""
        assert process.returncode == code
        assert not segment.exists()


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_serve_with_a_trainer_attached_and_code_that_follows(number: int, code: int) -> None:
    then = """
    try:
        serve(DoNothingBridge(2), port=0, ready=say, upgrader=ShmUpgrader())
    finally:
        print("closed")
    """
    with script(then) as (process, url):
        env = ue_rl.connect(url, transport="shm")
        env.reset()
        segment = SHM / env.transport.describe()["address"].removeprefix("shm://")
        assert segment.exists()
        process.send_signal(number)
        assert process.communicate(timeout=60)[0] == "closed\n"
        assert process.returncode == code
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


def test_nohup_is_heeded() -> None:
    with script("serve_shm(DoNothingBridge(2), ready=say)", "signal.signal(signal.SIGHUP, signal.SIG_IGN)") as (
        process,
        url,
    ):
        process.send_signal(signal.SIGHUP)
        env = ue_rl.connect(url)
        env.reset()
        env.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143


def test_a_handler_of_the_program_stays() -> None:
    own = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
    with script("serve_shm(DoNothingBridge(2), ready=say)", own) as (process, url):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 7
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
