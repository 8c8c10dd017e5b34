"""What is written while a model learns must not end it: a full disk costs rows of a table, and one warning."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_log = logging.getLogger(__name__)


class Guard:
    """A block that may fail with an OSError: the first one is a warning, the others are nothing.

    Args:
        what: is written, for the warning. tell: shows it.
    """

    def __init__(self, what: str | Path, tell: Callable[[str], object]) -> None:
        self._what, self._tell, self._told = what, tell, False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, OSError):
            return False
        if not self._told:
            self._told = True
            text = f"{self._what} cannot be written: {error}; learning goes on without what does not fit"
            with suppress(OSError):
                _log.warning("%s", text)
            self._tell(text)
        return True


class LogFile(logging.FileHandler):
    """run.log; a record that cannot be written is left out. logging's own answer is a traceback on the screen."""

    def __init__(self, path: Path, tell: Callable[[str], object]) -> None:
        super().__init__(path, encoding="utf-8")
        self._guard = Guard(path, tell)

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
