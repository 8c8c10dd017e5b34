"""The keeper: a small process between a trainer and an engine that it started. It outlives neither for long.

    python -I -S keeper.py TRAINER_PID MARK LOCK_FD LOCK COMMAND...

It starts COMMAND, says what becomes of it on its own stdout, and ends COMMAND's whole process tree when the trainer
says so, when the trainer has gone (its end of our stdin is closed, also by kill -9), or when COMMAND itself has ended.
The engine's output goes where the keeper's stderr goes; where that is a file, it is cut when it has grown beyond MOST
bytes, and its last KEPT bytes stay. This file is run by its path and imports the standard library
only, so that it starts in a few hundredths of a second.

To the trainer: `started PID`, `failed REASON`, `exit CODE` (negative: minus the signal), one a line.
From the trainer: `end SECONDS`: SIGTERM to the tree, SIGKILL to what is left after that time; 0: SIGKILL at once.

POSIX: the trainer's child only stands for the keeper, which is its fork. Whoever kills the trainer's children first, as
Ray's workers do at their end, so leaves the keeper time to end the tree in order. Linux: the keeper is a subreaper, so
daemons that the engine makes stay its descendants; if somebody kills the keeper itself, the kernel kills the engine
(PR_SET_PDEATHSIG), and what the engine had started falls to the keeper's parent, a subreaper too, which kills it. If
keeper, parent and trainer are killed at one moment, only the engine's own process goes with them. macOS and others:
psutil finds descendants and, by the environment variable UE_RL_MARK, those that have left their parents. Windows: the
keeper puts itself into a Job object before it starts the engine, so that nobody can leave it, and the kernel ends all
of it with the keeper, however that ends; Windows has no SIGTERM, so there is no grace. Windows and macOS were not run.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Any

MARK = "UE_RL_MARK"  # an environment variable that every process of the tree inherits
GRACE = 3.0  # seconds between SIGTERM and SIGKILL when the trainer has gone without a word
AFTER_EXIT = 1.0  # the same for what an engine leaves that has ended by itself
TICK = 0.5  # how often to look whether the trainer lives, where its end of the pipe was inherited by somebody else
# bytes of the engine's output: a night of warnings must not fill the disk
MOST = 64 * 2**20
KEPT = 8 * 2**20

LINUX = sys.platform.startswith("linux")
_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
# of <winnt.h>
_EXTENDED_LIMITS = 9
_KILL_ON_JOB_CLOSE = 0x2000
_KILL: int
if sys.platform == "win32":
    _KILL = signal.SIGTERM
else:
    _KILL = signal.SIGKILL


def main(words: list[str]) -> None:
    """Until the engine's tree has gone; see above for `words`."""
    trainer = int(words[0])
    mark = words[1]
    lock_fd = int(words[2])
    lock = words[3]
    if sys.platform != "win32":
        trainer = _fork(trainer, mark, lock_fd)
    news: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: news.put(("end", GRACE)))
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # a trainer may start us while it holds signals back
    try:
        tree: _Tree | _Job
        if sys.platform == "win32":
            tree = _Job(mark)
        else:
            tree = _Tree(mark)
        engine = tree.start(words[4:])
    except OSError as error:
        _say(f"failed {error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    else:
        _say(f"started {engine.pid}")
        threading.Thread(target=_listen, args=(news,), daemon=True).start()
        threading.Thread(target=_reap, args=(engine, tree, news), daemon=True).start()
        grace = _until_over(news, trainer)
        tree.end(grace, news)
    _unlock(lock_fd, lock)
    os._exit(0)  # the threads wait for ever


def _fork(trainer: int, mark: str, lock_fd: int) -> int:
    """Returns in the keeper, with its parent's id; the parent ends with the keeper, and ends it with the trainer."""
    if sys.platform == "win32":
        raise NotImplementedError
    parent = os.getpid()
    keeper = os.fork()
    if not keeper:
        return parent
    for fd in (0, 1, lock_fd):  # whoever waits for their end waits for the keeper's
        if fd >= 0:  # -1: there is no lock
            os.close(fd)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: _pass_on(keeper, number))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    threading.Thread(target=_follow, args=(keeper, _Tree(mark)), daemon=True).start()
    while os.getppid() == trainer:
        time.sleep(TICK)
    _pass_on(keeper, signal.SIGTERM)
    threading.Event().wait()  # for the end in _follow
    raise AssertionError


