"""One process at a time writes a run: a lock that the system releases when its holder dies, and who holds it."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import portalocker
import psutil
from portalocker import LockFlags
from portalocker.exceptions import AlreadyLocked, LockException

from ue_rl.system.durable import write_whole
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.forks import notify_of_forks

LOCK = "run.lock"
HOLDER = "run.holder.json"  # a file of its own: on Windows nobody can read a file that is locked

_log = logging.getLogger(__name__)


class RunLock:
    """Held as a context manager while a process writes into a run's folder. A forked child holds nothing.

    The lock is the operating system's (flock, on Windows LockFile): it ends with the process, also by kill -9. Where
    the file system has no locks (some network mounts), a process that runs on this machine is still recognized; one on
    another machine is then only warned of.

    Args:
        folder: the run's; it must exist. opener: opens its file, as os.open; None: as `opened` does.

    Attributes:
        held: by this object, in this process.
    """

    def __init__(self, folder: Path, opener: Callable[[str, int], int] | None = None) -> None:
        self.folder = folder
        self._opener = opener or opened
        self.held = False
        self._file: IO[str] | None = None  # open while it is held
        notify_of_forks(self)

    def __enter__(self) -> RunLock:
        """Nothing happens where it is held already.

        Raises:
            ConfigurationError: another process holds it, with who that is; or the folder is not there (it is not made:
                another process may be renaming it), or cannot be written.
        """
        if self.held:
            return self
        before = self.holder()
        try:
            self._file = open(self.folder / LOCK, "a", opener=self._opener)
            portalocker.lock(self._file, LockFlags.EXCLUSIVE | LockFlags.NON_BLOCKING)
        except AlreadyLocked:
            self.let_go()
            raise self._refusal(self.holder()) from None
        except (OSError, LockException) as error:
            self.let_go()
            cure = None
            if isinstance(error, FileNotFoundError):
                cure = "look whether another process has just renamed or deleted it, then start again"
            elif isinstance(error, (PermissionError, NotADirectoryError)):
                cure = "check that it is a folder, and who owns it"
            if cure:
                raise ConfigurationError(
                    f"{self.folder} cannot be locked", field="log_dir", got=str(error), cure=cure
                ) from error
            if _runs(before):
                raise self._refusal(before) from None
            _log.warning("%s cannot be locked (%s): start nothing else on this run", self.folder, error)
        if self._is_of_another_folder():
            self.let_go()
            raise self._refusal(self.holder())
        if before and before.get("host") != socket.gethostname():
            _log.warning(
                "%s was last written by pid %s on %s, which did not say that it ended: make sure that it has",
                self.folder,
                before.get("pid"),
                before.get("host"),
            )
        self.held = True
        self._write_holder()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.held:
            self.held = False
            holder = self.holder() or {}
            if holder.get("pid") == os.getpid():  # else the folder was renamed, and that is another one
                with suppress(OSError):
                    (self.folder / HOLDER).unlink(missing_ok=True)
            self.let_go()

    def forked(self) -> None:
        """In a forked child: the lock stays the parent's. Closing a descriptor of it does not release it, but as long
        as one is open, it is not released when the parent dies.
        """
        self.held = False
        self.let_go()

    def let_go(self) -> None:
        """Closes its file, as the system does when the process ends."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_of_another_folder(self) -> bool:
        """Was the folder renamed, or made anew, between opening the lock's file and locking it?"""
        if self._file is None or os.name == "nt":
            return False
        try:
            return not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.folder / LOCK))
        except OSError:
            return True

    def holder(self) -> dict[str, Any] | None:
        """pid, host and start time of who holds it, or held it and was killed; None where nobody is named."""
        try:
            found = json.loads((self.folder / HOLDER).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if isinstance(found, dict):
            return found
        return None

    def writer(self) -> dict[str, Any] | None:
        """The `holder`, unless its process has ended; of one on another machine that is not known. Locks nothing."""
        found = self.holder()
        if found and found.get("host") == socket.gethostname() and not _runs(found):
            return None
        return found

    def _write_holder(self) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        started = psutil.Process().create_time()
        text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": now, "started": started})
        try:
            write_whole(self.folder / HOLDER, lambda half: half.write_text(text + "\n", "utf-8"))
        except OSError as error:  # a full disk: the lock itself holds all the same
            _log.warning("%s could not be written: %s", self.folder / HOLDER, error)

    def _refusal(self, holder: dict[str, Any] | None) -> ConfigurationError:
        who = "another process"
        if holder:
            who = f"pid {holder.get('pid')} on {holder.get('host')} since {holder.get('since')}"
        cure = "stop that one first, or choose another --run-id"
        return ConfigurationError(f"the run {self.folder} is being written by {who}", field="run_id", cure=cure)


def opened(path: str, flags: int) -> int:
    """Follows no link that somebody has put there, and does not wait at a pipe."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)


def _runs(holder: dict[str, Any] | None) -> bool:
    """Is the process that wrote `holder` still there, on this machine?"""
    if not holder or holder.get("host") != socket.gethostname():
        return False
    try:
        return abs(psutil.Process(int(holder["pid"])).create_time() - float(holder["started"])) < 1.0
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False
