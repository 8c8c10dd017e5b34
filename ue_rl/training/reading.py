"""What a run writes, read by others: while it grows, after it was cut, and after it was replaced."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from ue_rl.system.files import require_file

PROGRESS_STEPS = "time/total_timesteps"  # the column of progress.csv that says where a row stands
WINDOW = 100  # episodes of a running return


class Tail:
    """The lines of a file that grows; it need not exist yet.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._file = 0

    def read(self) -> tuple[bool, list[str]]:
        """(Is it another file than before, or a shorter one? The whole lines since the last call, or since that.)"""
        try:
            require_file(self._path)
            with self._path.open("rb") as file:
                status = self._path.stat()
                anew = status.st_ino != self._file or status.st_size < self._at
                if anew:
                    self._at = 0
                self._file = status.st_ino
                file.seek(self._at)
                text = file.read()
        except OSError:
            return False, []
        text = text[: text.rfind(b"\n") + 1]
        self._at += len(text)
        return anew, text.decode("utf-8", "replace").splitlines()


class EpisodeTable:
    """episodes.csv of a run; `follow` reads what was added.

    Attributes:
        steps: env-steps at which each episode ended. returns, lengths: of each. Lines that were cut are left out.
    """

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self.steps: list[int] = []
        self.returns: list[float] = []
        self.lengths: list[float] = []

    def follow(self) -> EpisodeTable:
        """Itself, with the episodes that have ended since."""
        anew, lines = self._tail.read()
        if anew:
            self.steps = []
            self.returns = []
            self.lengths = []
        for line in lines:
            with suppress(ValueError, OverflowError):  # the header, and what was cut or is no number
                steps, value, length, _ = map(float, line.split(","))
                self.steps.append(int(steps))
                self.returns.append(value)
                self.lengths.append(length)
        return self

    def mean(self, until: float = np.inf) -> float | None:
        """The running return after `until` env-steps: of the last 100 episodes that ended by then; None without any."""
        end = int(np.searchsorted(self.steps, until, "right"))
        last = self.returns[max(0, end - WINDOW) : end]
        if last:
            return float(np.mean(last))
        return None

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """(env-steps, means of a tenth of the episodes, of 100 at most): as curves.png has it; empty without any."""
        if not self.returns:
            return np.empty(0), np.empty(0)
        means, window = running_mean(self.returns)
        return np.array(self.steps[window - 1 :]), means


def running_mean(values: Sequence[float]) -> tuple[np.ndarray, int]:
    """(means of a tenth of the values, of 100 at most; of how many): the first mean is that of the first so many."""
    window = max(1, min(WINDOW, len(values) // 10))
    return np.convolve(values, np.ones(window) / window, "valid"), window
