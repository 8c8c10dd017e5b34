"""Files and folders that are on the disk, whole, when a call returns: fsync, rename, fsync of the folder.

Written so that it works where folders cannot be opened (Windows) or cannot be fsynced (some network file systems).
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HALF = ".half-"  # begins the name of what is not complete: hidden, and known to those that sweep
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EACCES)  # answers of file systems without it
WINDOWS = os.name == "nt"
WAITS = (0.05, 0.2, 0.5) if WINDOWS else ()  # seconds


def sync_file(path: Path) -> None:
    """Returns when the bytes of the file `path` are on the disk."""
    with path.open("rb+") as file:  # writable: Windows refuses to flush a file that is open for reading
        os.fsync(file.fileno())


def sync_folder(path: Path, windows: bool = WINDOWS) -> None:
    """Returns when the names in the folder `path` are on the disk, where the system can tell: not on Windows."""
    if windows:
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(folder)


def rename(source: Path, target: Path, waits: Sequence[float] = WAITS) -> None:
    """Renames a file (over `target`, if it is there) or a folder.

    Args:
        waits: seconds, one after the other, in which who reads it on Windows may close it.
    """
    for seconds in waits:
        try:
            os.replace(source, target)
            return
        except PermissionError:  # a virus scanner has it open
            time.sleep(seconds)
    os.replace(source, target)


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` with the path of a temporary file that then takes the place of `path`.

    If the process dies or the power fails meanwhile, `path` is still the last good file.
    """
    half = path.with_name(f"{HALF}{path.name}")
    try:
        write(half)
        sync_file(half)  # a rename can reach the disk before the bytes do
        rename(half, path)
        sync_folder(path.parent)
    finally:
        half.unlink(missing_ok=True)


def free_space(path: Path) -> int | None:
    """Bytes that can still be written at `path`; None where the system does not say."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def amount(size: int) -> str:
    """12345678 as "12.3 MB"."""
    number = float(size)
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        del units[0]
    if units[0] == "bytes":
        return f"{number:.0f} bytes"
    return f"{number:.1f} {units[0]}"
