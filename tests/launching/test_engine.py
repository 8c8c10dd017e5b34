"""LaunchedEngine: started, dialled, lost in every way, started again, ended."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.launching.conftest import SERVES, Dialled, Listened, keepers, lock_of, processes_with, python
from tests.support.waiting import eventually
from ue_rl.engines.lifecycle import LifeState as S
from ue_rl.errors import (
    ConfigurationError,
    EngineDisconnected,
    EngineNotStarted,
    EngineTimeout,
    HandshakeError,
    UeRlError,
)
from ue_rl.launching import ports
from ue_rl.launching.engine import LaunchedEngine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
Make = Callable[..., LaunchedEngine]
QUIET = "\n".join(line for line in SERVES.splitlines() if not line.startswith("print"))
STARTED = [S.LAUNCHING, S.LOADING, S.CONNECTING, S.STREAMING]


def gone() -> EngineDisconnected:
    return EngineDisconnected("the engine closed the connection", fault="engine")


def engine_pid(token: str) -> int:
    """Of the engine itself: its keeper's command line has the token, too."""
    watching = [keeper.pid for keeper in keepers(token)]
    return next(p.pid for p in processes_with(token) if p.pid not in watching)


def test_it_starts_is_dialled_and_ends(make: Make, token: str, tmp_path: Path) -> None:
    engine, life = make(), Listened()
    transport = engine.open(life)
    assert life.states == STARTED
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


def test_it_is_up_soon(make: Make) -> None:
    began = time.monotonic()
    make().open(Listened())
    assert time.monotonic() - began < 2.0  # 0.06 s on a machine with nothing else to do


def test_nothing_but_the_trainer_connects(make: Make) -> None:
    """A probe would be served as the trainer: the engine accepts once."""
    assert make().open(Listened()).sock.recv(10) == b"hello\n"


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
    eventually(lambda: b"bytes of output before" in log.open("rb").readline() and log.stat().st_size > 7 * 2**20)
    with log.open("rb") as lines:
        assert int(lines.readline().split()[1]) > 55 * 2**20
        assert lines.readline() == b"y" * 1023 + b"\n"
    assert log.stat().st_size < 9 * 2**20
    connection.sock.shutdown(socket.SHUT_WR)
    assert "bye" in str(engine.lost(gone()))


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


def test_an_engine_that_hangs_is_killed(make: Make, token: str) -> None:
    engine = make()
    engine.open(Listened())
    os.kill(engine_pid(token), signal.SIGSTOP)
    began = time.monotonic()
    text = str(engine.lost(EngineTimeout("the engine did not answer", fault="engine")))
    assert "was still running and was killed" in text
    assert time.monotonic() - began < 1.0
    assert processes_with(token) == []


def test_an_engine_that_is_stopped_ends_in_order(make: Make, token: str) -> None:
    engine = make()
    engine.open(Listened())
    os.kill(engine_pid(token), signal.SIGSTOP)
    began = time.monotonic()
    engine.close()
    assert time.monotonic() - began < 2.0
    assert processes_with(token) == []


