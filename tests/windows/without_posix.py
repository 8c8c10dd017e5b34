"""A Windows without POSIX, for the library alone: a Python whose ue_rl sees another platform than all that it uses.

    python tests/windows/without_posix.py FOLDER      makes a venv there, in each of whose processes this is so
    FOLDER/bin/python -m pytest --assert=plain tests/windows/posixless    pytest's own loader would come first

The library's modules, and the scripts that import them, see sys.platform "win32" and os.name "nt", and of os, signal,
socket, select, subprocess and ctypes only what Windows has. The standard library and other packages see the system that
there is: they have their own code for Windows, which cannot run here. The compiled modules are not there. A .pth file
does it, because the keeper of an engine runs isolated (-I), and reads no PYTHONPATH.

Not shown by it: files that another process holds open, paths with drives, the console, code pages.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import ctypes
import ctypes.wintypes
import importlib.abc
import importlib.machinery
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import types
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PTH = "without_posix.pth"
JOB = "WITHOUT_POSIX_JOB"  # a variable of the processes that are in a job: the number of its keeper's process
SELECTS = 512  # sockets that select() takes there
ABSENT = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
COMPILED = ("ue_rl.protocol.text._kernels", "ue_rl.protocol.memory._sync")
_TERMINATED = 1  # the exit code that Popen.terminate() gives there
# fmt: off
HIDDEN: dict[str, tuple[str, ...]] = {
    "os": (
        "chown", "chroot", "confstr", "ctermid", "eventfd", "fchdir", "fchmod", "fchown", "fork", "forkpty",
        "getegid", "geteuid", "getgid", "getgroups", "getloadavg", "getpgid", "getpgrp", "getpriority", "getsid",
        "getuid", "killpg", "lchown", "memfd_create", "mkfifo", "mknod", "nice", "openpty", "pidfd_open",
        "posix_fadvise", "posix_fallocate", "posix_spawn", "pread", "preadv", "pwrite", "pwritev", "readv",
        "register_at_fork", "sched_getaffinity", "sched_setaffinity", "sched_yield", "sendfile", "setpgid",
        "setpriority", "setsid", "setuid", "statvfs", "sync", "sysconf", "tcgetpgrp", "uname", "wait", "wait3",
        "wait4", "waitid", "writev", "O_ASYNC", "O_CLOEXEC", "O_DIRECTORY", "O_DSYNC", "O_NOATIME", "O_NOCTTY",
        "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "O_SYNC", "WNOHANG", "WIFEXITED", "WEXITSTATUS", "SCHED_OTHER",
    ),
    "signal": (
        "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGIO", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP",
        "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGUSR1", "SIGUSR2", "SIG_BLOCK", "SIG_SETMASK", "SIG_UNBLOCK", "alarm",
        "pause", "pthread_kill", "pthread_sigmask", "setitimer", "siginterrupt", "sigpending", "sigtimedwait",
        "sigwait", "sigwaitinfo",
    ),
    "socket": (
        "AF_NETLINK", "AF_PACKET", "AF_UNIX", "AF_VSOCK", "CMSG_LEN", "CMSG_SPACE", "MSG_DONTWAIT", "MSG_NOSIGNAL",
        "SCM_RIGHTS", "SO_REUSEPORT", "TCP_CORK", "TCP_INFO", "TCP_QUICKACK", "TCP_USER_TIMEOUT", "recv_fds",
        "send_fds",
    ),
    "select": ("POLLERR", "POLLHUP", "POLLIN", "POLLOUT", "POLLRDHUP", "devpoll", "epoll", "kqueue", "poll"),
    "asyncio": ("get_child_watcher", "set_child_watcher", "open_unix_connection", "start_unix_server"),
}
# fmt: on


class Seen(types.ModuleType):
    """A module as the library sees it; what it sets there is set in the real one."""

    def __init__(self, real: types.ModuleType, hidden: Sequence[str] = (), shown: Mapping[str, Any] | None = None):
        self.__dict__.update(_real=real, _hidden=frozenset(hidden), _shown=dict(shown or {}))
        super().__init__(real.__name__, real.__doc__)

    def __getattr__(self, name: str) -> Any:
        if name in self._shown:
            return self._shown[name]
        if name in self._hidden:
            raise AttributeError(f"module {self._real.__name__!r} has no attribute {name!r} on Windows")
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        elif name in self._shown:
            self._shown[name] = value
        else:
            setattr(self._real, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._shown:
            del self._shown[name]
        else:
            delattr(self._real, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._real), *self._shown} - self._hidden)


def kill(pid: int, number: int) -> None:
    """os.kill: TerminateProcess, whatever the number is but for two; 0 would be Ctrl-C for a whole console."""
    if number in (0, 1):
        raise OSError(22, f"os.kill({pid}, {number}) is an event of the console on Windows, and asks nothing")
    os.kill(pid, signal.SIGKILL)


def waits(readable: Any, writable: Any, exceptional: Any, timeout: float | None = None) -> Any:
    """select.select."""
    for each in (readable, writable, exceptional):
        if len(list(each)) > SELECTS:
            raise ValueError("too many file descriptors in select()")
        for one in each:
            number = one if isinstance(one, int) else one.fileno()
            if not os.path.realpath(f"/proc/self/fd/{number}").rpartition("/")[2].startswith("socket:"):
                raise OSError(10038, "select() takes sockets alone on Windows")
    return select.select(readable, writable, exceptional, timeout)


class Socket(socket.socket):
    """Without what only POSIX has; options of time are milliseconds there, not a timeval."""

    recvmsg = sendmsg = recvmsg_into = property()  # type: ignore[assignment]  # hasattr says no

    def setsockopt(self, level: int, option: int, value: Any, *length: int) -> None:  # type: ignore[override]
        """Refuses SO_RCVTIMEO: after one has passed, Windows promises nothing about bytes received."""
        if level == socket.SOL_SOCKET and option == socket.SO_RCVTIMEO:
            raise AssertionError("SO_RCVTIMEO: below 500 ms it counts as 500 on Windows, and bytes may be lost")
        super().setsockopt(level, option, value, *length)


def create_connection(*words: Any, **options: Any) -> Socket:
    """socket.create_connection."""
    made = socket.create_connection(*words, **options)
    timeout = made.gettimeout()
    sock = Socket(made.family, made.type, made.proto, made.detach())
    sock.settimeout(timeout)
    return sock


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """What Windows takes: no preexec_fn, no descriptors; a new group is asked for by a flag."""

    def __init__(self, args: Any, **options: Any) -> None:
        if options.pop("preexec_fn", None) is not None:
            raise ValueError("preexec_fn is not supported on Windows platforms")
        assert not options.pop("pass_fds", ()), "pass_fds not supported on Windows."
        options["start_new_session"] = bool(options.pop("creationflags", 0) & 0x200)
        super().__init__(args, **options)

    def send_signal(self, sig: int) -> None:
        """SIGTERM ends it at once."""
        if sig not in (signal.SIGTERM, 0, 1):
            raise ValueError(f"Unsupported signal: {sig}")
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        """At once."""
        self.send_signal(signal.SIGTERM)

    kill = terminate


class Function:
    """One of a DLL, which may be told its types."""

    def __init__(self, call: Callable[..., int]) -> None:
        self._call = call

    def __call__(self, *words: Any) -> int:
        return self._call(*words)


class Kernel32:
    """Of kernel32.dll what the library calls. A handle of a process is its pid; there is one job, of this process.

    Attributes:
        flags: LimitFlags of the job.
    """

    def __init__(self) -> None:
        self.flags = 0
        for name in (
            "OpenProcess", "GetExitCodeProcess", "CloseHandle", "GetCurrentProcess", "CreateJobObjectW",
            "SetInformationJobObject", "AssignProcessToJobObject", "TerminateJobObject",
        ):  # fmt: skip
            setattr(self, name, Function(getattr(self, "_" + name)))

    def _OpenProcess(self, access: int, inherits: bool, pid: int) -> int:
        return pid * runs(pid)

    def _GetExitCodeProcess(self, handle: int, code: Any) -> int:
        code._obj.value = 259  # STILL_ACTIVE
        return 1

    def _CloseHandle(self, handle: int) -> int:
        return 1

    def _GetCurrentProcess(self) -> int:
        return os.getpid()

    def _CreateJobObjectW(self, security: None, name: None) -> int:
        return 4

    def _SetInformationJobObject(self, job: int, kind: int, limits: Any, size: int) -> int:
        assert (job, kind, size) == (4, 9, 144)
        self.flags = ctypes.c_uint32.from_buffer(limits._obj, 16).value
        return 1

    def _AssignProcessToJobObject(self, job: int, process: int) -> int:
        """From now on a process of its own kills what this one starts, when this one has ended."""
        assert process == os.getpid()
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # a subreaper: nobody leaves its descendants
        os.environ[JOB] = str(process)  # a child that is started between two looks of `watch` is known by it
        ours, its = os.pipe()
        if not os.fork():
            os.setsid()
            os.close(its)
            for each in range(3):
                os.dup2(os.open(os.devnull, os.O_RDWR), each)
            watch(process, ours, bool(self.flags & 0x2000))
        os.close(ours)
        return 1

    def _TerminateJobObject(self, job: int, code: int) -> int:
        os._exit(code)


def runs(pid: int) -> bool:
    """Is there such a process, and no zombie?"""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in b"ZX"
    except OSError:
        return False


def is_marked(pid: int, job: int) -> bool:
    """Was it started with the mark of this job in its environment?"""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{JOB}={job}".encode() in variables.split(b"\0")


def watch(job: int, pipe: int, kills: bool) -> None:
    """Until the job's process has ended; then kills all that ever descended from it, where `kills`."""
    import psutil

    found: set[psutil.Process] = set()
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(job)
        while not select.select([pipe], [], [], 0.01)[0]:
            found |= set(process.children(recursive=True))
    if kills:
        found |= {each for each in psutil.process_iter() if is_marked(each.pid, job)}
    for each in found if kills else ():
        with contextlib.suppress(psutil.Error):
            if each.pid != os.getpid():
                each.kill()
    os._exit(0)


