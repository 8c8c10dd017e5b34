"""SlidingWindow: the last entries, or the most important ones; SummarisingMemory sums up what falls out of it."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from ue_rl.plugins.arena.backends.base import BackendRefused
from ue_rl.plugins.arena.memory.base import Entry, Memory

_log = logging.getLogger("ue_rl.plugins.arena")
Summariser = Callable[[str], str]  # everything so far, as text -> a few lines
Forgets = Literal["fifo", "priority", "recency"]


class SlidingWindow(Memory):
    """At most `capacity` entries.

    Args:
        capacity: how many.
        forgets: which one goes when it is full. "fifo": the one that was stored first. "priority": that of the lowest
            priority, of equals the oldest. "recency": the one that was neither stored nor found by a query for longest.
        path: a JSON-lines file that it is kept in: it survives a restart.
    """

    def __init__(self, capacity: int = 10, forgets: Forgets = "fifo", path: Path | str | None = None) -> None:
        self.capacity = capacity
        self.forgets = forgets
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
        if query is None:
            found = self._entries[::-1]
        else:
            found = self._by_words(query)
        found = found[:limit]
        if query is not None and self.forgets == "recency":
            used = {id(entry) for entry in found}
            self._entries.sort(key=lambda entry: id(entry) in used)
        return found

    def _by_words(self, query: str) -> list[Entry]:
        """Those that share most words with it first, newer ones before older of the same."""
        wanted = set(query.lower().split())
        return sorted(self._entries[::-1], key=lambda entry: -len(wanted & set(entry.text.lower().split())))

    def summarize(self) -> str:
        """The entries' texts, newest first."""
        return "\n".join(entry.text for entry in self.retrieve())


class SummarisingMemory(SlidingWindow):
    """A sliding window; what falls out of it goes into a summary, which is its oldest entry.

    Args:
        capacity: entries that are kept whole.
        batch: how many must have fallen out before the summary is made anew.
        summarise: a model's, such as `lambda text: backend.generate(f"In short: {text}").text`; None, and where the
            model is down: the lines that say most (`extract`).
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
        self._batch = batch
        self.longest = longest
        self._summarise = summarise
        super().__init__(capacity + batch, path=path)

    @property
    def summary(self) -> str:
        """Of what has fallen out; "" where nothing has."""
        return next((entry.text for entry in self._entries if entry.kind == "summary"), "")

    def store(self, entry: Entry | str) -> None:
        """See Memory."""
        super().store(entry)
        entries = [each for each in self._entries if each.kind != "summary"]
        if len(entries) >= self.capacity - 1:  # one place is the summary's
            old = entries[: self._batch]
            new = entries[self._batch :]
            text = self._in_short(old)
            self._entries = [Entry(text, old[-1].tick, kind="summary"), *new]
            if self._file is not None:
                self._file.rewrite(self.dump())

    def _in_short(self, entries: Sequence[Entry]) -> str:
        text = "\n".join(filter(None, [self.summary, *(entry.text for entry in entries)]))
        said = None
        if self._summarise is not None:
            try:
                said = self._summarise(text)
            except BackendRefused:
                raise
            except (TimeoutError, ConnectionError, ValueError) as error:
                _log.warning("no model sums up: %s", error)
        return (extract(text, self.longest) if said is None else said)[: self.longest]

    def summarize(self) -> str:
        """The summary, made anew of all that there is."""
        return self._in_short([entry for entry in self._entries if entry.kind != "summary"])


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
