"""JsonLines: a file of JSON objects, one a line; what a crash cut off is left out when it is read."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

_log = logging.getLogger("ue_rl.arena")


class JsonLines:
    """Appended to line by line, each written through at once.

    Args:
        path: its folder is made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes one line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        start = "" if self.count or not self._cut_off() else "\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(start + json.dumps(row, default=str, ensure_ascii=False) + "\n")
        self.count += 1

    def _cut_off(self) -> bool:
        """Whether the last line lacks its end, because the one who wrote it was killed."""
        return self.path.exists() and self.path.read_bytes()[-1:] not in (b"", b"\n")

    def rewrite(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Only these are left: first beside it, then in its place."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text("".join(json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        beside.replace(self.path)

    def read(self) -> Iterator[dict[str, Any]]:
        """Every line that is whole; of others the log says how many there were."""
        if not self.path.exists():
            return
        broken = 0
        with self.path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    row = None
                if isinstance(row, dict):
                    yield row
                else:
                    broken += bool(line.strip())
        if broken:
            _log.warning("%s: %d lines are cut off or not JSON and are left out", self.path, broken)
