"""Processes that have many files open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

SELECT_ENDS = 1024  # FD_SETSIZE of Linux and macOS: select.select refuses this descriptor and those beyond


@contextlib.contextmanager
def many_are_open() -> Iterator[None]:
    """All that is opened meanwhile has a descriptor that select.select refuses."""
    resource = pytest.importorskip("resource", reason="Windows numbers its sockets otherwise")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = limits
    needed = 2 * SELECT_ENDS
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"this user may open {hard} files at most")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    filler = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while filler[-1] < SELECT_ENDS:
            filler.append(os.dup(filler[0]))
        yield
    finally:
        for each in filler:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
