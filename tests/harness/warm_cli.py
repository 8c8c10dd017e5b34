"""WarmCli: `ue-rl` and scripts as real processes that start at once: forked from one that has imported torch.

    with WarmCli() as cli:
        run = cli.start(["train", "--port", "7801", "--timesteps", "2000"], output=tmp_path / "out.txt", cwd=tmp_path)
        run.wait_for("3 of 4 engines", 10)       until its output has this
        run.signal(signal.SIGTERM)
        assert run.wait(10) == 143
        done = cli.run_script("import sys; print(sys.argv[1])", "word", folder=tmp_path)

Each process leads a session of its own, as one that was started from a terminal. POSIX only.

Several test processes that need one share the import, which takes four seconds of a core and 300 MiB:

    root = WarmRoot()
    with WarmCli(root=root.path) as cli:    in each of them

The test processes themselves can be forked from it, too: `WarmRoot.python` (tests/harness/forked_worker.py).
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tests.harness.forked_worker import become_worker, python_of_workers, take_surroundings
from tests.support.undrawn import UNDRAWN, take_curves_away

if TYPE_CHECKING:
    from typing_extensions import Self

# What others have written and a training run imports sooner or later; torch._dynamo is loaded by the first optimizer,
# for 1.5 s.
LIBRARIES = (
    "torch._dynamo", "torch.utils.tensorboard", "matplotlib.backends.backend_agg", "matplotlib.font_manager",
    "matplotlib.figure", "stable_baselines3", "onnx", "onnxruntime",
)  # fmt: skip
TRAINING = (*LIBRARIES, "imports_of_a_run")

ROOT = "--root"  # the first word of a process that is a WarmRoot's


class WarmProcess:
    """One `ue-rl` process.

    Attributes:
        pid: its process id, and that of its group.
    """

    def __init__(self, pid: int, output: Path) -> None:
        self.pid, self.output = pid, output
        self.ended = threading.Event()
        self.code: int | None = None

    @property
    def text(self) -> str:
        """Standard output and error so far, without colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.output.read_text("utf-8", "replace"))

    def wait_for(self, pattern: str, timeout: float = 60.0) -> str:
        """Waits until the output matches the regular expression; what matched.

        Raises:
            AssertionError: it never did, or the process ended before; with the output.
        """
        deadline = time.monotonic() + timeout
        while True:
            over = self.ended.is_set() or time.monotonic() > deadline  # before the last look
            if found := re.search(pattern, self.text):
                return found.group()
            if over:
                raise AssertionError(f"no {pattern!r} (exit code {self.code}) in:\n{self.text}")
            time.sleep(0.005)

    def wait(self, timeout: float = 60.0) -> int:
        """Its exit code, -9 after SIGKILL.

        Raises:
            AssertionError: it still runs; with the output.
        """
        if not self.ended.wait(timeout):
            raise AssertionError(f"still running after {timeout} s:\n{self.text}")
        assert self.code is not None
        return self.code

    def signal(self, number: int, group: bool = False) -> None:
        """Sends a signal, to its group too, as a terminal does with Ctrl-C. Nothing where it has ended."""
        if not self.ended.is_set():
            try:
                os.killpg(self.pid, number) if group else os.kill(self.pid, number)
            except ProcessLookupError:
                return


def _started(words: Sequence[str], threads: int, own_session: bool) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, __file__, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"},
        start_new_session=own_session,
    )


