"""Counters: what a pool and its carriers have counted, in one place."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """Numbers that only grow, by name; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, amount: int = 1) -> None:
        """Counts."""
        with self._lock:
            self._counts[name] += amount

    def snapshot(self) -> dict[str, int]:
        """All of them now."""
        with self._lock:
            return dict(self._counts)
