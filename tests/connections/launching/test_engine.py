"""LaunchedEngine: started, dialled, lost in every way, started again, ended."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.connections.launching.conftest import (
    QUIET,
    SERVES,
    STARTED,
    engine_pid,
    gone,
    keepers,
    lock_of,
    processes_with,
)
from tests.connections.launching.standing_in import Dialled, Listened, python
from tests.support.waiting import eventually
from ue_rl.connections.engines.lifecycle import LifeState as S
from ue_rl.connections.launching.engine import LaunchedEngine
from ue_rl.system.errors import (
    EngineTimeout,
    UeRlError,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
Make = Callable[..., LaunchedEngine]


def test_it_starts_is_dialled_and_ends(make: Make, token: str, tmp_path: Path) -> None:
    engine, life = make(), Listened()
    transport = engine.open(life)
    assert life.states == STARTED, "and nobody else has connected: it accepts once"
    lock = lock_of(keepers(token)[0])
    assert lock.exists()
    assert transport.sock.recv(10) == b"hello\n"
    assert token in engine.name or engine.name.endswith("...")
    engine.close()
    assert transport.sock.recv(10) == b""
    assert processes_with(token) == []
    assert not lock.exists()
    text = (tmp_path / "engine-0.log").read_text()
    assert "engine 0, start 1" in text
    assert "waiting on" in text
    engine.close()


def test_it_is_up_soon(make: Make, slack: float) -> None:
    began = time.monotonic()
    make().open(Listened())
    assert time.monotonic() - began < 2.0 * slack  # 0.06 s on a machine with nothing else to do


def test_the_signal_that_killed_it_and_its_last_lines_are_told(make: Make, token: str) -> None:
    engine, life = make(), Listened()
    engine.open(life)
    os.kill(engine_pid(token), signal.SIGKILL)
    life.to(S.CONNECTION_LOST)
    text = str(engine.lost(gone()))
    assert "closed the connection; its process was ended by signal 9 (SIGKILL: kill -9" in text
    assert "waiting on" in text
    assert text.startswith(f"engine 0 ({engine.name})")


def test_it_is_started_again_on_another_port_and_its_output_goes_on(make: Make, token: str, tmp_path: Path) -> None:
    engine, life = make(), Listened()
    first = engine.open(life).url
    os.kill(engine_pid(token), signal.SIGSEGV)
    life.to(S.CONNECTION_LOST)
    assert "SIGSEGV" in str(engine.lost(gone()))
    life.to(S.CLEANUP)
    second = engine.open(life)
    assert second.sock.recv(10) == b"hello\n"
    assert second.url != first
    assert life.states == [*STARTED, S.CONNECTION_LOST, S.CLEANUP, *STARTED]
    text = (tmp_path / "engine-0.log").read_text()
    assert "start 1" in text
    assert "start 2" in text
    life.to(S.CONNECTION_LOST)
    assert "start 1" not in str(engine.lost(EngineTimeout("late")))


@pytest.mark.skipif(os.name != "posix", reason="the keeper cuts it on POSIX systems")
def test_an_output_that_would_fill_the_disk_is_cut(make: Make, tmp_path: Path) -> None:
    """And the engine's last lines are still found."""
    floods = "for _ in range(65): print(('y' * 1023 + '\\n') * 1024, end='')\nprint('enough')\n"
    engine = make(floods + SERVES.replace("time.sleep(60)", "print('bye'); sys.exit(3)"))
    connection = engine.open(Listened())
    log = tmp_path / "engine-0.log"
    # The line that says so stands there before the rest is cut off.
    eventually(lambda: b"bytes of output before" in log.open("rb").readline() and log.stat().st_size < 9 * 2**20)
    with log.open("rb") as lines:
        assert int(lines.readline().split()[1]) > 55 * 2**20
        assert lines.readline() == b"y" * 1023 + b"\n"
    assert log.stat().st_size > 7 * 2**20
    connection.sock.shutdown(socket.SHUT_WR)
    assert "bye" in str(engine.lost(gone()))