class WarmRoot:
    """A process from which each WarmCli that names it is forked, and each worker of pytest-xdist. `close()` it.

    It ends, too, as soon as whoever started it has ended, and the workers with it.

    Args:
        libraries: what it imports at once, for workers. modules: what it imports when the first WarmCli asks.

    Attributes:
        path: the Unix socket on which it waits for each WarmCli. pid: its process id.
        python: the `python=` of an execnet specification whose workers are forked from it.
    """

    def __init__(self, modules: Sequence[str] = TRAINING, libraries: Sequence[str] = ()) -> None:
        folder = tempfile.mkdtemp(prefix="warm-")
        self.path = os.path.join(folder, "root")
        workers = os.path.join(folder, "workers")
        self.python = python_of_workers(workers)
        asked = json.dumps([self.path, workers, list(libraries), list(modules)])
        self._process = _started([ROOT, asked], 1, own_session=False)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError("the process from which others are to be forked has ended; see its error output")

    def close(self) -> None:
        """Ends it, and the workers that were forked from it; each WarmCli goes on. Idempotent."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(60)


class WarmCli:
    """The process that has everything imported, and those forked from it. Use as a context manager, or `close()`.

    Args:
        threads: OMP_NUM_THREADS of all. modules: what is imported before the first fork.
        root: the path of the WarmRoot whose imports it shares, instead of both.
    """

    def __init__(self, threads: int = 1, modules: Sequence[str] = TRAINING, root: str | None = None) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        if root is None:
            self._process = _started(modules, threads, own_session=True)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._asks: IO[bytes] = self._process.stdin
            self._answers: IO[bytes] = self._process.stdout
        else:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(root)
            self._asks = self._socket.makefile("wb")
            self._answers = self._socket.makefile("rb")
        self._lock = threading.Lock()
        self._runs: dict[int, WarmProcess] = {}
        self._started: WarmProcess | None = None
        self._told = threading.Event()
        self._next: Path | None = None
        self._reader = threading.Thread(target=self._read, name="warm-cli", daemon=True)
        self._reader.start()

    def start(
        self,
        words: Sequence[str],
        *,
        output: Path,
        errors: Path | None = None,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        file_limit: int | None = None,
        script: str | Path | None = None,
    ) -> WarmProcess:
        """Starts `ue-rl WORDS`, or a script with these arguments.

        Args:
            output: a file for standard output and error; a terminal becomes that of the process.
            errors: another one for standard error. cwd: its working directory.
            environment: instead of this process's own. file_limit: bytes that a file it writes may have (ulimit -f).
            script: what runs instead of `ue-rl`, as `python -c TEXT` or `python PATH` would.
        """
        for path in (output, errors or output):
            path.touch()
        asked = {
            "words": [str(word) for word in words], "output": str(output), "errors": str(errors or output),
            "cwd": str(cwd or os.getcwd()),
            "environment": dict(os.environ if environment is None else environment), "file_limit": file_limit,
            "text": script if isinstance(script, str) else None,
            "path": str(script) if isinstance(script, Path) else None,
        }  # fmt: skip
        with self._lock:
            self._told.clear()
            self._next = output
            _send(self._asks, asked)
            if not self._told.wait(100) or self._started is None:
                raise RuntimeError("the process that has everything imported does not answer; see its error output")
            return self._started

    def run_script(
        self, script: str | Path, *words: str, folder: Path, timeout: float = 110.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a script to its end in this folder, where its output is kept, too.

        Raises:
            AssertionError: it still runs after the timeout; with the output.
        """
        number = len(self._runs)
        output, errors = folder / f"output-{number}.txt", folder / f"errors-{number}.txt"
        process = self.start(words, output=output, errors=errors, cwd=folder, script=script)
        code = process.wait(timeout)
        return subprocess.CompletedProcess([str(script), *words], code, output.read_text(), errors.read_text())

    def close(self) -> None:
        """Kills what still runs; idempotent."""
        for run in list(self._runs.values()):
            run.signal(signal.SIGCONT)
            run.signal(signal.SIGKILL)
        for run in list(self._runs.values()):
            run.ended.wait(5)
        self._asks.close()
        if self._process is not None:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                # On a busy machine what it has imported takes longer to be taken down; nothing of it is awaited.
                self._process.kill()
                self._process.wait(60)
        if self._socket is not None:
            with contextlib.suppress(OSError):  # closed before
                self._socket.shutdown(socket.SHUT_WR)  # the reader holds the socket, too: this is its end of input
        self._reader.join(10)
        self._answers.close()
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        for line in self._answers:
            told = json.loads(line)
            if "started" in told:
                assert self._next is not None
                self._started = self._runs[told["started"]] = WarmProcess(told["started"], self._next)
                self._told.set()
            else:
                run = self._runs[told["ended"]]
                run.code = told["code"]
                run.ended.set()
        self._started = None
        self._told.set()


# -- the process that forks


def _send(pipe: IO[bytes], message: Mapping[str, Any]) -> None:
    pipe.write(json.dumps(message).encode() + b"\n")
    pipe.flush()


