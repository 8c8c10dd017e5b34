"""Timing: by which clock a connection keeps its deadlines, and into how long slices it cuts its waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ue_rl.system.spin import TCP_SLICE_MS


@dataclass(frozen=True)
class Timing:
    """What a connection knows of time. Tests give it another one, and wait for nothing.

    Args:
        now: seconds, as time.monotonic; deadlines are of this clock. sleep: as time.sleep.
        slice_ms: how long one wait on a socket lasts before the clock is looked at.
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    slice_ms: int = TCP_SLICE_MS


SYSTEM_TIMING = Timing()
