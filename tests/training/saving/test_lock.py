"""RunLock: a second process on a run is refused by who holds it, and a killed holder leaves nothing behind."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import portalocker
import psutil
import pytest
from portalocker.exceptions import LockException

from ue_rl.system.errors import ConfigurationError
from ue_rl.training.saving import lock
from ue_rl.training.saving.lock import HOLDER, RunLock

HOLD = """
import signal, sys
from pathlib import Path
from ue_rl.training.saving.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def other(tmp_path: Path) -> Any:
    """A process that holds the lock of tmp_path."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_one_is_refused_by_who_holds_it(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    with pytest.raises(ConfigurationError, match=rf"pid {other.pid} on {socket.gethostname()} since 20") as caught:
        RunLock(tmp_path).__enter__()
    assert (caught.value.field, caught.value.fault) == ("run_id", "caller")
    other.communicate("\n")
    assert not (tmp_path / HOLDER).exists()
    with RunLock(tmp_path) as lock:
        holder = lock.holder()
        assert holder is not None
        assert holder["pid"] == os.getpid()
        with pytest.raises(ConfigurationError, match=f"pid {os.getpid()}"):  # also in the same process
            RunLock(tmp_path).__enter__()
    assert lock.holder() is None


@pytest.mark.skipif(os.name == "nt", reason="kill -9")
def test_a_killed_holder_holds_nothing(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert (tmp_path / HOLDER).exists()
    with RunLock(tmp_path) as lock:
        holder = lock.holder()
        assert holder is not None
        assert holder["pid"] == os.getpid()


def test_another_machines_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A lock that only this machine sees (NFS with nolock) cannot tell whether the other one still runs."""
    (tmp_path / HOLDER).write_text(json.dumps({"pid": 7, "host": "elsewhere", "since": "today", "started": 1.0}))
    with caplog.at_level(logging.WARNING), RunLock(tmp_path):
        pass
    assert "pid 7 on elsewhere, which did not say that it ended" in caplog.text


@pytest.mark.parametrize("text", ["", "[]", '{"pid": "x"}', "\0"])
def test_a_holder_that_says_nothing_is_no_hindrance(tmp_path: Path, text: str) -> None:
    (tmp_path / HOLDER).write_text(text)
    with RunLock(tmp_path):
        pass


def test_where_files_cannot_be_locked_a_running_process_is_still_recognized(
    tmp_path: Path, other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(*_: object, **__: object) -> None:
        raise LockException(OSError(37, "No locks available"))

    monkeypatch.setattr(portalocker, "lock", no_locks)
    with pytest.raises(ConfigurationError, match=f"pid {other.pid}"):
        RunLock(tmp_path).__enter__()
    other.kill()
    other.wait()
    with caplog.at_level(logging.WARNING), RunLock(tmp_path):
        assert "cannot be locked" in caplog.text


def test_a_pid_that_is_used_again_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be locked: a process with the holder's pid is another one if it began at another time."""

    def no_locks(*_: object, **__: object) -> None:
        raise LockException(OSError(37, "No locks available"))

    monkeypatch.setattr(portalocker, "lock", no_locks)
    started = psutil.Process().create_time()
    for since, holds in ((started, True), (started - 5, False), (started + 3600, False)):
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": "today", "started": since}
        (tmp_path / HOLDER).write_text(json.dumps(holder))
        with pytest.raises(ConfigurationError, match=f"pid {os.getpid()}") if holds else RunLock(tmp_path):
            if holds:
                RunLock(tmp_path).__enter__()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_forked_child_neither_releases_nor_keeps_it(tmp_path: Path) -> None:
    """It ends its `with` blocks, and it may outlive its parent."""
    read, write = os.pipe()
    begun, ready = os.pipe()
    with RunLock(tmp_path) as lock:
        child = os.fork()
        if not child:
            lock.__exit__(None, None, None)
            os.write(ready, b"!")
            os.close(write)
            os.read(read, 1)  # lives on, until the parent's end of the pipe is closed
            os._exit(lock.held)
        assert os.read(begun, 1) == b"!"
        with pytest.raises(ConfigurationError, match=f"pid {os.getpid()}"):
            RunLock(tmp_path).__enter__()
        assert (tmp_path / HOLDER).exists()
        lock.let_go()  # as the system does when the parent is killed
        with RunLock(tmp_path):
            pass
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(os.name == "nt", reason="a folder with open files is not renamed")
def test_a_folder_that_was_replaced_meanwhile_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    locked = portalocker.lock

    def replaced(*given: Any) -> None:
        locked(*given)
        run.rename(tmp_path / "run.1")
        run.mkdir()

    monkeypatch.setattr(portalocker, "lock", replaced)
    with pytest.raises(ConfigurationError, match="is being written by another process"):
        RunLock(run).__enter__()
    monkeypatch.undo()
    for folder in (run, tmp_path / "run.1"):
        with RunLock(folder):
            pass


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(portalocker, "lock", denied)
    with pytest.raises(ConfigurationError, match=r"cannot be locked.*Permission denied.*who owns it"):
        RunLock(tmp_path).__enter__()


def test_what_was_held_is_free_while_the_lock_still_lives(tmp_path: Path) -> None:
    first = RunLock(tmp_path)
    with first:
        pass
    with RunLock(tmp_path):
        assert not first.held


def test_a_folder_whose_name_is_taken_meanwhile_is_not_held_by_both(tmp_path: Path) -> None:
    """It was renamed as its lock was to be opened, and there is another one of its name when that has failed."""

    def late(path: str, flags: int) -> int:
        try:
            return lock.opened(path, flags)
        finally:
            (tmp_path / "run").mkdir()

    with pytest.raises(ConfigurationError, match="another process has just renamed"):
        RunLock(tmp_path / "run", late).__enter__()


@pytest.mark.skipif(os.name == "nt", reason="pipes and links")
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_strangers_lock_file_is_neither_followed_nor_waited_at(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "run" / lock.LOCK
    place.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(tmp_path / "elsewhere")
    with caplog.at_level(logging.WARNING), RunLock(place.parent):
        assert "cannot be locked" in caplog.text
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """Else its name would be taken: whoever has just renamed it is about to use that name."""
    with pytest.raises(ConfigurationError, match=r"cannot be locked.*another process has just renamed"):
        RunLock(tmp_path / "none").__enter__()
    assert not (tmp_path / "none").exists()
