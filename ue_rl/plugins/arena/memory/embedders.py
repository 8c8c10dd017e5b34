"""Embedders: text -> a row of numbers; texts that mean the same lie near each other, as far as the embedder knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ue_rl.plugins.arena.backends.openai_api import asking, openai_client
from ue_rl.system.lazy import named_if_missing
from ue_rl.system.onnx_runtime import import_onnxruntime

_WORD = re.compile(r"[^\W_]+")
_COMMON = frozenset(
    _WORD.findall(
        "a an and are as at be by did do does for from had has have i in is it its my of on or s that the their there "
        "they this to was we were what when where which who why will with you your"
    )
)
_AT_ONCE = 256  # texts


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
        for row, text in zip(rows, texts, strict=True):
            for word in _WORD.findall(text.lower()):
                if word in _COMMON:
                    continue
                self._add(row, word, 1.0)
                padded = f"<{word}>"
                pieces = [padded[n : n + 3] for n in range(len(padded) - 2)]
                for piece in pieces:
                    self._add(row, piece, 0.5 / len(pieces) ** 0.5)
        return _of_length_one(rows)

    def _add(self, row: NDArray[np.float32], feature: str, weight: float) -> None:
        code = crc32(feature.encode())  # the same in every process, unlike hash()
        if code & 0x80000000:
            row[code % self.size] += weight
        else:
            row[code % self.size] += -weight


class OnnxEmbedder:
    """A sentence model as ONNX, such as all-MiniLM-L6-v2; of an output for each token the mean is taken.

    Args:
        path: of the model; its inputs are input_ids and, where it has them, attention_mask and token_type_ids.
        tokenizer: a tokenizer.json, which needs the package tokenizers; or a function: text -> ids.
        longest: tokens of a text that are read.

    Raises:
        MissingPackage: onnxruntime or tokenizers is not installed.
    """

    def __init__(
        self, path: Path | str, tokenizer: Path | str | Callable[[str], Sequence[int]], longest: int = 256
    ) -> None:
        self._ids: Any = tokenizer
        with named_if_missing("OnnxEmbedder"):
            runtime = import_onnxruntime()
            if not callable(tokenizer):
                read: Any = import_module("tokenizers").Tokenizer.from_file(str(tokenizer))
                self._ids = lambda text: read.encode(text).ids
        self._session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._inputs = [each.name for each in self._session.get_inputs()]
        self._longest = longest
        self.size = int(self._session.get_outputs()[0].shape[-1])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See Embedder."""
        rows = np.zeros((len(texts), self.size), np.float32)
        for at in range(0, len(texts), _AT_ONCE):
            rows[at : at + _AT_ONCE] = self._some(texts[at : at + _AT_ONCE])
        return _of_length_one(rows)

    def _some(self, texts: Sequence[str]) -> NDArray[np.float32]:
        tokens = [list(self._ids(text))[: self._longest] or [0] for text in texts]
        mask = np.arange(max(map(len, tokens))) < np.array([[len(each)] for each in tokens])
        ids = np.zeros(mask.shape, np.int64)
        ids[mask] = np.concatenate(tokens)
        given = {"input_ids": ids, "attention_mask": mask.astype(np.int64), "token_type_ids": np.zeros_like(ids)}
        said: NDArray[np.float32] = self._session.run(None, {name: given[name] for name in self._inputs})[0]
        return said if said.ndim == 2 else (said * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)


class ApiEmbedder:
    """The embeddings of an OpenAI-compatible service.

    Args:
        model: its name at the service. size: of its rows. base_url, api_key, timeout, retries: as of OpenAIBackend.

    Raises:
        MissingPackage: openai is not installed.
    """

    def __init__(
        self,
        model: str,
        size: int,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 2,
    ) -> None:
        self._client = openai_client("ApiEmbedder", base_url, api_key, timeout, retries)
        self.model = model
        self.size = size

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See Embedder. Raises as Backend.generate."""
        rows: list[Sequence[float]] = []
        for at in range(0, len(texts), _AT_ONCE):
            with asking():
                said = self._client.embeddings.create(model=self.model, input=list(texts[at : at + _AT_ONCE]))
            rows += [each.embedding for each in said.data]
        return _of_length_one(np.array(rows, np.float32).reshape(-1, self.size))


def _of_length_one(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(lengths > 0, lengths, 1)
    return rows