FLOODS = """
import os, sys, threading
from ue_rl.connections.launching import keeper

keeper.MOST, keeper.KEPT = 60_000, 20_000
over = threading.Event()

def flood():
    while not over.is_set():
        os.write(2, b"a line of the engine\\n")

thread = threading.Thread(target=flood)
thread.start()
for _ in range(100):
    while os.fstat(2).st_size <= keeper.MOST:
        pass
    keeper.cut_output()
    with open(sys.argv[1], "rb") as log:
        text = log.read()
    if not text.startswith(b"--- ") or bytes(1) in text:
        print("after a cut:", text[:100], text.count(bytes(1)), "NULs")
        break
over.set()
thread.join()
"""


@pytest.mark.skipif(os.name != "posix", reason="the keeper cuts it on POSIX systems")
def test_no_line_comes_before_the_one_that_says_what_was_cut(tmp_path: Path) -> None:
    """An engine that writes without a pause meets each cut."""
    script, log = tmp_path / "floods.py", tmp_path / "log.txt"
    script.write_text(FLOODS)
    with log.open("a+b") as output:
        words = [sys.executable, str(script), str(log)]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=output, timeout=100, check=True)
    assert done.stdout == b""


@pytest.mark.parametrize("code", [0, 3, 139])
def test_an_exit_in_mid_run_is_told(make: Make, code: int) -> None:
    engine = make(SERVES.replace("while c.recv", f"print('bye'); sys.exit({code})\nwhile c.recv"))
    connection = engine.open(Listened())
    connection.sock.recv(10)
    assert connection.sock.recv(10) == b""
    text = str(engine.lost(gone()))
    assert f"exit code {code}" in text
    assert ("SIGSEGV" in text) == (code == 139)
    assert "bye" in text


@pytest.mark.parametrize("lost", [True, False])
def test_an_engine_that_hangs_is_ended(make: Make, token: str, lost: bool, slack: float) -> None:
    engine = make()
    engine.open(Listened())
    os.kill(engine_pid(token), signal.SIGSTOP)
    began = time.monotonic()
    if lost:
        text = str(engine.lost(EngineTimeout("the engine did not answer", fault="engine")))
        assert "was still running and was killed" in text
    else:
        engine.close()
    assert time.monotonic() - began < (1.0 if lost else 2.0) * slack
    assert processes_with(token) == []


