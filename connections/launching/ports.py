"""Free ports for engines, kept for whoever chose them.

A port is free where nobody is bound to it, and nobody of this library has chosen it: a lock file for each, in a folder
of the user's, locked as long as a process of the run lives. Ports are looked for outside of the range from which the
system takes those of outgoing connections, which may come at any moment.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from ue_rl.system.errors import ConfigurationError, EngineNotStarted

FIRST = 20_000
LAST = 32_767
_LOCKED = 1 << 30  # the one byte of a lock file that is locked on Windows; nothing is ever written there
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class ReservedPort:
    """A port that no other run on this machine chooses, until `release()`.

    Attributes:
        number: 1..65535. lock: its lock file. fd: of the lock, to be handed on to the process that outlives us.
    """

    def __init__(self, number: int, lock: Path, file: IO[bytes]) -> None:
        self.number = number
        self.lock = lock
        self._file = file
        self.fd = file.fileno()

    def release(self) -> None:
        """Gives it back; idempotent."""
        if self._file.closed:
            return
        if sys.platform == "win32":  # an open file cannot be deleted there
            self._file.close()
            with contextlib.suppress(OSError):
                self.lock.unlink()
            return
        if _still_named(self._file, self.lock):
            with contextlib.suppress(OSError):
                self.lock.unlink()
        self._file.close()


def find(among: Iterable[int] | None = None) -> ReservedPort:
    """A free port.

    Args:
        among: in this order; None: 20000 to 32767, where the system's own range leaves any of them.

    Raises:
        EngineNotStarted: there is none.
    """
    if among is None:
        among = candidates()
    for number in among:
        port = _lock(number, lock_file)
        if port is None:
            continue
        if bindable(number):
            return port
        port.release()
    expected = f"one of {FIRST} to {LAST}"
    cure = "end engines that are no longer needed"
    raise EngineNotStarted("there is no free port for an engine", fault="caller", expected=expected, cure=cure)


def take(number: int, lock: Callable[[IO[bytes]], None] | None = None) -> ReservedPort:
    """This port and no other.

    Args:
        lock: locks its file, or raises OSError where it is locked; None: as the system does (`lock_file`).

    Raises:
        EngineNotStarted: somebody is bound to it, or an engine of another run will be.
    """
    port = _lock(number, lock or lock_file)
    if port is None:
        what = f"port {number} belongs to an engine that another run has started"
        cure = "end that run, or put {port} into the command: a free one is chosen then"
        raise EngineNotStarted(what, fault="caller", cure=cure)
    if not bindable(number, reuse=True):
        port.release()
        cure = "end that program, or put {port} into the command: a free one is chosen then"
        raise EngineNotStarted(f"port {number} is in use by another program", fault="caller", cure=cure)
    return port


def bindable(number: int, reuse: bool = False) -> bool:
    """Can an engine listen on it, at this moment? Asked without listening.

    Args:
        reuse: connections of an earlier engine on it, which has ended, do not count. The system keeps them for a
            minute, and an engine that sets SO_REUSEADDR may listen nevertheless.
    """
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if sys.platform == "win32":
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
                elif reuse:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, number))
        except OSError:
            if family == socket.AF_INET or has_ipv6():
                return False
    return True


def holder(number: int) -> str:
    """Who is bound to it, in words, as far as the system says so; "" where nobody is.

    It binds the port for a moment, so an engine that is about to listen on it must not be running.
    """
    if bindable(number, reuse=True):
        return ""
    import psutil

    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.pid and connection.laddr and connection.laddr.port == number:
                name = psutil.Process(connection.pid).name()
                return f"process {connection.pid} ({name}) listens on port {number}"
    return f"another program has taken port {number}"


def folder() -> Path:
    """Where the lock files are: one folder for each user, the same for all runs whatever TMPDIR says.

    Raises:
        ConfigurationError: it belongs to another user.
    """
    if sys.platform == "win32":
        path = Path(tempfile.gettempdir()) / "ue_rl_ports"
        path.mkdir(exist_ok=True)
        return path
    base = Path("/tmp")
    path = (base if os.access(base, os.W_OK) else Path(tempfile.gettempdir())) / f"ue_rl_ports_{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise ConfigurationError(
            f"{path} belongs to another user", field="port", got=str(path), cure="delete it, as that user or as root"
        )
    return path


def candidates(table: Path = _EPHEMERAL) -> Iterator[int]:
    """Ports to look at, from a random one on: none of the range that `table` says is for outgoing connections."""
    try:
        low, high = (int(word) for word in table.read_text("ascii").split())
    except (OSError, ValueError):
        low = 32_768
        high = 65_535
    numbers = [n for n in range(FIRST, LAST + 1) if not low <= n <= high] or list(range(FIRST, LAST + 1))
    start = random.SystemRandom().randrange(len(numbers))  # two users' runs have no locks in common
    yield from numbers[start:] + numbers[:start]


def _lock(number: int, lock: Callable[[IO[bytes]], None]) -> ReservedPort | None:
    path = folder() / f"{number}.lock"
    while True:
        try:
            file = path.open("ab")
        except PermissionError:  # Windows: it is just being deleted
            return None
        try:
            lock(file)
        except OSError:
            file.close()
            return None
        if _still_named(file, path):
            file.truncate(0)
            file.write(f"{os.getpid()}".encode())  # for people, and ue_rl.devtools.testing.Leftovers
            file.flush()
            return ReservedPort(number, path, file)
        file.close()  # its holder deleted it between our opening and our locking


def lock_file(file: IO[bytes]) -> None:
    """Locks it as long as it is open; raises OSError where another process has."""
    if sys.platform == "win32":
        import msvcrt

        # It locks from the file's position, which is the file's end here: another byte for each who has written there
        # already. And what is locked cannot be read: this byte lies far behind the number that people read.
        os.lseek(file.fileno(), _LOCKED, os.SEEK_SET)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _still_named(file: IO[bytes], path: Path) -> bool:
    if sys.platform == "win32":
        return True
    try:
        held = os.fstat(file.fileno())
        named = path.stat()
    except OSError:
        return False
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)


def has_ipv6() -> bool:
    """Can anybody listen on ::1?"""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
