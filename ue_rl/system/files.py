"""require_file(path): what is about to be read is an ordinary file, and not a pipe or a device that never ends."""

from __future__ import annotations

import errno
import os
import stat
from os import PathLike


def require_file(path: str | PathLike[str]) -> None:
    """To be called before a file is opened: opening a FIFO waits for a writer, /dev/zero is read until memory is full.

    Raises:
        OSError: there is something else than an ordinary file at `path`, or nothing.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not an ordinary file", os.fspath(path))