def test_one_that_ignores_sigterm_is_killed(make: Make, token: str) -> None:
    engine = make("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + SERVES, grace=0.2)
    engine.open(Listened())
    engine.close()
    assert processes_with(token) == []


# -- what it prints


def test_ten_megabytes_of_output(make: Make, tmp_path: Path) -> None:
    engine = make("print('x' * 10_000_000); print('the end', flush=True)\n" + QUIET)
    engine.open(Listened())
    text = str(engine.lost(EngineTimeout("late")))
    assert "the end" in text
    assert len(text) < 4000
    assert (tmp_path / "engine-0.log").stat().st_size > 10_000_000


@pytest.mark.parametrize(
    ("begins", "last", "kept"),
    [
        ("import os; os.close(1); os.close(2)\n", "it printed nothing", True),
        ("import os; os.write(1, b'\\xff\\x1b[31mred\\n')\n", "red", True),  # no text
        ("print('waiting', flush=True)\n", "waiting", False),  # nobody keeps it
    ],
)
def test_what_it_prints_last(make: Make, begins: str, last: str, kept: bool) -> None:
    engine = make(begins + QUIET, **({} if kept else {"output": None}))
    assert engine.open(Listened()).sock.recv(10) == b"hello\n"
    text = str(engine.lost(EngineTimeout("late")))
    assert last in text.lower()
    assert "\x1b" not in text


def test_its_words_reach_it_as_they_are(make: Make, token: str, tmp_path: Path) -> None:
    """Quotes, blanks, dollars and stars: there is no shell."""
    folder = tmp_path / "a folder's"
    folder.mkdir()
    script = folder / "game.py"
    script.write_text("import sys; print(sys.argv[3:], flush=True)" + SERVES)
    line = f'{sys.executable} -S {shlex.quote(str(script))} {token} {{port}} "two words" \'$HOME *\' {{engine}} ""'
    engine = make(command=line)
    engine.open(Listened())
    assert "['two words', '$HOME *', '0', '']" in str(engine.lost(EngineTimeout("late")))


# -- whole trees


def test_children_and_daemons_end_with_it(make: Make, token: str) -> None:
    code = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(60)
    os.setsid()
    if os.fork():
        os._exit(0)
    if os.fork():
        os._exit(0)
    time.sleep(60)
"""
    engine = make(code + SERVES)
    engine.open(Listened())
    eventually(lambda: len(processes_with(token)) >= 4)
    engine.close()
    assert processes_with(token) == []


def test_what_a_dead_engine_leaves_is_ended_at_once(make: Make, token: str) -> None:
    """Its child holds the connection; it closes nevertheless."""
    engine = make(SERVES.replace("c.sendall", "child = os.fork()\nif not child: time.sleep(60)\nc.sendall"))
    connection = engine.open(Listened())
    connection.sock.recv(10)
    os.kill(engine.pid, signal.SIGKILL)  # type: ignore[arg-type]
    assert connection.sock.recv(10) == b""
    assert "SIGKILL" in str(engine.lost(gone()))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_keeper_that_is_killed_takes_the_tree_along(make: Make, token: str, number: int) -> None:
    engine = make("import os\nif os.fork() == 0:\n    import time; time.sleep(60)\n" + SERVES)
    connection = engine.open(Listened())
    assert connection.sock.recv(10) == b"hello\n"  # one that it had not accepted yet would be reset, not closed
    os.kill(engine._process.keeper, number)  # type: ignore[union-attr]
    assert connection.sock.recv(10) == b""
    engine.lost(gone())
    eventually(lambda: not processes_with(token))  # SIGKILL was sent; nobody is there to wait for it


def test_ten_at_once(make: Make, token: str, tmp_path: Path, slack: float) -> None:
    engines = [make(engine=i, output=tmp_path / f"{i}.log") for i in range(10)]
    lives = [Listened() for _ in engines]
    began = time.monotonic()
    for engine, life in zip(engines, lives, strict=True):
        engine.start(life)
    urls = [engine.open(life).url for engine, life in zip(engines, lives, strict=True)]
    assert len(set(urls)) == 10
    for engine in engines:
        engine.ask_to_close()
    for engine in engines:
        engine.close()
    assert time.monotonic() - began < 10.0 * slack  # 0.6 s on a machine with nothing else to do
    assert processes_with(token) == []


def test_opened_in_threads(make: Make, tmp_path: Path) -> None:
    """The thread that started it may end: the engine lives on."""
    engine = make()
    with ThreadPoolExecutor(1) as pool:
        connection = pool.submit(engine.open, Listened()).result()
    assert connection.sock.recv(10) == b"hello\n"
    connection.sock.settimeout(0.7)
    with pytest.raises(TimeoutError):
        connection.sock.recv(10)


def test_an_engine_that_nobody_holds_any_more_is_ended(make: Make, token: str) -> None:
    engine = LaunchedEngine(python(SERVES, token, "{port}"), 2, None, 0, None, Dialled, 20.0)
    connection = engine.open(Listened())
    del engine
    gc.collect()
    eventually(lambda: not processes_with(token))
    connection.close()


def test_a_fork_of_the_trainer_ends_nothing(make: Make) -> None:
    engine = make()
    connection = engine.open(Listened())
    assert connection.sock.recv(10) == b"hello\n"
    if (child := os.fork()) == 0:
        engine.lost(gone())
        engine.close()
        os._exit(0)
    os.waitpid(child, 0)
    connection.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        connection.sock.recv(10)


def test_signals_that_the_trainer_holds_back_reach_the_engine(make: Make, token: str) -> None:
    """A trainer may start it while it saves, with SIGTERM blocked."""
    engine = make()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        engine.open(Listened())
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    process = engine._process
    engine.close()
    assert process is not None
    assert process.ended.wait(20)  # its keeper has said it; the thread that listens may not have read it yet
    assert process.exit_code == -signal.SIGTERM


def test_no_thread_is_left(make: Make) -> None:
    before = set(threading.enumerate())
    engine = make()
    engine.open(Listened())
    engine.close()
    eventually(lambda: set(threading.enumerate()) <= before)


def test_a_lost_engine_that_never_ran() -> None:
    error: UeRlError = gone()
    assert LaunchedEngine("game {port}", None, None, 0, None, Dialled).lost(error) is error