def test_one_that_ignores_sigterm_is_killed(make: Make, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ue_rl.launching.engine.GRACE", 0.2)
    engine = make("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + SERVES)
    engine.open(Listened())
    engine.close()
    assert processes_with(token) == []


# -- starts that fail


def test_a_program_that_does_not_exist(make: Make) -> None:
    life = Listened()
    with pytest.raises(EngineNotStarted, match="No such file or directory: nope"):
        make(command=["nope", "{port}"]).open(life)
    assert life.states == [S.LAUNCHING, S.CONNECTION_LOST]


def test_a_file_that_is_no_program(make: Make, tmp_path: Path) -> None:
    (tmp_path / "game").write_text("text")
    with pytest.raises(EngineNotStarted, match="Permission denied"):
        make(command=[str(tmp_path / "game"), "{port}"]).open(Listened())


def test_an_exit_at_once_is_noticed_at_once(make: Make) -> None:
    life, began = Listened(), time.monotonic()
    with pytest.raises(EngineNotStarted, match=r"(?s)exit code 4, before it listened.*no licence") as caught:
        make("import sys; print('no licence'); sys.exit(4)").open(life)
    assert time.monotonic() - began < 2.0
    assert "at fault: engine" in str(caught.value)
    assert life.states == [S.LAUNCHING, S.LOADING, S.CONNECTION_LOST]


def test_one_that_goes_on_in_the_background(make: Make) -> None:
    with pytest.raises(EngineNotStarted, match=r"exit code 0.*must stay in the foreground"):
        make("import os, time; os.fork() or time.sleep(60)").open(Listened())


def test_one_that_never_listens(make: Make, token: str) -> None:
    life = Listened()
    with pytest.raises(EngineNotStarted, match=r"(?s)did not listen on port \d+ within 0.3 s.*loading level"):
        make("import time; print('loading level', flush=True); time.sleep(60)", start_timeout=0.3).open(life)
    assert life.states[-1] is S.TIMEOUT
    assert processes_with(token) == []


def test_one_that_starts_slowly(make: Make) -> None:
    make("import time; time.sleep(0.4)" + SERVES).open(Listened())


def test_one_that_dies_while_it_is_being_connected(make: Make) -> None:
    """Its child still holds the connection: the keeper's report ends the wait."""
    code = SERVES.replace("c.sendall", "os.fork() and os._exit(7)\ntime.sleep(60)\nc.sendall")

    def handshake(url: str) -> Dialled:
        connection = Dialled(url)
        if connection.sock.recv(10) == b"":
            raise gone()
        return connection

    began, life = time.monotonic(), Listened()
    with pytest.raises(EngineNotStarted, match="exit code 7, while it was being connected"):
        make(code, open=handshake).open(life)
    assert time.monotonic() - began < 3.0
    assert life.states[-1] is S.CONNECTION_LOST


def test_a_handshake_that_is_wrong(make: Make, token: str) -> None:
    def refuse(url: str) -> Dialled:
        raise HandshakeError("no CONFIG", fault="engine")

    with pytest.raises(HandshakeError, match=r"(?s)no CONFIG; its process was still running and was killed"):
        make(open=refuse).open(Listened())
    assert processes_with(token) == []


def test_another_number_of_envs_is_refused_by_name(make: Make, token: str) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)num_envs\); expected 3; got 2.*Put \{num_envs\}"):
        make(num_envs=3).open(Listened())
    assert processes_with(token) == []


