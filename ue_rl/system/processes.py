"""Is the process on the other side alive? Told by its pid and, where the system knows it, its start time."""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_STILL_ACTIVE = 259
_QUERY = 0x1000  # PROCESS_QUERY_LIMITED_INFORMATION
PROC = Path("/proc")


def alive(pid: int, start: int = 0, proc: Path = PROC) -> bool:
    """Is process `pid` alive? A zombie is not.

    Args:
        pid: 0 is nobody.
        start: its `start_time`, 0 where unknown; another process with the same pid is somebody else.
        proc: the system's folder of processes, which need not be there.
    """
    if not 0 < pid < 2**31:
        return False
    if sys.platform == "win32":
        return alive_on_windows(pid)
    facts = _stat(pid, proc)
    if facts is not None:
        return facts[0] not in "ZX" and (start == 0 or facts[1] == start)
    if sys.platform == "linux" and (proc / "self").exists():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def out_of_ctrl_c() -> Iterator[None]:
    """Processes that are started inside get no Ctrl-C of the terminal, from their first instruction on (POSIX)."""
    if sys.platform == "win32":
        yield
        return
    from multiprocessing import resource_tracker  # not in processes that start none

    resource_tracker.ensure_running()  # by itself it is started with the first process, and unblocks SIGINT then
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_time(pid: int | None = None, proc: Path = PROC) -> int:
    """When `pid` (None: this process) was started, in the system's own ticks; 0 where it does not say."""
    if pid is None:
        process = os.getpid()
    else:
        process = pid
    facts = _stat(process, proc)
    if facts is None:
        return 0
    return facts[1]


def pid_namespace() -> int:
    """Names the set of processes that this one can see, as Linux does for containers; 0 elsewhere."""
    try:
        return (PROC / "self" / "ns" / "pid").stat().st_ino
    except OSError:
        return 0


def in_wsl() -> bool:
    """Is this the Linux inside of Windows (WSL), whose kernel says so in its release? Games on Windows are outside."""
    return sys.platform == "linux" and "microsoft" in platform.release().lower()


def engine_alive(header: Any) -> bool | None:
    """Is the engine that made a segment alive? None: it gives no pid, or one of another pid namespace.

    Args:
        header: a ue_rl.protocol.memory.header.Header.
    """
    if header.extended:
        start = header.server_start
        namespace = header.server_namespace
    else:
        start = 0
        namespace = 0
    if not header.server_pid or namespace not in (0, pid_namespace()):
        return None
    return alive(header.server_pid, start)


def _stat(pid: int, proc: Path) -> tuple[str, int] | None:
    """(state, start time) of /proc, None where there is none."""
    try:
        text = (proc / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    if len(fields) > 19:
        return (fields[0], int(fields[19]))
    return None


def alive_on_windows(pid: int, kernel: Any = None) -> bool:
    """`alive` of Windows; `kernel` is its kernel32, None: the system's."""
    import ctypes

    if kernel is None:
        kernel = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]
    handle = kernel.OpenProcess(_QUERY, False, pid)
    if not handle:
        return False
    code = ctypes.c_ulong()
    try:
        return bool(kernel.GetExitCodeProcess(handle, ctypes.byref(code))) and code.value == _STILL_ACTIVE
    finally:
        kernel.CloseHandle(handle)
