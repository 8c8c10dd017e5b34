"""Clocks for deadlines that nobody waits for (ue_rl/system/timing.py)."""

from __future__ import annotations

import time
from collections.abc import Callable

from ue_rl.system.timing import Timing

SLICE_MS = 1  # a look at the clock costs a millisecond where nothing has come


class EngineClock:
    """The time of a trainer and of engines without threads: these act whenever the trainer looks at the clock.

    No time passes while they have something to do; else STEP seconds a look. So what an engine does comes in time on
    every machine, and what it never does is waited for during a few looks.

    Args:
        turn: lets the engines act once, and says whether one did something, as LineEngine.turn.
        step: seconds.
    """

    def __init__(self, turn: Callable[[], object], step: float = 0.05) -> None:
        self.seconds = 1000.0
        self._turn = turn
        self._step = step
        self.timing = Timing(self.now, self.sleep, SLICE_MS)

    def now(self) -> float:
        """Seconds."""
        acted = False
        while self._turn():
            acted = True
        if not acted:
            self.seconds += self._step
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """They have passed."""
        self.seconds += seconds


def once(condition: Callable[[], object], step: float = 1000.0) -> Timing:
    """The system's time; while `condition` holds each look finds it `step` seconds later.

    For engines with threads: `condition` says that nothing more is to come, or, with a small step, that little is.
    """
    ahead = 0.0

    def now() -> float:
        nonlocal ahead
        if condition():
            ahead += step
        return time.monotonic() + ahead

    return Timing(now, time.sleep, SLICE_MS)


def fast(rate: float) -> Timing:
    """`rate` times as fast as the system's: for waits that an engine with a thread must see pass."""
    return Timing(lambda: rate * time.monotonic(), lambda seconds: time.sleep(seconds / rate), SLICE_MS)
