"""Embedders: text -> a row of numbers; texts that mean the same lie near each other, as far as the embedder knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"[^\W_]+")
_COMMON = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "did",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "i",
        "in",
        "is",
        "it",
        "its",
        "my",
        "of",
        "on",
        "or",
        "s",
        "that",
        "the",
        "their",
        "there",
        "they",
        "this",
        "to",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "why",
        "will",
        "with",
        "you",
        "your",
    ]
)


class Embedder(Protocol):
    """Any: an ONNX model, a service, or the hashing one."""

    size: int

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32 [len(texts), size], each row of length 1, or 0 for a text without meaning."""
        ...


class HashingEmbedder:
    """Needs nothing: words, their stems and pieces of three letters are hashed into `size` numbers.

    It knows words, not meanings: "fire" is near "fires" and far from "flame".
    """

    def __init__(self, size: int = 512) -> None:
        self.size = size

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See Embedder."""
        rows = np.zeros((len(texts), self.size), np.float32)
        for n, text in enumerate(texts):
            row = rows[n]
            for word in _WORD.findall(text.lower()):
                if word in _COMMON:
                    continue
                self._add(row, word, 1.0)
                padded = f"<{word}>"
                pieces = [padded[n : n + 3] for n in range(len(padded) - 2)]
                for piece in pieces:
                    self._add(row, piece, 0.5 / len(pieces) ** 0.5)
            length = float(np.linalg.norm(row))
            rows[n] /= length or 1.0
        return rows

    def _add(self, row: NDArray[np.float32], feature: str, weight: float) -> None:
        code = crc32(feature.encode())  # the same in every process, unlike hash()
        row[code % self.size] += weight if code & 0x80000000 else -weight


class ApiEmbedder:
    """The embeddings of an OpenAI-compatible service.

    Args:
        client: an openai.OpenAI. model: the name of the embedding model. size: of its rows.
    """

    def __init__(self, client: Any, model: str, size: int) -> None:
        self._client, self._model, self.size = client, model, size

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See Embedder."""
        answer = self._client.embeddings.create(model=self._model, input=list(texts))
        rows = np.array([each.embedding for each in answer.data], np.float32)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(lengths > 0, lengths, 1)
        return rows
