"""Which shared-memory segments of this process there are."""

from __future__ import annotations

import os

from ue_rl.protocol.memory import segment


def own_segments() -> set[str]:
    """Names of those with this process's pid; compare with what an earlier test has left."""
    return {path.name for path in segment.SHM_DIR.glob(f"{segment.PREFIX}{os.getpid()}_*")}
