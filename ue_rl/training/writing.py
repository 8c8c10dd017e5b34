"""run.log, episodes.csv and the rows of evaluations.csv.

Writing them must not end a run: a full disk costs rows of a table, and one warning. Likewise whatever is drawn, filmed
or sent elsewhere: what fails there is missing there.
"""

from __future__ import annotations

import csv
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ue_rl.system.errors import UeRlError, printable
from ue_rl.training.reading import WINDOW, EpisodeTable
from ue_rl.training.report import TrainingReport

_log = logging.getLogger("ue_rl.training.writing")  # `ue-rl train` knows it by this name
EVALUATIONS = "evaluations.csv"
_EVERY = 0.2  # seconds between two reports of progress


class WriteGuard:
    """A block that may fail: the first error is a warning, the others are nothing.

    Args:
        what: is written or drawn, for the warning. tell: shows it.
        errors: of this kind; what else is raised passes. Exception: whatever it is, but for a MemoryError, of which
            nobody knows whose it is.
    """

    def __init__(self, what: str | Path, tell: Callable[[str], object], errors: type[Exception] = OSError) -> None:
        self._what = what
        self._tell = tell
        self._told = False
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, self._errors) or isinstance(error, MemoryError):
            return False
        if not self._told:
            self._told = True
            if isinstance(error, OSError):
                text = f"{self._what} cannot be written: {error}; learning goes on without what does not fit"
                shown = None
            else:
                text = f"{self._what} failed: {sentence(error)}; learning goes on without it"
                if isinstance(error, UeRlError):
                    shown = None
                else:
                    shown = error
            with suppress(OSError):
                _log.warning("%s", text, exc_info=shown)
            self._tell(text)
        return True


def sentence(error: BaseException) -> str:
    """`error` in one sentence."""
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "stopped by Ctrl-C"
    # torch prints whole tensors
    if isinstance(error, UeRlError):
        text = str(error)
    else:
        text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {printable(text, lines=True)}"


class LogFile(logging.FileHandler):
    """run.log; a record that cannot be written is left out. logging's own answer is a traceback on the screen."""

    def __init__(self, path: Path, tell: Callable[[str], object]) -> None:
        super().__init__(path, encoding="utf-8")
        self._guard = WriteGuard(path, tell)

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        if self.stream is None:
            return
        try:
            line = self.format(record).replace("\n", "\n    ")  # a line of text never looks like a record
        except Exception:  # noqa: BLE001 - a record with wrong arguments, which logging shows
            self.handleError(record)
            return
        with self._guard:
            self.stream.write(f"{line}\n")
            self.stream.flush()

    def close(self) -> None:
        """See Handler."""
        with self._guard:
            super().close()


class Episodes:
    """Appends every finished episode to a CSV file, and tells the report how far the run is.

    Args:
        path: the file; it is continued. total: env-steps at which learning ends.

    Attributes:
        count: how many ended, in the whole run. env_steps: how far the run is, as `at` was told last.
    """

    def __init__(self, path: Path, report: TrainingReport, total: int) -> None:
        self._file = path.open("a", buffering=1, newline="")  # line by line: a run that is killed keeps its episodes
        self._writer = csv.writer(self._file)
        self._guard = WriteGuard(path, report.warned)
        self._last: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self.count = self.env_steps = 0
        if self._file.tell():
            before = EpisodeTable(path).follow()
            self.count = len(before.returns)
            self._last.extend(zip(before.returns, before.lengths, strict=True))
        else:
            self._write(["env_steps", "return", "length", "seconds"])
        self._report = report
        self._total = total
        self._told = 0.0

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
        if self._last:
            return sum(each for each, _ in self._last) / len(self._last)
        return None

    @property
    def mean_length(self) -> float | None:
        """In steps, of the last 100 episodes, None without any."""
        if self._last:
            return sum(each for _, each in self._last) / len(self._last)
        return None

    def _write(self, row: list[object]) -> None:
        with self._guard:
            self._writer.writerow(row)

    def _tell(self) -> None:
        self._told = time.monotonic()
        self._report.progress(self.env_steps, self._total, self.mean_return)


class Evaluated(NamedTuple):
    """One row of evaluations.csv."""

    env_steps: int
    mean_return: float
    std_return: float
    mean_length: float
    episodes: int


def evaluations(folder: Path) -> list[Evaluated]:
    """Those of a run, in their order; lines that were cut off are left out."""
    rows = []
    with suppress(OSError), (folder / EVALUATIONS).open(newline="", encoding="utf-8", errors="replace") as file:
        for row in csv.DictReader(file):
            with suppress(KeyError, TypeError, ValueError):
                steps, mean, std, length, episodes = (float(row[name]) for name in Evaluated._fields)
                rows.append(Evaluated(int(steps), mean, std, length, int(episodes)))
    return rows
