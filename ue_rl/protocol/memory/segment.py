"""Segment: a named piece of shared memory, made by the engine, mapped by the trainer, on every platform.

    segment = Segment.create(size)             the engine: a fresh unique name, for its owner only
    segment = Segment.open(name)               the trainer
    reclaim_stale()                            deletes what engines that were killed have left

Linux and other systems with /dev/shm: a file there. macOS: shm_open. Windows: a named mapping of the user's session,
Local\\NAME. A name with a slash is the path of an ordinary file, for engines that can map nothing else.
`multiprocessing.shared_memory` is not used: before Python 3.13 its resource tracker deletes the engine's segment when
the trainer exits. Only the maker unlinks.

`close()` never pulls memory away from under an array: the mapping goes when the last view of it has gone.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import logging
import mmap
import os
import secrets
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ue_rl.protocol.memory.header import HEADER_SIZE, MAGIC, Header
from ue_rl.system import processes
from ue_rl.system.errors import ConfigurationError, EngineUnreachable, SegmentInvalid, UeRlError
from ue_rl.system.room import MORE_ROOM, SHM_DIR, short_of

_log = logging.getLogger("ue_rl.protocol.memory.segment")

PREFIX = "ue_rl_"
ENV_NAME = "LUCKY_SHM_NAME"
MAX_NAME = 30  # macOS takes no longer ones
_LOCAL = "Local\\"  # Windows: of this user's session, wherever the process runs


def unique_name() -> str:
    """A name that no other run has: ue_rl_<pid>_<random>, short enough for macOS."""
    return f"{PREFIX}{os.getpid()}_{secrets.token_hex(4)}"


def is_path(name: str) -> bool:
    """Is this the path of a file, and not a name?"""
    return "/" in name or "\\" in name


class Segment:
    """Mapped shared memory.

    Attributes:
        name: what the other side opens. size: bytes. owner: made here, to be unlinked here.
        memory: the mapping (an mmap). identity: two segments of this process are the same memory where theirs are
            equal: device and inode of the file, or the name where there is no file.
    """

    def __init__(self, name: str, memory: mmap.mmap, size: int, owner: bool) -> None:
        self.name = name
        self.memory = memory
        self.size = size
        self.owner = owner
        self._closed = False
        self.identity: tuple[int, int] | str = _identity(name) or name
        if not owner:
            self._maker = None
        else:
            self._maker = (os.getpid(), _identity(name))

    @classmethod
    def create(cls, size: int, name: str | None = None) -> Segment:
        """New zeroed memory that only this user can open.

        Args:
            size: bytes. name: None takes a fresh one.

        Raises:
            ConfigurationError: the name is invalid or taken by a running engine, or there is not enough memory.
        """
        if name is None:
            wanted = unique_name()
        else:
            wanted = name
        name = _checked(wanted)
        if is_path(name):
            name = os.path.abspath(name)  # the working directory may be another one when it is deleted
        try:
            try:
                memory = _create(name, size)
            except FileExistsError:
                if not reclaim(name):
                    raise
                memory = _create(name, size)
        except FileExistsError as error:
            raise ConfigurationError(
                f"there is a segment named {name!r} already",
                field="name",
                got=str(error),
                cure="another engine runs under this name, or the file is not an old segment: choose another name",
            ) from error
        except OSError as error:
            cure = "does the folder exist, and may this user write there?"
            got = str(error)
            if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
                cure = MORE_ROOM
                got = short_of(size) or got
            raise ConfigurationError(
                f"cannot create a segment of {size} bytes", field="name", got=got, cure=cure
            ) from error
        return cls(name, memory, size, owner=True)

    @classmethod
    def open(cls, name: str | None = None) -> Segment:
        """Maps an engine's segment. None: the name in the environment variable LUCKY_SHM_NAME.

        Raises:
            ConfigurationError: no name. EngineUnreachable: there is no such segment.
            SegmentInvalid: it belongs to another user, or is smaller than a header.
        """
        name = name or os.environ.get(ENV_NAME)
        if not name:
            raise ConfigurationError("no segment was named", field="name", cure=f"give shm://NAME, or set {ENV_NAME}")
        try:
            memory, size = _open(_checked(name))
        except FileNotFoundError as error:
            raise EngineUnreachable(
                f"there is no shared memory named {name!r}",
                got=str(error),
                cure="is the engine running, on this machine, and was it told to offer shared memory?",
            ) from error
        except OSError as error:
            what = f"the shared memory {name!r} cannot be mapped"
            cure = "does the engine run as another user?"
            raise EngineUnreachable(what, got=str(error), cure=cure) from error
        return cls(name, memory, size, owner=False)

    def close(self) -> None:
        """Lets go of the memory, and deletes the name where it was made here; idempotent, never raises."""
        if self._closed:
            return
        self._closed = True
        # only by the process that made it, and only while the name still means that file
        if self._maker == (os.getpid(), _identity(self.name)):
            unlink(self.name)
        with contextlib.suppress(BufferError):  # an array over it is still alive, and keeps the mapping
            self.memory.close()

    def __enter__(self) -> Segment:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()


# -- stale segments


def reclaim(name: str, lives: Callable[[Header], bool | None] = processes.engine_alive) -> bool:
    """Deletes the segment `name` if its engine is dead (or was never finished); whether it did.

    Args:
        lives: is the engine that wrote this header alive? None: it does not say who it is.
    """
    if sys.platform == "win32" and not is_path(name):
        return False  # the mapping dies with the last process that has it
    try:
        before = _identity(name)
        memory, _ = _open(name)
    except (OSError, UeRlError, ValueError):
        return False
    with contextlib.closing(memory):
        header = Header.unpack(memory[:HEADER_SIZE])
    if header.magic not in (0, MAGIC):
        return False  # no segment: somebody's own file
    if header.magic == 0:
        dead = _named_pid(name) not in (None, os.getpid()) and not processes.alive(_named_pid(name) or 0)
    else:  # a plain producer may not say who it is
        dead = lives(header) is False
    dead = dead and _identity(name) == before  # else another engine has reclaimed it meanwhile
    if dead:
        _log.info("deleting the segment %s of engine %d, which is gone", name, header.server_pid)
        unlink(name)
    return dead


def _segments_are_files() -> bool:
    """Are the system's named segments files of a folder? Not on Windows, whatever folders its drives have."""
    return sys.platform != "win32" and SHM_DIR.is_dir()