def _share(path: str, workers_path: str, libraries: Sequence[str], modules: Sequence[str]) -> Mapping[str, Any]:
    """Forks a process for each connection, and ends at the end of the input.

    Returns:
        In a process that is forked for a worker, what it is to run; in one that serves a WarmCli, as `_serve` does.
    """
    # Ctrl-C in the terminal reaches this process, too; it ends when pytest has ended.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = _listening(path)
    worker_listener = _listening(workers_path)
    os.write(1, b"listening\n")
    for library in libraries:
        importlib.import_module(library)
    gc.freeze()  # as in _serve
    missing = list(modules)
    workers = []  # none is waited for: as long as this process lives, its id belongs to no other
    while True:
        ready, _, _ = select.select([0, listener, worker_listener], [], [])
        if 0 in ready:
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(os.path.dirname(path))
            os._exit(0)
        if worker_listener in ready:
            client, _ = worker_listener.accept()
            pid = os.fork()
            if pid == 0:
                _leave_root(listener, worker_listener)
                return become_worker(client)
            workers.append(pid)
        else:
            client, _ = listener.accept()
            while missing:
                importlib.import_module(missing.pop(0))
            if os.fork() == 0:
                _leave_root(listener, worker_listener)
                os.setsid()
                for fd in (0, 1):
                    os.dup2(client.fileno(), fd)
                client.close()
                return _serve(())
        client.close()


def _leave_root(*listeners: socket.socket) -> None:
    """In a process that was forked from the root: it listens no more, and Ctrl-C is for it."""
    for listener in listeners:
        listener.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _listening(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener


def _serve(modules: Iterable[str]) -> Mapping[str, Any]:
    """Forks for each line on standard input; returns in the child what was asked, and ends at the end of the input."""
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # else the first collection in each process copies all of it
    wake_out, wake_in = os.pipe()
    for end in (wake_out, wake_in):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_in)
    answers = os.fdopen(os.dup(1), "wb")
    buffer = b""
    while True:
        ready, _, _ = select.select([0, wake_out], [], [])
        if wake_out in ready:
            os.read(wake_out, 4096)
            for pid, status in _ended():
                _send(answers, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})
        if 0 not in ready:
            continue
        data = os.read(0, 65_536)
        if not data:
            os._exit(0)  # taking down what it has imported takes seconds, ten on a busy machine
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                answers.close()
                for fd in (wake_out, wake_in):
                    os.close(fd)
                asked = json.loads(line)
                _become(asked)
                return asked  # type: ignore[no-any-return]
            _send(answers, {"started": pid})


def _ended() -> Iterable[tuple[int, int]]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _become(asked: Mapping[str, Any]) -> None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as in a terminal, though the tests run under nohup
    for target, path in enumerate((os.devnull, asked["output"], asked["errors"])):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND if target else os.O_RDONLY)
        os.dup2(fd, target)
        os.close(fd)
    # those of before were opened on files, and would seek in a terminal where they are reconfigured
    sys.stdout = open(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding=sys.stderr.encoding, errors=sys.stderr.errors, closefd=False)  # noqa: SIM115
    if os.isatty(1):
        os.close(os.open(asked["output"], os.O_RDWR))  # who may read it, and leads a session, gets it as his own
    take_surroundings(asked)
    if asked["file_limit"] is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["file_limit"], asked["file_limit"]))
    sys.argv[:] = [asked["path"] or ("-c" if asked["text"] is not None else "ue-rl"), *asked["words"]]


def _run(asked: Mapping[str, Any]) -> None:
    """As asked; ends the process as the interpreter would, without the second that it takes to free all modules."""
    code: object = 1
    if UNDRAWN in os.environ:
        take_curves_away(builtins)
    try:
        if asked["text"] is None and asked["path"] is None:
            from ue_rl.cli import main

            main()
        else:
            _run_script(asked["text"], asked["path"])
            code = 0
    except SystemExit as end:
        code = end.code
        if not isinstance(code, int | None):
            print(code, file=sys.stderr)
    except BaseException:  # noqa: BLE001  as the interpreter does it
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing does: waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _run_script(text: str | None, path: str | None) -> None:
    sys.path[0] = str(Path(path).parent) if path else ""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    if path:
        module.__file__ = path
        text = Path(path).read_text("utf-8")
    exec(compile(text or "", path or "<string>", "exec"), vars(module))


if __name__ == "__main__":
    if sys.argv[1:2] == [ROOT]:
        _run(_share(*json.loads(sys.argv[2])))
    else:
        _run(_serve(sys.argv[1:]))
