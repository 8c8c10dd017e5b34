"""The tables of a run, progress.csv, episodes.csv and so on, and TensorBoard, continued from a checkpoint.

What was written after that checkpoint happens again, so its rows are cut off: an axis never goes backwards.
"""

from __future__ import annotations

import csv
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import (
    Figure,
    FormatUnsupportedError,
    HParam,
    HumanOutputFormat,
    Image,
    KVWriter,
    Logger,
    TensorBoardOutputFormat,
    Video,
    filter_excluded_keys,
)
from torch.utils.tensorboard import SummaryWriter

from ue_rl.system.durable import write_whole
from ue_rl.training.reading import PROGRESS_STEPS
from ue_rl.training.writing import WriteGuard

STEPS = {
    "progress.csv": PROGRESS_STEPS,
    **dict.fromkeys(("episodes.csv", "evaluations.csv", "self_play.csv"), "env_steps"),
}

_NAME = 200  # characters: more than the names of ue_rl.training.callbacks.EngineNumbers have

_log = logging.getLogger(__name__)


def cut_tables(folder: Path, env_steps: int) -> None:
    """Cuts what is beyond `env_steps` off the tables in `folder`; each is replaced whole, or stays as it is.

    Rows that are no rows (the last one of a process that was killed) go as well.
    """
    for name, column in STEPS.items():
        path = folder / name
        if not path.exists():
            continue
        rows = _rows(path)
        kept = [row for row in rows[1:] if len(row) == len(rows[0]) and _steps(row, rows[0], column) <= env_steps]
        before = path.read_bytes()
        rows_kept = []
        if kept:
            rows_kept = [*rows[:1], *kept]
        newline = "\n"
        if b"\r\n" in before:
            newline = "\r\n"
        after = _text(rows_kept, newline)
        if after != before:
            _replace(path, after)
            _log.info("%s goes on at %d env-steps, with %d of its %d rows", path, env_steps, len(kept), len(rows) - 1)


def open_tables(
    folder: Path,
    warn: Callable[[str], object],
    env_steps: int = 0,
    verbose: int = 0,
    tensorboard: bool = True,
    others: Sequence[KVWriter] = (),
) -> Logger:
    """SB3's logger of a run: progress.csv and TensorBoard in `folder`, others, and the screen where `verbose`.

    Args:
        folder: the run's.
        warn: shows the one warning of each table that the disk does not take.
        env_steps: of the checkpoint that the run is resumed from, 0 for a new one: what is later is cut off (see
            cut_tables), and hidden in TensorBoard.
    """
    cut_tables(folder, env_steps)
    formats: list[KVWriter] = [ProgressTable(folder / "progress.csv"), *others]
    if tensorboard:
        formats.append(_TensorBoard(folder, env_steps))
    if verbose:
        # As SB3's own for the screen, but names are not cut: it refuses two that are the same then.
        formats.append(HumanOutputFormat(sys.stdout, max_length=_NAME))
    return Logger(str(folder), [GuardedTable(table, warn) for table in formats])


def columns(path: Path) -> list[str]:
    """The header of a table; [] without one."""
    if path.exists():
        return next(iter(_rows(path)), [])
    return []


class ProgressTable(KVWriter):
    """SB3's table in a CSV file that goes on where it is: SB3's own empties a file that is there.

    Args:
        path: the file; a new key is a new column at the right, and the file is then replaced as a whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys = columns(path)
        self._file = path.open("a", newline="", encoding="utf-8")

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Appends a row of what is not excluded from "csv"."""
        values = filter_excluded_keys(key_values, key_excluded, "csv")
        if not values:
            return
        for key, value in values.items():
            for kind in (Video, Figure, Image, HParam):
                if isinstance(value, kind):
                    raise FormatUnsupportedError(["csv"], f"{kind.__name__.lower()} ({key})")
        new = [key for key in values if key not in self._keys]
        if new:
            self._widen(new)
        csv.writer(self._file, lineterminator="\n").writerow([values.get(key, "") for key in self._keys])
        self._file.flush()

    def _widen(self, new: list[str]) -> None:
        keys = [*self._keys, *new]
        self._file.close()  # Windows replaces no open file
        try:
            rows = _rows(self._path)[1:]
            _replace(self._path, _text([keys, *(row + [""] * len(new) for row in rows)], "\n"))
            self._keys = keys
        finally:
            self._file = self._path.open("a", newline="", encoding="utf-8")

    def close(self) -> None:
        """Nothing is written afterwards."""
        self._file.close()


class _TensorBoard(TensorBoardOutputFormat):
    """SB3's, whose writer says where it goes on: TensorBoard hides what an earlier file has from there on."""

    def __init__(self, folder: Path, env_steps: int) -> None:
        purge_step = None
        if env_steps:
            purge_step = env_steps + 1
        self.writer = SummaryWriter(log_dir=str(folder), purge_step=purge_step)
        self._is_closed = False


class GuardedTable(KVWriter):
    """A table of SB3's logger that goes on without the rows that a full disk, a service or a writer does not take.

    Args:
        table: the table. warn: shows the one warning.
    """

    def __init__(self, table: KVWriter, warn: Callable[[str], object]) -> None:
        self._table = table
        self._guard = WriteGuard(type(table).__name__.lstrip("_"), warn, Exception)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """See KVWriter."""
        with self._guard:
            self._table.write(key_values, key_excluded, step)

    def close(self) -> None:
        """See KVWriter."""
        with self._guard:
            self._table.close()


@contextmanager
def quiet_tensorboard() -> Iterator[None]:
    """TensorBoard's writer has a thread, whose traceback says again what GuardedTable has said."""
    before = threading.excepthook

    def hook(arguments: Any) -> None:
        if type(arguments.thread).__name__ != "_AsyncWriterThread" or not issubclass(arguments.exc_type, OSError):
            before(arguments)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def _rows(path: Path) -> list[list[str]]:
    """The whole lines of a CSV file, the header first; what is no text is left out."""
    text = path.read_text("utf-8", errors="replace").replace("\0", "")
    rows: list[list[str]] = []
    try:
        rows += (row for row in csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline="")) if row)
    except csv.Error as error:
        _log.warning("%s is broken after %d rows: %s", path, len(rows), error)
    return rows


def _text(rows: list[list[str]], end: str) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end).writerows(rows)
    return text.getvalue().encode()


def _replace(path: Path, content: bytes) -> None:
    write_whole(path, lambda half: half.write_bytes(content))


def _steps(row: list[str], header: list[str], column: str) -> float:
    """Where a row stands; one that does not say is kept (0), one that says nonsense is not (infinity)."""
    text = ""
    if column in header:
        text = row[header.index(column)]
    try:
        return float(text or 0)
    except ValueError:
        return float("inf")