def reclaim_stale() -> list[str]:
    """Deletes all segments of this user whose engine is dead, in /dev/shm; their names."""
    if not _segments_are_files():
        return []
    return [path.name for path in sorted(SHM_DIR.glob(PREFIX + "*")) if _mine(path) and reclaim(path.name)]


def unlink(name: str) -> None:
    """Deletes a name; who has it mapped keeps the memory. Never raises."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32" and not is_path(name):
            return
        if is_path(name) or _segments_are_files():
            _path(name).unlink()
        else:
            _posix().shm_unlink("/" + name)


def _mine(path: Path) -> bool:
    if sys.platform == "win32":
        raise NotImplementedError
    try:
        return path.lstat().st_uid == os.getuid()
    except OSError:
        return False


def _identity(name: str) -> tuple[int, int] | None:
    """Which file stands behind a name now; None where that is no file, or there is none."""
    if not is_path(name) and not _segments_are_files():
        return None
    try:
        facts = _path(name).lstat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _named_pid(name: str) -> int | None:
    parts = name.split("_")
    is_ours = name.startswith(PREFIX) and len(parts) == 4 and parts[2].isascii() and parts[2].isdigit()
    if is_ours and not is_path(name):
        return int(parts[2])
    return None


# -- the platforms


def _checked(name: str) -> str:
    plain = all(c.isascii() and (c.isalnum() or c in "_-.") for c in name)
    if is_path(name) and ("\0" in name or not name.isprintable()):
        raise ConfigurationError(
            "not the path of a file", field="name", expected="printable characters", got=ascii(name)
        )
    if not is_path(name) and (not plain or not 0 < len(name) <= 255 or name.strip(".") == ""):
        raise ConfigurationError(
            "not a name of shared memory",
            field="name",
            expected="letters, digits, '_', '-' and '.', or the path of a file",
            got=name,
        )
    return name


def _path(name: str) -> Path:
    if is_path(name):
        return Path(name)
    return SHM_DIR / name


def _posix() -> Any:
    return importlib.import_module("_posixshmem")  # the standard library's own: there is no public way to shm_open


def _file(name: str, flags: int) -> int:
    """An open file or POSIX object; it is closed again once mapped."""
    if is_path(name) or _segments_are_files():
        flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        return os.open(_path(name), flags, 0o600)
    return int(_posix().shm_open("/" + name, flags, mode=0o600))


def _create(name: str, size: int) -> mmap.mmap:
    if sys.platform == "win32" and not is_path(name):
        return WindowsMappings().create(name, size)
    fd = _file(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        if hasattr(os, "posix_fallocate") and sys.platform == "linux":
            os.posix_fallocate(fd, 0, size)  # a full /dev/shm must fail here, and not as SIGBUS in the middle of a step
        else:
            os.ftruncate(fd, size)
        return mmap.mmap(fd, size)
    except BaseException:
        unlink(name)
        raise
    finally:
        os.close(fd)


def _open(name: str) -> tuple[mmap.mmap, int]:
    if sys.platform == "win32" and not is_path(name):
        return WindowsMappings().open(name)
    fd = _file(name, os.O_RDWR)
    try:
        facts = os.fstat(fd)
        if sys.platform != "win32" and facts.st_uid != os.getuid():
            raise SegmentInvalid(
                f"the segment {name!r} belongs to another user", field="owner", expected=os.getuid(), got=facts.st_uid
            )
        if is_path(name) and not stat.S_ISREG(facts.st_mode):
            what = f"{name!r} is not a regular file"
            cure = "give the path of a segment's file"
            raise SegmentInvalid(what, fault="caller", field="name", cure=cure)
        if facts.st_size < HEADER_SIZE:
            what = f"the segment {name!r} is smaller than its header"
            raise SegmentInvalid(what, field="size", expected=f"at least {HEADER_SIZE} bytes", got=facts.st_size)
        return mmap.mmap(fd, facts.st_size), facts.st_size
    finally:
        os.close(fd)


class WindowsMappings:
    """Named mappings of Windows, which are no files.

    Args:
        api: the system's calls; None: the standard library's `_winapi`. map_memory: as `mmap.mmap` of Windows, and it
            where it is None.
    """

    def __init__(self, api: Any = None, map_memory: Callable[..., mmap.mmap] | None = None) -> None:
        if api is None:
            api = importlib.import_module("_winapi")
        if map_memory is None:
            map_memory = mmap.mmap
        self._api = api
        self._map: Callable[..., mmap.mmap] = map_memory  # Windows' takes tagname, which no other system's stub knows

    def create(self, name: str, size: int) -> mmap.mmap:
        """New memory; raises FileExistsError where the name is taken."""
        tagname = _LOCAL + name
        # CreateFileMapping would silently open an existing mapping: check first
        try:
            handle = self._api.OpenFileMapping(self._api.FILE_MAP_READ, False, tagname)
        except OSError:
            return self._map(-1, size, tagname=tagname)
        self._api.CloseHandle(handle)
        raise FileExistsError(name)

    def open(self, name: str) -> tuple[mmap.mmap, int]:
        """What has this name, and its size; raises FileNotFoundError where nothing has."""
        api = self._api
        tagname = _LOCAL + name
        try:
            handle = api.OpenFileMapping(api.FILE_MAP_READ, False, tagname)
        except OSError as error:
            raise FileNotFoundError(name) from error
        try:
            address = api.MapViewOfFile(handle, api.FILE_MAP_READ, 0, 0, 0)
        finally:
            api.CloseHandle(handle)
        try:
            size = int(api.VirtualQuerySize(address))  # mmap does not tell the size
        finally:
            api.UnmapViewOfFile(address)
        return self._map(-1, size, tagname=tagname), size
