"""EngineProcess: an engine's command, or another one, that runs under a keeper of its own (keeper.py)."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import IO

from ue_rl.connections.launching.keeper import GRACE, LINUX, MARK
from ue_rl.connections.launching.ports import ReservedPort
from ue_rl.system.errors import EngineNotStarted

_KEEPER = Path(__file__).with_name("keeper.py")
_SLACK = 12.0  # seconds that a keeper may take beyond the grace: processes in the kernel die slowly
_MEANS = {
    "SIGKILL": "kill -9, or the system had no memory left",
    "SIGSEGV": "it crashed: an invalid access to memory",
    "SIGBUS": "it crashed: an invalid access to memory, or a full /dev/shm",
    "SIGABRT": "it crashed: it gave up by itself",
    "SIGILL": "it crashed: an instruction that this processor does not have",
    "SIGFPE": "it crashed: an invalid computation",
}
LINES = 12
BYTES = 16_384
WIDTH = 200


class EngineProcess:
    """A running command and all that descends from it.

    Args:
        command: the words. output: an open file that takes its stdout and stderr. port: its lock is kept until the
            last process of the tree has gone; None: it has none.

    Attributes:
        ended: set once the command's own process has ended; what it left behind is ended with it.
        exit_code: its exit code; minus the signal that ended it; None while it runs, or where nobody knows.
        keeper: the keeper's process id.

    Raises:
        EngineNotStarted: the command cannot be run.
    """

    def __init__(self, command: list[str], output: IO[bytes], port: ReservedPort | None) -> None:
        self.ended = threading.Event()
        self._spoken = threading.Event()
        self.exit_code: int | None = None
        self.pid = 0
        self._failure = ""
        self._mark = secrets.token_hex(8)
        # elsewhere the keeper needs psutil
        if LINUX:
            flags = ["-I", "-S"]
        else:
            flags = ["-I"]
        words = [sys.executable, *flags, str(_KEEPER), str(os.getpid()), self._mark]
        held = None
        if sys.platform != "win32":
            held = port
        if held is None:
            words += ["-1", ""]
        else:
            words += [str(held.fd), str(held.lock)]
        # Python engines write their output when they print it, so that their last words are there
        environment = {"PYTHONUNBUFFERED": "1", **os.environ}
        self._popen = subprocess.Popen(
            [*words, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env=environment,
            pass_fds=() if held is None else (held.fd,),
            start_new_session=True,  # Ctrl-C in the terminal is for the trainer
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
        )
        self.keeper = self._popen.pid
        self._finalizer = weakref.finalize(self, _end, self._popen, self._mark, os.getpid(), GRACE)
        threading.Thread(
            target=_listen, args=(weakref.ref(self), self._popen.stdout), name="ue_rl-keeper", daemon=True
        ).start()
        self._spoken.wait()
        if not self.pid:
            self.end(0.0)
            raise EngineNotStarted(
                "the engine's command cannot be run",
                fault="caller",
                field="engine",
                expected="a program",
                got=self._failure,
                cure="is its path right, may it be executed, does a script begin with #!?",
            )

    def end(self, grace: float = GRACE) -> None:
        """Ends the tree: SIGTERM, then SIGKILL after `grace` seconds (0: at once). Idempotent, never raises."""
        if self._finalizer.detach() is not None:
            _end(self._popen, self._mark, os.getpid(), grace)

    def ask_to_end(self, grace: float = GRACE) -> None:
        """Begins what `end` does, and does not wait."""
        if self._finalizer.alive:
            _say_end(self._popen, grace)

    def _take(self, line: str) -> None:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "started":
            self.pid = int(rest)
        elif word == "failed":
            self._failure = rest
        elif word == "exit":
            self.exit_code = int(rest)
            self.ended.set()
        self._spoken.set()

    def _hung_up(self) -> None:
        """The keeper has gone. It says how the engine ended before it goes; else somebody has killed it."""
        if not self._failure:
            self._failure = "the process that watches over it was killed"
        self._spoken.set()
        self.ended.set()


def _listen(owner: weakref.ref[EngineProcess], pipe: IO[bytes]) -> None:
    """In a thread of its own, which must not keep its owner alive."""
    with contextlib.suppress(OSError, ValueError):
        for line in pipe:
            process = owner()
            if process is not None:
                process._take(line.decode("utf-8", "replace"))
            del process
    process = owner()
    if process is not None:
        process._hung_up()


def _say_end(keeper: subprocess.Popen[bytes], grace: float) -> None:
    with contextlib.suppress(OSError, ValueError):  # it has gone already
        assert keeper.stdin is not None
        keeper.stdin.write(f"end {grace}\n".encode())
        keeper.stdin.flush()


def _end(keeper: subprocess.Popen[bytes], mark: str, owner: int, grace: float) -> None:
    if os.getpid() != owner:  # a fork of the trainer's: the engine is not its
        return
    _say_end(keeper, grace)
    with contextlib.suppress(OSError, ValueError):
        assert keeper.stdin is not None
        keeper.stdin.close()
    try:
        code = keeper.wait(grace + _SLACK)
    except subprocess.TimeoutExpired:
        keeper.kill()
        code = keeper.wait()
    # killed: its engine went with it, and what the engine had started is still there; on Windows a Job object ends all
    if code != 0 and sys.platform != "win32":
        _kill_marked(mark)


def _kill_marked(mark: str) -> None:
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                process.kill()


def exit_words(code: int | None) -> str:
    """What became of a process, for people: "was killed by signal 9 (SIGKILL): ..", "ended with exit code 3"."""
    if code is None:
        return "has gone, and nobody knows how"
    if code < 0:
        return f"was ended by {_signal_words(-code)}"
    if sys.platform != "win32" and 128 < code < 128 + 65:
        return f"ended with exit code {code}, which is how a shell reports {_signal_words(code - 128)}"
    return f"ended by itself, with exit code {code}"


def _signal_words(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    if name in _MEANS:
        return f"signal {number} ({name}: {_MEANS[name]})"
    return f"signal {number} ({name})"


class Output:
    """An engine's output.

    Args:
        path: a file that is appended to; None: one without a name, which goes with the last process that has it open.

    Attributes:
        file: takes the output. path: as given.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is None:
            self.file: IO[bytes] = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = path.open("a+b", buffering=0)
        self._begun = 0

    def begin(self, headline: str) -> None:
        """Another start: a line that says so; the last lines are looked for behind it."""
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        self.file.write(f"--- {now} {headline}\n".encode("utf-8", "replace"))
        self._begun = os.fstat(self.file.fileno()).st_size

    def last_lines(self) -> str:
        """What the present start printed last, for people, with where there is more of it."""
        size = os.fstat(self.file.fileno()).st_size
        # the keeper has cut it
        if not (self._begun <= size):
            self._begun = 0
        begin = max(self._begun, size - BYTES)
        self.file.seek(begin)
        lines = self.file.read(BYTES).decode("utf-8", "replace").splitlines()
        if begin > self._begun:
            lines = lines[1:] or lines  # a part of a line
        lines = [line if len(line) <= WIDTH else line[:WIDTH] + "..." for line in lines if line.strip()]
        where = ""
        if self.path is not None:
            where = f" ({self.path})"
        if not lines:
            return f"it printed nothing{where}"
        return f"it printed last{where}:\n  " + "\n  ".join(lines[-LINES:])

    def close(self) -> None:
        """Idempotent."""
        self.file.close()
