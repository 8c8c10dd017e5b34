"""VectorMemory: entries found by what they mean; NumPy or faiss behind one interface."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.plugins.arena.memory.base import Entry, Memory
from ue_rl.plugins.arena.memory.embedders import Embedder, HashingEmbedder
from ue_rl.plugins.arena.memory.windows import extract
from ue_rl.system.lazy import named_if_missing


class NumpyIndex:
    """All rows in one array, multiplied at once: 10 000 of 512 numbers in a few milliseconds."""

    def __init__(self, size: int, capacity: int) -> None:
        self._rows = np.zeros((capacity, size), np.float32)  # the system gives memory to those that are used
        self._used = 0

    def put(self, at: int, row: NDArray[np.float32]) -> None:
        """Row `at` is this from now on."""
        self._rows[at] = row
        self._used = max(self._used, at + 1)

    def search(self, query: NDArray[np.float32], count: int) -> NDArray[np.intp]:
        """The numbers of the `count` rows with the largest products, those first; of equal ones the later."""
        products = self._rows[: self._used] @ query
        some = count < len(products)
        if some:
            best = np.argpartition(-products, count - 1)[:count]
        else:
            best = np.arange(len(products))
        return best[np.lexsort((-best, -products[best]))]


class FaissIndex:
    """faiss's flat index of inner products; needs the package faiss-cpu."""

    def __init__(self, size: int, capacity: int) -> None:
        with named_if_missing("FaissIndex"):
            faiss: Any = import_module("faiss")
        self._index = faiss.IndexIDMap2(faiss.IndexFlatIP(size))

    def put(self, at: int, row: NDArray[np.float32]) -> None:
        """See NumpyIndex."""
        number = np.array([at], np.int64)
        self._index.remove_ids(number)
        self._index.add_with_ids(row[None], number)

    def search(self, query: NDArray[np.float32], count: int) -> NDArray[np.intp]:
        """See NumpyIndex."""
        _, found = self._index.search(query[None], count)
        kept: NDArray[np.intp] = found[0][found[0] >= 0].astype(np.intp)
        return kept


class VectorMemory(Memory):
    """The last `capacity` entries, found by meaning.

    Rare features of a query weigh more than those that most entries have (inverse document frequency).

    Args:
        capacity: how many; then the oldest are forgotten.
        embedder: None: HashingEmbedder, which needs nothing.
        index: "numpy" or "faiss".
        path: a JSON-lines file of the texts; they are embedded again when it is loaded.
    """

    def __init__(
        self,
        capacity: int = 10_000,
        embedder: Embedder | None = None,
        index: str = "numpy",
        path: Path | str | None = None,
    ) -> None:
        self.capacity = capacity
        if not embedder:
            embedder = HashingEmbedder()
        self.embedder = embedder
        self._kind = index
        self._empty()
        self._open(path)

    def _empty(self) -> None:
        make = FaissIndex if self._kind == "faiss" else NumpyIndex
        self._index: NumpyIndex | FaissIndex = make(self.embedder.size, self.capacity)
        self._entries: list[Entry] = []  # a ring: the place of the next one is `_stored % capacity`
        self._features: list[NDArray[np.bool_]] = []  # which each has
        self._stored = 0
        self._in = np.zeros(self.embedder.size)  # how many entries have each feature

    def _take(self, entries: list[Entry]) -> None:
        entries = entries[-self.capacity :]
        for entry, row in zip(entries, self.embedder.embed([entry.text for entry in entries]), strict=True):
            at = self._stored % self.capacity
            features = row != 0
            if at < len(self._entries):
                self._in -= self._features[at]
                self._entries[at], self._features[at] = entry, features
            else:
                self._entries.append(entry)
                self._features.append(features)
            self._in += features
            self._index.put(at, row)
            self._stored += 1

    def _in_order(self) -> list[Entry]:
        at = 0
        if len(self._entries) == self.capacity:
            at = self._stored % self.capacity
        return self._entries[at:] + self._entries[:at]

    def retrieve(self, query: str | None = None, limit: int | None = None) -> list[Entry]:
        """See Memory."""
        if query is None:
            return self._in_order()[::-1][:limit]
        if limit is None:
            count = len(self._entries)
        else:
            count = min(limit, len(self._entries))
        if not count:
            return []
        rare = np.log(1 + len(self._entries) / (1 + self._in))
        asked = (self.embedder.embed([query])[0] * rare).astype(np.float32)
        return [self._entries[at] for at in self._index.search(asked, count).tolist()]

    def summarize(self) -> str:
        """The lines that say most."""
        return extract("\n".join(entry.text for entry in self._in_order()))
