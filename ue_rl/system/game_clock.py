"""GameClock: when the next tick is due, and how late ticks were. It never waits and never ticks: its owner does."""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from ue_rl.system.errors import ConfigurationError

_KEPT = 4096  # of how many ticks the lateness is kept


class GameClock:
    """A fixed rate of ticks.

    A late tick is counted, and the clock goes on from it: two ticks never follow each other at once, unless
    `catch_up` asks that as many ticks are made as time has passed for.

    Args:
        rate: ticks a second; 0: as fast as it can, where no tick is late.
        catch_up: see above.
        tolerance: part of a period that a tick may be late without being counted.

    Attributes:
        due: when the next tick is to begin, in seconds of time.perf_counter(). late_ticks: counted so far.

    Raises:
        ConfigurationError: a rate that is negative or not finite.
    """

    def __init__(self, rate: float, *, catch_up: bool = False, tolerance: float = 0.1) -> None:
        if not 0 <= rate < float("inf"):
            raise ConfigurationError("no such tick rate", field="tick_rate", expected="0 or more a second", got=rate)
        self.rate = rate
        if rate:
            self.period = 1 / rate
        else:
            self.period = 0.0
        self._catch_up = catch_up
        self._tolerance = tolerance * self.period
        self._lateness: deque[float] = deque(maxlen=_KEPT)
        self.late_ticks = 0
        self.due = time.perf_counter() + self.period

    def restart(self) -> None:
        """The world has stood still: the next tick is due one period from now."""
        self.due = time.perf_counter() + self.period

    def tick(self, now: float | None = None) -> float:
        """A tick begins, at `now` (None: now): moves `due` to the next one; by how many seconds this one is late."""
        if now is None:
            now = time.perf_counter()
        late = max(now - self.due, 0.0)
        if not self.rate:
            self.due = now
            return 0.0
        self._lateness.append(late)
        self.late_ticks += late > self._tolerance
        self.due += self.period
        if not self._catch_up and self.due <= now:
            self.due = now + self.period
        return late

    def lateness(self, last: int = _KEPT) -> dict[str, float]:
        """Seconds by which the `last` ticks (4096 at most) were late: p50, p99, max."""
        p50, p99, most = np.percentile(list(self._lateness)[-last:] or [0.0], (50, 99, 100)).tolist()
        return {"p50": p50, "p99": p99, "max": most}
