"""episodes.csv, and how far a run is: what both backends tell of each finished episode."""

from __future__ import annotations

import csv
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from ue_rl.training.report import Report
from ue_rl.training.writing import Guard

_EVERY = 0.2  # seconds between two reports of progress


class Episodes:
    """Appends every finished episode to a CSV file, and tells the report how far the run is.

    Args:
        path: the file; it is continued. total: env-steps at which learning ends.

    Attributes:
        count: how many ended, in the whole run. env_steps: how far the run is, as `at` was told last.
    """

    def __init__(self, path: Path, report: Report, total: int) -> None:
        self._file = path.open("a", buffering=1, newline="")  # line by line: a run that is killed keeps its episodes
        self._writer = csv.writer(self._file)
        self._guard = Guard(path, report.warned)
        self._last: deque[tuple[float, int]] = deque(maxlen=100)
        self.count = self.env_steps = 0
        if self._file.tell():
            self._read(path)
        else:
            self._write(["env_steps", "return", "length", "seconds"])
        self._report, self._total = report, total
        self._told = 0.0

    def _read(self, path: Path) -> None:
        """What ended before the run was resumed."""
        with self._guard, suppress(csv.Error), path.open(newline="", encoding="utf-8", errors="replace") as file:
            for row in csv.DictReader(file):
                with suppress(KeyError, TypeError, ValueError):  # a row that was cut
                    self._last.append((float(row["return"]), int(row["length"])))
                    self.count += 1

    def add(self, env_steps: int, episode_return: float, length: int, seconds: float) -> None:
        """An episode ended, when the run was at `env_steps`."""
        self.count += 1
        self._last.append((episode_return, length))
        self._write([env_steps, episode_return, length, seconds])

    def at(self, env_steps: int) -> None:
        """The run is at `env_steps`; the report is told about five times a second."""
        self.env_steps = env_steps
        if time.monotonic() - self._told >= _EVERY:
            self._tell()

    def close(self) -> None:
        """Learning is over, also by an exception."""
        with self._guard:
            self._file.close()
        if self._told:
            self._tell()
        self._report.ended()

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 episodes, None without any."""
        return sum(each for each, _ in self._last) / len(self._last) if self._last else None

    @property
    def mean_length(self) -> float | None:
        """In steps, of the last 100 episodes, None without any."""
        return sum(each for _, each in self._last) / len(self._last) if self._last else None

    def _write(self, row: list[object]) -> None:
        with self._guard:
            self._writer.writerow(row)

    def _tell(self) -> None:
        self._told = time.monotonic()
        self._report.progress(self.env_steps, self._total, self.mean_return)
