"""Signals end a run where it does no harm, and never what is being saved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ue_rl.training.saving.callbacks import StopCallback
from ue_rl.training.saving.stopping import RunStopped, Stopping

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="POSIX signals")


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def stops(told: list[str]) -> Iterator[Stopping]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with Stopping(told.append) as stops:
        yield stops
    assert before == {number: signal.getsignal(number) for number in before}


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGINT, 130, "stopped by Ctrl-C"),
        (signal.SIGTERM, 143, "stopped by SIGTERM"),
        (signal.SIGHUP, 129, "stopped by SIGHUP"),
    ],
)
def test_a_signal_stops_at_the_next_check(stops: Stopping, number: signal.Signals, code: int, words: str) -> None:
    steps = 0
    with pytest.raises(RunStopped) as caught, stops.interruptible(grace=60):
        send(number)
        steps += 1  # the step goes on
        stops.check()
    assert steps == 1
    assert (caught.value.exit_code, str(caught.value)) == (code, words)
    assert isinstance(caught.value, KeyboardInterrupt)  # whoever stops for Ctrl-C stops for it


def test_without_a_grace_it_stops_at_once(stops: Stopping) -> None:
    with pytest.raises(RunStopped), stops.interruptible():
        send(signal.SIGTERM)
        pytest.fail("went on")


def test_the_second_signal_stops_at_once(stops: Stopping, told: list[str]) -> None:
    with pytest.raises(RunStopped), stops.interruptible(grace=60):
        send(signal.SIGINT)
        send(signal.SIGINT)
        pytest.fail("went on")
    assert told == ["Ctrl-C: stopping after this step, then saving (again: at once, and saving)"]


def test_a_wait_is_ended_when_the_grace_is_over(stops: Stopping) -> None:
    begun = time.monotonic()
    with pytest.raises(RunStopped), stops.interruptible(grace=0.05):
        send(signal.SIGTERM)
        threading.Event().wait(30)  # a wait in the kernel, as for an engine that hangs
    assert time.monotonic() - begun < 20


def test_what_is_not_interruptible_is_finished(stops: Stopping, told: list[str]) -> None:
    saved = False
    for _ in range(5):
        send(signal.SIGINT)
    saved = True
    assert saved
    assert stops.requested == signal.SIGINT
    assert told == ["stopping; wait"] * 5
    stops.check()  # nothing to be stopped here
    with pytest.raises(RunStopped), stops.interruptible():
        pytest.fail("began although a stop was asked for")


def test_a_third_signal_does_not_break_the_unwinding(stops: Stopping) -> None:
    """Ctrl-C twice within milliseconds lost the model: the second one hit what the first had begun."""
    closed = False
    with pytest.raises(RunStopped), stops.interruptible():
        try:
            send(signal.SIGINT)
        finally:
            send(signal.SIGINT)
            send(signal.SIGINT)
            closed = True
    assert closed


def test_a_wish_that_got_lost_is_repeated_at_the_next_check(stops: Stopping) -> None:
    with pytest.raises(RunStopped), stops.interruptible():
        with suppress(RunStopped):  # as where it is raised in a destructor: Python drops it there
            send(signal.SIGINT)
        stops.check()


def test_it_may_be_used_again(stops: Stopping, told: list[str]) -> None:
    again = Stopping(told.append)
    for _ in range(2):
        with again:
            with pytest.raises(RunStopped), again.interruptible(grace=60):
                assert again.requested is None
                send(signal.SIGINT)
                again.check()
            assert again.requested == signal.SIGINT
    assert len(told) == 2


def test_nothing_comes_when_the_handlers_are_given_back(told: list[str]) -> None:
    """The end of a grace is a signal of its own: the handlers before, or the system's, must never see it."""
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    slow = signal.pthread_kill

    def kill(thread: int, number: int) -> None:
        time.sleep(0.1)
        slow(thread, number)

    try:
        with pytest.MonkeyPatch.context() as patch, suppress(RunStopped):
            patch.setattr(signal, "pthread_kill", kill)
            with Stopping(told.append) as stops, stops.interruptible(grace=0.05):
                send(signal.SIGTERM)
                time.sleep(0.1)  # the watcher is about to send it
        time.sleep(0.3)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_forked_child_has_its_own_signals(stops: Stopping, number: signal.Signals) -> None:
    """A worker that was forked meanwhile is ended by them, and by its own end."""
    ready, begun = os.pipe()
    with stops.interruptible(grace=60):
        child = os.fork()
        if not child:
            with suppress(BaseException):
                os.write(begun, b"!")
                time.sleep(30)
            os._exit(7)
        assert os.read(ready, 1) == b"!"
        os.kill(child, number)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == (-signal.SIGTERM if number == signal.SIGTERM else 7)
        stops.check()
    with stops.interruptible(grace=60):
        child = os.fork()
        if not child:
            stops.__exit__(None, None, None)
            os._exit(8)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 8
    os.close(ready)
    os.close(begun)


def test_those_that_were_entered_together_may_be_left_in_any_order(told: list[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    first, second = Stopping(told.append), Stopping(told.append)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert told == []


def test_ignored_signals_stay_ignored(told: list[str]) -> None:
    """nohup ue-rl train: the terminal may close."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stopping(told.append) as stops, stops.interruptible():
            send(signal.SIGHUP)
        assert told == []
        assert stops.requested is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_it_takes_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def run() -> None:
        with Stopping() as stops, stops.interruptible():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]


def test_the_callback_says_how_long_a_phase_may_go_on(stops: Stopping) -> None:
    callback = StopCallback(stops)
    with stops.interruptible():
        assert stops.grace == 0
        callback._on_rollout_start()
        assert stops.grace == 0.25
        callback._on_rollout_end()
        assert stops.grace == 5
        send(signal.SIGTERM)  # in an update: it ends first
        with pytest.raises(RunStopped):
            callback._on_rollout_start()
    assert stops.grace == 0


SAVES = """
import signal, sys, time
from ue_rl.training.saving.stopping import RunStopped, Stopping
with Stopping() as stops:
    try:
        with stops.interruptible(grace=60):
            print("running", flush=True)
            while True:
                time.sleep(0.001)
                stops.check()
    except RunStopped as stopped:
        print("saving", flush=True)
        sys.stdin.readline()  # saving takes as long as it takes
        print("saved", flush=True)
        code = stopped.exit_code
sys.exit(code)
"""


def test_a_process_saves_however_often_it_is_told_to_end() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SAVES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "saving\n"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
        while process.stderr.readline() != "stopping; wait\n":
            pass
    out, _ = process.communicate("\n")
    assert out == "saved\n"
    assert process.returncode == 143
