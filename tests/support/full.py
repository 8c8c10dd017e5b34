"""A disk that is full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Meanwhile this process can write no file beyond so many bytes: the system refuses it as on a full disk."""
    resource = pytest.importorskip("resource", reason="this system has no limits of a process")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
