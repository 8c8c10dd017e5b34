"""Which versions of libraries are installed."""

from __future__ import annotations

import functools
from importlib import metadata


def installed(*names: str) -> dict[str, str]:
    """The version of each of these distributions that is installed."""
    return {name: found for name in names if (found := _version(name)) is not None}


@functools.cache  # a look reads and parses a file: 2 ms for the six of a checkpoint
def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