def _context(method: str | None = None) -> Any:
    if method in ("fork", "forkserver"):
        raise ValueError(f"cannot find context for {method!r}")
    return multiprocessing.get_context(method or "spawn")


def seen_modules() -> dict[str, types.ModuleType]:
    """What the library gets in place of these modules."""
    kernel = Kernel32()
    shown: dict[str, dict[str, Any]] = {
        "sys": {"platform": "win32", "getwindowsversion": lambda: (10, 0, 22631, 2, "")},
        "os": {"name": "nt", "kill": kill},
        "signal": {"SIGBREAK": signal.Signals(21), "CTRL_C_EVENT": 0, "CTRL_BREAK_EVENT": 1},
        "socket": {
            "SO_EXCLUSIVEADDRUSE": socket.SO_REUSEADDR,
            "create_connection": create_connection,
            "socket": Socket,
        },
        "select": {"select": waits},
        "subprocess": {"Popen": Popen, "CREATE_NEW_PROCESS_GROUP": 0x200, "CREATE_NO_WINDOW": 0x08000000},
        "ctypes": {
            "windll": types.SimpleNamespace(kernel32=kernel),
            "WinDLL": lambda name, use_last_error=False: kernel,
            "WinError": lambda code: OSError(22, f"Windows error {code}"),
            "get_last_error": lambda: 5,
        },
        "multiprocessing": {"get_context": _context, "get_all_start_methods": lambda: ["spawn"]},
        "asyncio": {},
    }
    return {name: Seen(importlib.import_module(name), HIDDEN.get(name, ()), changed) for name, changed in shown.items()}