def test_ctrl_c_while_it_starts(make: Make, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(url: str) -> Dialled:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(open=interrupted).open(Listened())
    assert processes_with(token) == []


# -- ports


def test_a_port_that_somebody_else_took(make: Make, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it was chosen, and before the engine listens: another one is tried."""
    real, taken = ports.find, []

    def find() -> ports.Port:
        port = real()
        if not taken:
            taken.append(socket.create_server(("127.0.0.1", port.number)))
        return port

    monkeypatch.setattr(ports, "find", find)
    life = Listened()
    with make().open(life).sock as connection:
        assert connection.recv(10) == b"hello\n"
    taken[0].close()
    assert life.states == [*STARTED[:2], S.CONNECTION_LOST, S.CLEANUP, *STARTED]
    assert "port" in life.changes[2].reason


def test_an_engine_that_does_not_mind_that_its_port_is_taken(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs on without listening; who listens there is older than it: nobody dials that."""
    real, taken = ports.find, []

    def find() -> ports.Port:
        port = real()
        taken.append(socket.create_server(("127.0.0.1", port.number)))
        return port

    monkeypatch.setattr(ports, "find", find)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: 0.0)
    with pytest.raises(EngineNotStarted, match=r"could not have its port: process \d+ \(.*\) listens on port"):
        make("import time; time.sleep(60)").open(Listened())
    assert len(taken) == 3
    for sock in taken:
        sock.close()


def test_a_command_without_a_port_is_dialled_on_the_usual_one(
    make: Make, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = ports.find()
    port.release()
    monkeypatch.setattr("ue_rl.launching.engine.DEFAULT_PORT", port.number)
    engine, life = make(command=python(SERVES, token, str(port.number))), Listened()
    for _ in range(2):  # the system remembers the first connection for a minute
        connection = engine.open(life)
        assert connection.url.endswith(str(port.number))
        assert connection.sock.recv(10) == b"hello\n"
        os.kill(engine_pid(token), signal.SIGKILL)
        assert connection.sock.recv(10) == b""
        life.to(S.CONNECTION_LOST)
        engine.lost(gone())
        life.to(S.CLEANUP)
    engine.open(life)
    other = make(command=python(SERVES, token, str(port.number)))
    with pytest.raises(EngineNotStarted, match=rf"(?s)port {port.number} belongs to .* another run.*\{{port\}}"):
        other.open(Listened())


def test_one_that_listens_on_ipv6(make: Make) -> None:
    if not ports._has_ipv6():
        pytest.skip("no IPv6 here")
    code = SERVES.replace('"127.0.0.1", int(sys.argv[2]))', '"::1", int(sys.argv[2])), family=socket.AF_INET6')
    assert make(code).open(Listened()).url.startswith("tcp://[::1]:")


# -- what it prints


def test_ten_megabytes_of_output(make: Make, tmp_path: Path) -> None:
    engine = make("print('x' * 10_000_000); print('the end', flush=True)\n" + QUIET)
    engine.open(Listened())
    text = str(engine.lost(EngineTimeout("late")))
    assert "the end" in text
    assert len(text) < 4000
    assert (tmp_path / "engine-0.log").stat().st_size > 10_000_000


def test_one_that_closes_its_output(make: Make) -> None:
    engine = make("import os; os.close(1); os.close(2)\n" + QUIET)
    assert engine.open(Listened()).sock.recv(10) == b"hello\n"
    assert "it printed nothing" in str(engine.lost(EngineTimeout("late"))).lower()


def test_output_that_is_no_text(make: Make) -> None:
    engine = make("import os; os.write(1, b'\\xff\\x1b[31mred\\n')\n" + QUIET)
    engine.open(Listened())
    text = str(engine.lost(EngineTimeout("late")))
    assert "red" in text
    assert "\x1b" not in text


def test_output_that_nobody_keeps(make: Make) -> None:
    engine = make(output=None)
    engine.open(Listened())
    assert "waiting on" in str(engine.lost(EngineTimeout("late")))


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
    os.kill(engine._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
    assert connection.sock.recv(10) == b""
    assert "SIGKILL" in str(engine.lost(gone()))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_keeper_that_is_killed_takes_the_tree_along(make: Make, token: str, number: int) -> None:
    engine = make("import os\nif os.fork() == 0:\n    import time; time.sleep(60)\n" + SERVES)
    connection = engine.open(Listened())
    os.kill(engine._process.keeper, number)  # type: ignore[union-attr]
    connection.sock.recv(10)
    assert connection.sock.recv(10) == b""
    engine.lost(gone())
    eventually(lambda: not processes_with(token), 2.0)  # SIGKILL was sent; nobody is there to wait for it


def test_ten_at_once(make: Make, token: str, tmp_path: Path) -> None:
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
    assert time.monotonic() - began < 10.0  # 0.6 s on a machine with nothing else to do
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
    eventually(lambda: not processes_with(token), 5.0)
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
    began = time.monotonic()
    engine.close()
    assert time.monotonic() - began < 1.5  # SIGKILL would come after 3 s


def test_no_thread_is_left(make: Make) -> None:
    before = threading.active_count()
    engine = make()
    engine.open(Listened())
    engine.close()
    eventually(lambda: threading.active_count() == before)


@pytest.mark.parametrize("name", ["num_envs", "seed"])
def test_a_placeholder_without_a_value(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"no {name} was given"):
        LaunchedEngine(f"game {{port}} {{{name}}}", None, None, 0, None, Dialled)


def test_a_lost_engine_that_never_ran() -> None:
    error: UeRlError = gone()
    assert LaunchedEngine("game {port}", None, None, 0, None, Dialled).lost(error) is error
