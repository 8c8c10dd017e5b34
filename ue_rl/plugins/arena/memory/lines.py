"""JsonLines: a file of JSON objects, one a line; what a crash cut off is left out when it is read."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ue_rl.system.durable import write_whole

_log = logging.getLogger("ue_rl.plugins.arena")


class JsonLines:
    """Appended to line by line, each written through at once.

    Args:
        path: its folder is made where it is missing.

    Attributes:
        count: lines that were read and written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._whole = False  # the last line has its end

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes one line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            start = b"\n"
            if self._whole or not self._cut_off():
                start = b""
            file.write(start + _line(row))
        self._whole = True
        self.count += 1

    def _cut_off(self) -> bool:
        """Whether the last line lacks its end, because the one who wrote it was killed."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - 1))
            return file.read(1) not in (b"", b"\n")

    def rewrite(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Only these are left: first beside it, then in its place."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [_line(row) for row in rows]
        write_whole(self.path, lambda beside: beside.write_bytes(b"".join(lines)))
        self.count = len(lines)
        self._whole = True

    def read(self) -> Iterator[dict[str, Any]]:
        """Every line that is whole; of others the log says how many there were."""
        if not self.path.exists():
            return
        broken = self.count = 0
        with self.path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                self.count += 1
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    row = None
                if isinstance(row, dict):
                    yield row
                else:
                    broken += bool(line.strip())
        if broken:
            _log.warning("%s: %d lines are cut off or not JSON and are left out", self.path, broken)


def _line(row: Mapping[str, Any]) -> bytes:
    """Half a character, which UTF-8 has no bytes for, becomes JSON's escape of it."""
    return (json.dumps(row, default=str, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