class _Library(importlib.abc.MetaPathFinder):
    """Finds the library's modules as ever, and gives them builtins whose import is ours."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "ue_rl":
            return None
        if name in COMPILED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
            spec.loader.names = self.names
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    names: dict[str, Any]

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["__builtins__"] = self.names
        super().exec_module(module)


def begin() -> None:
    """In this process, before the library is imported."""
    seen = seen_modules()
    msvcrt = types.ModuleType("msvcrt")
    msvcrt.__dict__.update(LK_NBLCK=2, LK_UNLCK=0, locking=_locking)
    seen["msvcrt"] = msvcrt

    def imports(name: str, names: Any = None, own: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if not level and name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if not level and name in seen:
            return seen[name]
        return builtins.__import__(name, names, own, fromlist, level)

    names = {**builtins.__dict__, "__import__": imports}
    sys.meta_path.insert(0, _Library(names))
    sys.modules["without_posix"] = sys.modules[__name__]
    if not _is_pytest():
        sys.modules["__main__"].__dict__["__builtins__"] = names  # scripts, and the keeper, which is one

    def no_handlers(*_: Any) -> None:
        raise NotImplementedError

    asyncio.SelectorEventLoop.add_signal_handler = no_handlers  # type: ignore[method-assign, assignment]


def _is_pytest() -> bool:
    words = sys.orig_argv[1:4]
    return any(Path(word).name in ("pytest", "py.test") for word in words)


def _locking(descriptor: int, mode: int, count: int) -> None:
    """msvcrt.locking, from the file's position on."""
    import fcntl

    if mode == 2:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, 0, os.SEEK_CUR)
    else:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, count, 0, os.SEEK_CUR)


def make(folder: Path) -> Path:
    """A venv that sees this one's packages; its Python."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    root = Path(__file__).resolve().parents[2]
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    if not packages:
        packages = [sysconfig.get_path("purelib")]
    lines = [str(root), *packages, str(Path(__file__).parent), "import without_posix; without_posix.begin()"]
    (site / PTH).write_text("\n".join(lines) + "\n", "utf-8")
    return folder / "bin" / "python"


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
