"""Files that are about to be read: no pipe or device that never ends; and their sums."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from os import PathLike
from pathlib import Path


def require_file(path: str | PathLike[str]) -> None:
    """To be called before a file is opened: opening a FIFO waits for a writer, /dev/zero is read until memory is full.

    Raises:
        OSError: there is something else than an ordinary file at `path`, or nothing.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not an ordinary file", os.fspath(path))


def sha256(path: Path) -> str:
    """Of all its bytes, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
