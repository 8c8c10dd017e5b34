"""SlidingWindow: the last entries, or the most important ones; what is forgotten is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ue_rl.arena.memory.base import Entry, FiledMemory, by_words

Forgets = Literal["fifo", "priority", "recency"]


class SlidingWindow(FiledMemory):
    """At most `capacity` entries.

    Args:
        capacity: how many.
        forgets: which one goes when it is full. "fifo": the one that was stored first. "priority": that of the lowest
            priority, of equals the oldest. "recency": the one that was neither stored nor found by a query for longest.
        path: a JSON-lines file that it is kept in: it survives a restart.
    """

    def __init__(self, capacity: int = 10, forgets: Forgets = "fifo", path: Path | str | None = None) -> None:
        self.capacity, self.forgets = capacity, forgets
        self._entries: list[Entry] = []  # oldest first; with "recency" the one that was used last is last
        self._open(path)

    def _take(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._entries.append(entry)
            if len(self._entries) > self.capacity:
                ranks = range(len(self._entries)) if self.forgets == "priority" else (0,)
                self._entries.pop(min(ranks, key=lambda n: self._entries[n].priority))

    def _in_order(self) -> list[Entry]:
        return self._entries

    def _empty(self) -> None:
        self._entries = []

    def retrieve(self, query: str | None = None, limit: int | None = None) -> list[Entry]:
        """See Memory; a query finds those that share most words with it."""
        found = self._entries[::-1] if query is None else by_words(self._entries, query)
        found = found[:limit]
        if query is not None and self.forgets == "recency":
            used = {id(entry) for entry in found}
            self._entries.sort(key=lambda entry: id(entry) in used)
        return found

    def summarize(self) -> str:
        """The entries' texts, newest first."""
        return "\n".join(entry.text for entry in self.retrieve())
