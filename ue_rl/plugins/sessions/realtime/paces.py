"""Paces: the clocks by which the rows of a world move on their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ue_rl.system.game_clock import GameClock

_LONGEST = 1.0  # seconds of a timer, so that those of clocks that have gone are soon gone, too


class _Pace:
    """The rows that one clock moves.

    Attributes:
        moving: bool [rows]. awaited: a timer will wake the world.
    """

    def __init__(self, clock: GameClock, rows: int) -> None:
        self.clock = clock
        self.moving = np.zeros(rows, np.bool_)
        self.awaited = False


class Paces:
    """Used by the worker that runs the world; `clocks` by anybody.

    Args:
        rows: of the world. catch_up: see GameClock.
        at: calls a function at a time (Workers.at). wake: runs the world soon, before others.
        late: told which rows are late, bool [rows].

    Attributes:
        moving: some row moves by a clock.
    """

    def __init__(
        self,
        rows: int,
        catch_up: bool,
        at: Callable[[float, Callable[[], None]], None],
        wake: Callable[[], object],
        late: Callable[[NDArray[np.bool_]], None],
    ) -> None:
        self._rows = rows
        self._catch_up = catch_up
        self._at = at
        self._wake = wake
        self._late = late
        self._paces: dict[float, _Pace] = {}
        self.moving = False

    def start(self, row: int, rate: float) -> None:
        """The row moves from now on, `rate` times a second."""
        if rate not in self._paces:
            self._paces[rate] = _Pace(GameClock(rate, catch_up=self._catch_up), self._rows)
        self._paces[rate].moving[row] = self.moving = True

    def stop(self, row: int) -> None:
        """It stands still. A clock by which no row moves is forgotten."""
        for rate, pace in list(self._paces.items()):
            pace.moving[row] = False
            if not pace.moving.any():
                del self._paces[rate]
        self.moving = bool(self._paces)

    def due(self) -> NDArray[np.bool_] | None:
        """The rows whose tick is due, bool [rows]; None: no clock says so. What is due later wakes the world then."""
        found: NDArray[np.bool_] | None = None
        now = time.perf_counter()
        for pace in self._paces.values():
            clock = pace.clock
            if clock.due <= now:
                before = clock.late_ticks
                clock.tick(now)
                if clock.late_ticks > before:
                    self._late(pace.moving)
                if found is None:
                    found = pace.moving
                else:
                    found = found | pace.moving
            if clock.rate and not pace.awaited:
                pace.awaited = True
                self._at(min(clock.due, now + _LONGEST), partial(self._over, pace))
        return found

    def clocks(self) -> list[GameClock]:
        """All that rows move by."""
        return [pace.clock for pace in list(self._paces.values())]

    def _over(self, pace: _Pace) -> None:
        pace.awaited = False
        self._wake()
