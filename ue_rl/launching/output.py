"""What an engine prints: a file that goes on from start to start, and its last lines for an error message."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import IO

LINES, BYTES, WIDTH = 12, 16_384, 200


class Output:
    """An engine's output.

    Args:
        path: a file that is appended to; None: one without a name, which goes with the last process that has it open.

    Attributes:
        file: takes the output. path: as given.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is None:
            self.file: IO[bytes] = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = path.open("a+b", buffering=0)
        self._begun = 0

    def begin(self, headline: str) -> None:
        """Another start: a line that says so; the last lines are looked for behind it."""
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        self.file.write(f"--- {now} {headline}\n".encode("utf-8", "replace"))
        self._begun = os.fstat(self.file.fileno()).st_size

    def last_lines(self) -> str:
        """What the present start printed last, for people, with where there is more of it."""
        size = os.fstat(self.file.fileno()).st_size
        self._begun = self._begun if self._begun <= size else 0  # the keeper has cut it
        begin = max(self._begun, size - BYTES)
        self.file.seek(begin)
        lines = self.file.read(BYTES).decode("utf-8", "replace").splitlines()
        if begin > self._begun:
            lines = lines[1:] or lines  # a part of a line
        lines = [line if len(line) <= WIDTH else line[:WIDTH] + "..." for line in lines if line.strip()]
        where = "" if self.path is None else f" ({self.path})"
        if not lines:
            return f"it printed nothing{where}"
        return f"it printed last{where}:\n  " + "\n  ".join(lines[-LINES:])

    def close(self) -> None:
        """Idempotent."""
        self.file.close()