def _pass_on(keeper: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has just ended
        os.kill(keeper, number)


def _follow(keeper: int, tree: _Tree) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])
    if code:  # killed: what it took care of is ours now
        tree.kill()
    if code >= 0:
        status = code
    else:
        status = 128 - code
    os._exit(status)


def _until_over(news: queue.SimpleQueue[tuple[str, float]], trainer: int) -> float:
    """Seconds that are left to the tree once there is a reason to end it."""
    while True:
        try:
            what, value = news.get(timeout=TICK)
        except queue.Empty:
            if sys.platform != "win32":
                cut_output()
                if os.getppid() != trainer:
                    return GRACE
            continue
        if what == "end":
            return value
        _say(f"exit {value:.0f}")
        return AFTER_EXIT


def cut_output() -> None:
    """Where stderr is a file beyond MOST bytes, a line that says so and its last KEPT bytes stay.

    Lines that are written at the same moment may be lost.
    """
    if sys.platform == "win32":
        raise NotImplementedError
    import fcntl

    with contextlib.suppress(OSError):  # a pipe or a terminal, or a disk that fails
        size = os.fstat(2).st_size
        if size <= MOST:
            return
        tail = os.pread(2, KEPT, size - KEPT).partition(b"\n")[2]
        kept = b"--- %d bytes of output before this line were deleted\n" % (size - len(tail)) + tail
        flags = fcntl.fcntl(2, fcntl.F_GETFL)
        # A file that is opened to append can be written at its end only, so that is taken back for a moment. The
        # engine goes on writing at the end, beyond MOST. So `kept` stands at the beginning before the rest is cut off,
        # and no line of the engine can come before it.
        fcntl.fcntl(2, fcntl.F_SETFL, flags & ~os.O_APPEND)
        try:
            os.pwrite(2, kept, 0)
        finally:
            fcntl.fcntl(2, fcntl.F_SETFL, flags)
        os.lseek(2, len(kept), os.SEEK_SET)  # where it is not opened to append
        os.ftruncate(2, len(kept))


def _drain(news: queue.SimpleQueue[tuple[str, float]]) -> float:
    """Reports the exits among the news that are there; returns the shortest time that the trainer gave meanwhile."""
    grace = float("inf")
    with contextlib.suppress(queue.Empty):
        while True:
            what, value = news.get_nowait()
            if what == "end":
                grace = min(grace, value)
            else:
                _say(f"exit {value:.0f}")
    return grace


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(1, line.replace("\n", " ").encode("utf-8", "replace") + b"\n")


def _listen(news: queue.SimpleQueue[tuple[str, float]]) -> None:
    """What the trainer says; its silence, too, is said at its end."""
    text = b""
    while chunk := os.read(0, 256):
        *lines, text = (text + chunk).split(b"\n")
        for line in lines:
            news.put(("end", float(line.split()[1])))
    news.put(("end", GRACE))


def _reap(engine: subprocess.Popen[bytes], tree: _Tree | _Job, news: queue.SimpleQueue[tuple[str, float]]) -> None:
    """Reports the engine's end, and takes in every orphan of it until there is none."""
    if sys.platform == "win32":
        news.put(("exit", engine.wait()))
        tree.empty.set()
        return
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        if pid == engine.pid:
            news.put(("exit", os.waitstatus_to_exitcode(status)))
    tree.empty.set()


def _unlock(lock_fd: int, lock: str) -> None:
    """Deletes the port's lock file, which the trainer shares with us; the lock itself goes with the last of both."""
    with contextlib.suppress(OSError):
        held = os.fstat(lock_fd)
        named = os.stat(lock)
        if (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino):
            os.unlink(lock)


