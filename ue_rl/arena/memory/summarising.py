"""SummarisingMemory: the last entries as they were, and what came before in a few lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ue_rl.arena.memory.base import Entry, entry_of
from ue_rl.arena.memory.sliding import SlidingWindow

Summariser = Callable[[str], str]  # everything so far, as text -> a few lines


class SummarisingMemory:
    """A sliding window; what falls out of it goes into a summary.

    Args:
        capacity: entries that are kept whole.
        batch: how many must have fallen out before the summary is made anew.
        summarise: a model's, such as `lambda text: backend.generate(f"In short: {text}").text`; None: the lines that
            say most (`extract`).
        longest: characters of the summary.
        path: a JSON-lines file that both are kept in.
    """

    def __init__(
        self,
        capacity: int = 10,
        batch: int = 10,
        summarise: Summariser | None = None,
        longest: int = 1000,
        path: Path | str | None = None,
    ) -> None:
        self._window = SlidingWindow(capacity + batch, path=path)
        self.capacity, self.batch, self.longest = capacity, batch, longest
        self._summarise: Summariser = summarise or (lambda text: extract(text, longest))
        kept = [Entry(**row) for row in self._window.dump() if row["kind"] == "summary"]
        self.summary = kept[-1].text if kept else ""

    def store(self, entry: Entry | str) -> None:
        """See Memory."""
        self._window.store(entry_of(entry))
        entries = [Entry(**row) for row in self._window.dump() if row["kind"] != "summary"]
        if len(entries) >= self.capacity + self.batch - 1:  # one place is the summary's
            old, new = entries[: self.batch], entries[self.batch :]
            text = "\n".join(filter(None, [self.summary, *(entry.text for entry in old)]))
            self.summary = self._summarise(text)[: self.longest]
            self._window.clear()
            for each in (Entry(self.summary, old[-1].tick, kind="summary"), *new):
                self._window.store(each)

    def retrieve(self, query: str | None = None, limit: int | None = None) -> list[Entry]:
        """See Memory; the summary is the oldest entry."""
        return self._window.retrieve(query, limit)

    def summarize(self) -> str:
        """The summary, made anew of all that there is."""
        entries = [row["text"] for row in self._window.dump() if row["kind"] != "summary"]
        return self._summarise("\n".join(filter(None, [self.summary, *entries])))[: self.longest]

    def dump(self) -> list[dict[str, Any]]:
        """See Memory."""
        return self._window.dump()

    def clear(self) -> None:
        """See Memory."""
        self.summary = ""
        self._window.clear()


def extract(text: str, longest: int = 1000) -> str:
    """The lines that say most, in their order: those with the words that come most often, each line once."""
    lines = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    words = Counter(word for line in lines for word in set(_words(line)))

    def weight(line: str) -> float:
        own = _words(line)
        return sum(words[word] for word in own) / len(own) ** 0.5 if own else 0.0

    kept: set[str] = set()
    room = longest
    for line in sorted(lines, key=weight, reverse=True):
        if len(line) < room:
            kept.add(line)
            room -= len(line) + 1
    return "\n".join(line for line in lines if line in kept)


def _words(line: str) -> Sequence[str]:
    return re.findall(r"[a-z]{3,}", line.lower())
