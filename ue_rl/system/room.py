"""Room in the system's shared memory, for who must say why an engine has none to offer."""

from __future__ import annotations

import sys
from pathlib import Path

from ue_rl.system.durable import amount, free_space

SHM_DIR = Path("/dev/shm")
MORE_ROOM = f"is there enough shared memory (df {SHM_DIR}; docker run --shm-size=1g)?"


def short_of(needed: int) -> str:
    """Of shared memory on this machine: "/dev/shm has only 3.1 MB free" where a segment of so many bytes does not fit.

    "" where it fits, or where the system does not say.
    """
    if not sys.platform.startswith("linux"):
        return ""
    free = free_space(SHM_DIR)
    if free is None or free >= needed:
        return ""
    return f"{SHM_DIR} has only {amount(free)} free"
