"""Restarts: how often an engine may be lost before the run ends, and how long to wait before it is started again."""

from __future__ import annotations

import time
from collections import deque

from ue_rl.system.durations import duration_text, read_duration
from ue_rl.system.errors import ConfigurationError, ProtocolError, RestartsSpent, UeRlError, as_sentence

_QUICK = 5.0  # seconds: an engine that lived no longer than this since its last start died at once
_MORE = "more are allowed with restarts= (--restarts), such as 20/60s"
_CHECK = "ue-rl check, with the same --engine or address, names what its game's side does wrong"
FORM = "TIMES/WINDOW such as 10/60s, or 0 for never"
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


def read_restarts(text: str | int) -> tuple[int, float]:
    """(10, 60.0) of "10/60s": how often, and within how many seconds of play; without a window 60 seconds.

    Raises:
        ValueError: not TIMES/WINDOW.
    """
    times, slash, window = str(text).partition("/")
    if isinstance(text, bool) or not (times.isdecimal() and times.isascii()):
        raise ValueError(f"not {FORM}: {text!r}")
    seconds = 60.0
    if slash:
        seconds = read_duration(window)
    if seconds <= 0:
        raise ValueError(f"not {FORM}: {text!r}")
    return int(times), seconds


def restarts_text(text: str | int) -> str:
    """`text` in its canonical form, "10/60s"; "0" for never. Raises ValueError as `read_restarts`."""
    times, window = read_restarts(text)
    if times:
        return f"{times}/{duration_text(window)}"
    return "0"


class Restarts:
    """The quota, for each engine on its own.

    Args:
        max_restarts: an engine may be started again this many times within `window`; 0: never.
        window: seconds of play, in which an engine is connected and answers. One that is lost now and then, over a long
            run, never spends its quota; one that plays for a moment only does, however long it takes to start.
        first_pause: seconds before an engine is started again that died at once; twice as long each further time.

    Attributes:
        counts: engine's number -> how often it was lost so far.

    Raises:
        ConfigurationError: a negative number, or a window that is not positive.
    """

    def __init__(self, max_restarts: int = 10, window: float = 60.0, *, first_pause: float = _FIRST_PAUSE) -> None:
        if max_restarts < 0:
            raise ConfigurationError("a quota is not negative", field="max_restarts", got=max_restarts)
        if not window > 0:
            raise ConfigurationError("a window is positive", field="restart_window", expected="seconds", got=window)
        self.max_restarts = max_restarts
        self.window = window
        self._first_pause = first_pause
        self.counts: dict[int, int] = {}
        self._losses: dict[int, deque[float]] = {}  # when, on a clock that stands still while an engine is started
        self._clocks: dict[int, tuple[float, float]] = {}  # the engine's clock and the time, at its last loss
        self._quick: dict[int, int] = {}
        self._in_vain: dict[int, int] = {}  # losses in a row without a step between them

    @classmethod
    def of(cls, text: str | int) -> Restarts | None:
        """The quota that `text` says, see `read_restarts`; None: never.

        Raises:
            ConfigurationError: it says none.
        """
        try:
            times, window = read_restarts(text)
        except ValueError:
            raise ConfigurationError("not a quota of restarts", field="restarts", expected=FORM, got=text) from None
        if times:
            return cls(times, window)
        return None

    def lost(
        self, engine: int, error: UeRlError, now: float | None = None, stepped: bool = True, played: float | None = None
    ) -> float:
        """An engine was lost.

        Args:
            engine: its number. error: why. now: time.monotonic() seconds; None: those. stepped: it has answered a step
                since its last start. played: seconds that it was connected and answered; None: since it was lost last.

        Returns:
            seconds to wait before it is started again: 0, or longer each time where it died soon after its last start.

        Raises:
            RestartsSpent: it was lost more often than allowed.
        """
        if now is None:
            now = time.monotonic()
        self.counts[engine] = self.counts.get(engine, 0) + 1
        losses = self._losses.setdefault(engine, deque())
        clock, before = self._clocks.get(engine, (0.0, now))
        if played is None:
            played = now - before
        died_at_once = bool(losses) and played < _QUICK
        clock += played
        self._clocks[engine] = clock, now
        while losses and clock - losses[0] > self.window:
            losses.popleft()
        losses.append(clock)
        if stepped:
            in_vain = self._in_vain[engine] = 0
        else:
            in_vain = self._in_vain[engine] = self._in_vain.get(engine, 0) + 1
        if len(losses) > self.max_restarts or in_vain > self.max_restarts:
            often = f"{len(losses)} times within {self.window:g} s of play"
            if len(losses) <= self.max_restarts:
                often = f"{in_vain} times in a row, and answered no step between"
            cures = [_MORE]
            if isinstance(error, ProtocolError):  # more would end in the same way
                cures = [_CHECK]
            elif in_vain and isinstance(error, TimeoutError):  # likewise
                cures = []
            if error.cure:
                cures += [as_sentence(error.cure)]
            else:
                cures += []
            cure = ". ".join(cures)
            raise RestartsSpent(f"{error.message}; it was lost {often}", **error.facts(cure=cure)) from error
        if died_at_once:
            quick = self._quick[engine] = self._quick.get(engine, 0) + 1
        else:
            quick = self._quick[engine] = 0
        return min(_LONGEST_PAUSE, self._first_pause * 2 ** (quick - 1)) if quick else 0.0