class _Tree:
    """The engine and all its descendants.

    Attributes:
        empty: set once this process has no children left; where it is a subreaper, that means no descendants.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self.empty = threading.Event()
        if LINUX:
            _prctl(_SET_CHILD_SUBREAPER, 1)

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        keeper = os.getpid()

        def die_with_us() -> None:
            _prctl(_SET_PDEATHSIG, _KILL)
            if os.getppid() != keeper:
                os._exit(1)

        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,
            stderr=2,
            start_new_session=True,
            preexec_fn=die_with_us if LINUX else None,  # noqa: PLW1509  # no threads
            env={**os.environ, MARK: self._mark},
        )

    def end(self, grace: float, news: queue.SimpleQueue[tuple[str, float]]) -> None:
        """SIGTERM and, after `grace` seconds, SIGKILL, until nobody is left; an exit is still reported."""
        over = time.monotonic() + grace
        if grace > 0:
            self._signal(signal.SIGTERM)
            if sys.platform != "win32":
                self._signal(signal.SIGCONT)  # who was stopped gets it now
            while time.monotonic() < over and not self._gone(0.02):
                over = min(over, time.monotonic() + _drain(news))
        given_up = time.monotonic() + 10.0
        while not self._gone(0.0) and time.monotonic() < given_up:  # a process of another user's cannot be killed
            self._signal(_KILL)
            self._gone(0.01)
        _drain(news)

    def kill(self) -> None:
        """SIGKILL, until nobody is left; for whoever does not reap beside it."""
        if sys.platform == "win32":
            raise NotImplementedError
        given_up = time.monotonic() + 10.0
        while self._members() and time.monotonic() < given_up:
            self._signal(_KILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.01)

    def _members(self) -> list[int]:
        if LINUX:
            return _descendants()
        return self._others()

    def _gone(self, seconds: float) -> bool:
        if not self.empty.wait(seconds):
            return False
        return LINUX or not self._others()

    def _signal(self, number: int) -> None:
        for pid in self._members():
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def _others(self) -> list[int]:
        """Descendants where the system leaves orphans to others."""
        import psutil

        found = {process.pid for process in psutil.Process().children(recursive=True)}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self._mark and process.pid != os.getpid():
                    found.add(process.pid)
        return sorted(found)


class _Job:
    """The Job object of Windows that has this process, the engine and all its descendants.

    Attributes:
        empty: set once the engine's own process has ended.

    Raises:
        OSError: the system refuses it.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self.empty = threading.Event()
        self._engine: subprocess.Popen[bytes] | None = None
        self._kernel: Any = None
        self._job: Any = None
        if sys.platform != "win32":
            raise NotImplementedError
        import ctypes
        from ctypes import wintypes

        self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        self._kernel.CreateJobObjectW.restype = wintypes.HANDLE
        self._kernel.GetCurrentProcess.restype = wintypes.HANDLE
        number = ctypes.c_int
        self._kernel.SetInformationJobObject.argtypes = [wintypes.HANDLE, number, ctypes.c_void_p, wintypes.DWORD]
        self._kernel.AssignProcessToJobObject.argtypes = [wintypes.HANDLE, wintypes.HANDLE]
        self._kernel.TerminateJobObject.argtypes = [wintypes.HANDLE, wintypes.UINT]
        # Never closed, and inherited by nobody: the kernel closes it when this process ends, and ends the others.
        self._job = self._kernel.CreateJobObjectW(None, None)
        limits: Any = job_limits()
        held = self._job and self._kernel.SetInformationJobObject(
            self._job, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
        )
        if not held or not self._kernel.AssignProcessToJobObject(self._job, self._kernel.GetCurrentProcess()):
            raise ctypes.WinError(ctypes.get_last_error())

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Of this process, and so of its job."""
        environment = {**os.environ, MARK: self._mark}
        self._engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, env=environment)
        return self._engine

    def end(self, grace: float, news: queue.SimpleQueue[tuple[str, float]]) -> None:
        """Ends all of the job, this process last of all; the engine's exit is still reported."""
        if sys.platform != "win32":
            raise NotImplementedError
        assert self._engine is not None
        with contextlib.suppress(OSError):  # it has just ended
            self._engine.terminate()
        self.empty.wait(10.0)
        _drain(news)
        self._kernel.TerminateJobObject(self._job, 0)


def job_limits() -> object:
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION of <winnt.h> that ends the job's processes with its last handle."""
    import ctypes

    class BasicLimits(ctypes.Structure):
        _fields_ = [
            ("PerProcessUserTimeLimit", ctypes.c_int64),
            ("PerJobUserTimeLimit", ctypes.c_int64),
            ("LimitFlags", ctypes.c_uint32),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", ctypes.c_uint32),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", ctypes.c_uint32),
            ("SchedulingClass", ctypes.c_uint32),
        ]

    class ExtendedLimits(ctypes.Structure):
        _fields_ = [
            ("BasicLimitInformation", BasicLimits),
            ("IoInfo", ctypes.c_uint64 * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        ]

    limits = ExtendedLimits()
    limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
    return limits


def _descendants() -> list[int]:
    """Of this process, as /proc has them."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                if fields[0] not in b"ZX":
                    parents.setdefault(int(fields[1]), []).append(int(name))
    found = list(parents.get(os.getpid(), ()))
    for pid in found:
        found += parents.get(pid, ())
    return found


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
