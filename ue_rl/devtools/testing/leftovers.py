"""Leftovers: is a process, a port, a segment of shared memory or a temporary file left when a test is over?

    with Leftovers(tmp_path / "tmp") as leftovers:      everything started within is marked by its environment
        ...
        leftovers.check()                               also when the block ends without an exception

Needs psutil. What a process does is told by an environment variable that all its children inherit, so that tests
of other workers on the same machine do not disturb; os.environ is changed while the block runs. A segment is told by
the process that made it. A dead process has no environment, so a thread looks at each new segment while its maker
lives. One whose maker died before that is nobody's: neighbouring tests kill engines that have just begun, too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ue_rl.system import processes

if TYPE_CHECKING:
    from typing_extensions import Self

MARK = "UE_RL_TEST_MARK"
_SEGMENTS = Path("/dev/shm")
_LOCKS = Path(
    f"/tmp/ue_rl_ports_{getattr(os, 'getuid', int)()}"
)  # of ports for engines, see connections/launching/ports.py


class Leftovers:
    """What was there before, and what of ours is there now.

    Args:
        folder: becomes the folder for temporary files, of this process and all that it starts; None: they are not
            watched. Made where there is none.
        within: seconds that `check` gives processes to end and memory to go.
        segments, locks: the folders of shared memory and of the locks of engines' ports.

    Attributes:
        mark: the value of the environment variable UE_RL_TEST_MARK of everything that was started since.
    """

    def __init__(
        self, folder: Path | None = None, within: float = 5.0, segments: Path = _SEGMENTS, locks: Path = _LOCKS
    ) -> None:
        self.folder = folder
        self.segments = segments
        self.locks = locks
        self.within = within
        self.mark = secrets.token_hex(8)
        self._set = {MARK: self.mark}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._set["TMPDIR"] = str(folder)
        self._before: dict[str, str | None] = {}
        self._ports = _listening(psutil.Process())
        self._files = set(self._files_there())
        self._zombies = set(_zombies())
        self._of_us: dict[str, bool] = {}  # new segments and locks whose maker was seen alive: had it our mark?
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="ue_rl_leftovers", daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """What marks a process that is not started from this one, such as one in a container."""
        return dict(self._set)

    def processes(self) -> list[psutil.Process]:
        """Those that were started since and run now; this one is not among them."""
        return [process for process in psutil.process_iter() if process.pid != os.getpid() and self._ours(process)]

    def found(self) -> list[str]:
        """A line for each thing that is left now."""
        ours = self.processes()
        lines = [_described(process) for process in ours]
        lines += [f"zombie {pid}" for pid in sorted(set(_zombies()) - self._zombies)]
        lines += [f"this process listens on port {port}" for port in sorted(_listening(psutil.Process()) - self._ports)]
        self._look_at_files()
        lines += [f"segment {path}" for path in sorted(self._left(_segments(self.segments)))]
        lines += [f"port lock {path}" for path in sorted(self._left(_locks(self.locks))) if not _is_held(path)]
        if self.folder is not None:
            lines += [f"temporary file {path}" for path in sorted(self.folder.rglob("*")) if not _foreign(path)]
        return lines

    def check(self) -> None:
        """Waits until nothing is left.

        Raises:
            AssertionError: something is, after `within` seconds; with what.
        """
        deadline = time.monotonic() + self.within
        while (lines := self.found()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if lines:
            raise AssertionError("left behind:\n  " + "\n  ".join(lines))

    def end(self) -> None:
        """Kills the marked processes and deletes what else is left, so that it does not harm others."""
        ours = self.processes()
        for process in ours:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(ours, timeout=5)
        for path in self._left(self._files_there()):
            if not processes.alive(_maker(path)):
                Path(path).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self._before = {name: os.environ.get(name) for name in self._set}
        os.environ.update(self._set)
        tempfile.tempdir = None  # it is remembered at the first use
        self._watcher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        tempfile.tempdir = None
        try:
            if kind is None:
                self.check()
        finally:
            self._over.set()
            self._watcher.join()
            self.end()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self._look_at_files()

    def _look_at_files(self) -> None:
        there = set(self._files_there())
        for gone in self._of_us.keys() - there:  # a port's lock may come again, and be another's
            del self._of_us[gone]
        for path in there - self._files - self._of_us.keys():
            pid = _maker(path)
            if pid == os.getpid():
                self._of_us[path] = True
            elif (mark := _mark(pid)) is not None:
                self._of_us[path] = mark == self.mark

    def _files_there(self) -> list[str]:
        return [*_segments(self.segments), *_locks(self.locks)]

    def _left(self, files: list[str]) -> set[str]:
        return {path for path in files if self._of_us.get(path)}

    def _ours(self, process: psutil.Process) -> bool:
        try:
            return _mark(process.pid) == self.mark and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):
            return False  # it has ended


def _mark(pid: int) -> str | None:
    """Of a process, "" without one or where another user has it; None: it has ended."""
    try:
        return psutil.Process(pid).environ().get(MARK, "")
    except psutil.AccessDenied:
        return ""
    except (psutil.Error, OSError):
        return None


def _foreign(path: Path) -> bool:
    """A cache that a library makes once for all runs, such as torch's."""
    return any(part.startswith("torchinductor_") for part in path.parts)


def _described(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        ports = _listening(process)
        text = f"process {process.pid} ({process.status()}): {' '.join(process.cmdline())}"
        listening = ""
        if ports:
            listening = f", listening on {sorted(ports)}"
        return text + listening
    return f"process {process.pid}"


def _listening(process: psutil.Process) -> set[int]:
    with contextlib.suppress(psutil.Error):
        found = process.net_connections("tcp")
        return {one.laddr.port for one in found if one.status == psutil.CONN_LISTEN}
    return set()


def _zombies() -> Iterator[int]:
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                yield process.pid


def _segments(folder: Path) -> list[str]:
    return [path for path in _paths(folder) if os.path.basename(path).startswith("ue_rl_")]


def _locks(folder: Path) -> list[str]:
    return [path for path in _paths(folder) if path.endswith(".lock")]


def _paths(folder: Path) -> list[str]:
    """What stands in a folder; as text, since the watcher looks 50 times a second, often at hundreds of locks."""
    if sys.platform == "win32" or not folder.is_dir():
        return []
    return [f"{folder}/{name}" for name in os.listdir(folder)]


def _is_held(lock: str) -> bool:
    """Does a process have it? Then it is seen as a process, or is somebody else's."""
    if sys.platform == "win32":
        raise NotImplementedError
    import fcntl

    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is, or the file has gone by now
        return True
    return False


def _maker(path: str) -> int:
    """The process id in a segment's name (ue_rl/protocol/memory/segment.py) or a lock (connections/launching/ports.py);
    0: none is.
    """
    name = os.path.basename(path)
    if name.endswith(".lock"):
        try:
            word = Path(path).read_text("ascii", "replace")
        except OSError:
            word = ""
    else:
        word = ""
        if name.count("_") >= 2:
            word = name.split("_")[2]
    if word.isascii() and word.isdigit():
        return int(word)
    return 0
