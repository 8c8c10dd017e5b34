"""Memory: what an agent keeps of what it has seen. What each kind does with it is theirs; the interface is one."""

from __future__ import annotations

import abc
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ue_rl.plugins.arena.memory.lines import JsonLines
from ue_rl.system.errors import ConfigurationError

MAX_TEXT = 4000  # characters of an entry
_log = logging.getLogger("ue_rl.plugins.arena")


@dataclass(frozen=True)
class Entry:
    """One thing remembered.

    Attributes:
        text: for minds that read; what a query is compared with. What is longer than MAX_TEXT is cut when it is stored.
        tick: of the game. priority: the larger, the longer it is kept where that decides.
        kind: "observation", "decision", "episode" or whatever the writer calls it.
    """

    text: str
    tick: int = 0
    priority: float = 0.0
    kind: str = "observation"

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Entry | None:
        """What `dump` gave; None where it is something else."""
        given: dict[str, Any] = {name: row[name] for name in cls.__dataclass_fields__ if name in row}
        entry = cls(**{"text": None, **given})
        texts = isinstance(entry.text, str) and isinstance(entry.kind, str)
        if texts and isinstance(entry.tick, int) and isinstance(entry.priority, (int, float)):
            return entry
        return None


class Memory(abc.ABC):
    """At most `capacity` entries, which may be kept in a file. Subclasses fill `retrieve`, `summarize`, `_take`,
    `_in_order` and `_empty`, and call `_open` when they are ready.
    """

    capacity: int
    _file: JsonLines | None = None

    @abc.abstractmethod
    def retrieve(self, query: str | None = None, limit: int | None = None) -> list[Entry]:
        """At most `limit` entries: the newest first; with a query those that fit it best first."""

    @abc.abstractmethod
    def summarize(self) -> str:
        """All of it in a few lines."""

    @abc.abstractmethod
    def _take(self, entries: list[Entry]) -> None:
        """Keeps these, and forgets what there is no room for."""

    @abc.abstractmethod
    def _in_order(self) -> list[Entry]:
        """All, oldest first."""

    @abc.abstractmethod
    def _empty(self) -> None:
        """Forgets all."""

    def _open(self, path: Path | str | None) -> None:
        if self.capacity < 1:
            raise ConfigurationError("a memory has room for one entry at least", field="capacity", got=self.capacity)
        if path is not None:
            self._file = JsonLines(Path(path))
            found = [Entry.of(row) for row in self._file.read()]
            if kept := [entry for entry in found if entry is not None]:
                self._take(kept)
            if None in found:
                _log.warning("%s: %d lines are no entries and are left out", path, found.count(None))

    def __len__(self) -> int:
        return len(self._in_order())

    def store(self, entry: Entry | str) -> None:
        """Keeps it; forgets another where the memory is full."""
        if not isinstance(entry, Entry):
            entry = Entry(str(entry))
        entry = replace(entry, text=entry.text[:MAX_TEXT])
        self._take([entry])
        if self._file is not None:
            self._file.append(asdict(entry))
            if self._file.count > 2 * self.capacity:  # the file does not grow for ever
                self._file.rewrite(self.dump())

    def dump(self) -> list[dict[str, Any]]:
        """Every entry, oldest first."""
        return [asdict(entry) for entry in self._in_order()]

    def clear(self) -> None:
        """Forgets everything, on the disk too."""
        self._empty()
        if self._file is not None:
            self._file.rewrite(())
