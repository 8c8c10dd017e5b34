"""LlamaBackend: a GGUF model in this process, by llama-cpp-python; a grammar made of the tools' schemas holds it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ue_rl.bridges.tools import ToolSchema
from ue_rl.plugins.arena.backends.base import Answer, Backend, BackendRefused, decision_schema
from ue_rl.system.files import require_file
from ue_rl.system.lazy import named_if_missing

_ANSWER = 256  # tokens


class LlamaBackend(Backend):
    """A decision can only be one that the schemas allow: every token that leads elsewhere is forbidden.

    Args:
        path: of the .gguf file. context: tokens of prompt and answer. threads: None: llama.cpp's own choice.
        temperature: 0: the same answer again. timeout: seconds after which an answer is broken off (TimeoutError).
            An answer has 256 tokens where its `max_tokens` says nothing else.
        options: further arguments of llama_cpp.Llama, such as n_gpu_layers.

    Raises:
        OSError: there is no such file. MissingPackage: llama-cpp-python is not installed.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        context: int = 2048,
        threads: int | None = None,
        temperature: float = 0.0,
        timeout: float = 30.0,
        cache: int = 256,
        **options: Any,
    ) -> None:
        super().__init__(cache)
        with named_if_missing("LlamaBackend"):
            self._llama_cpp: Any = import_module("llama_cpp")
        require_file(Path(path))
        self._made = {"model_path": str(path), "n_ctx": context, "n_threads": threads, "verbose": False, **options}
        self._temperature = temperature
        self._timeout = timeout
        self._model: Any = None
        self._grammars: dict[str, Any] = {}
        self._lock = threading.Lock()  # one model, however many agents ask

    def _generate(self, prompt: str, tools: Sequence[ToolSchema] | None, max_tokens: int | None) -> Answer:
        with self._lock:
            if self._model is None:
                self._model = self._loaded()
            grammar = None
            if tools:
                grammar = self._grammar(tools)
            ends = time.monotonic() + self._timeout
            read = len(self._model.tokenize(prompt.encode()))
            room = self._model.n_ctx()
            if read >= room:
                raise BackendRefused(
                    "the prompt is longer than what the model can read",
                    field="context",
                    expected=f"more than {read} tokens",
                    got=room,
                    cure="give it a larger `context`",
                )
            if max_tokens is None:
                most = _ANSWER
            else:
                most = max_tokens
            pieces = self._model.create_chat_completion(
                messages=[{"role": "user", "content": prompt}],
                stream=True,
                temperature=self._temperature,
                max_tokens=most,
                grammar=grammar,
            )
            said = []
            for piece in pieces:
                piece_text = piece["choices"][0]["delta"].get("content") or ""
                said.append(piece_text)
                if time.monotonic() > ends:
                    raise TimeoutError(f"the model did not answer within {self._timeout:g} s")
        return Answer("".join(said), read, sum(map(bool, said)))

    def _loaded(self) -> Any:
        try:
            return self._llama_cpp.Llama(**self._made)
        except (ValueError, TypeError, RuntimeError) as error:  # not a model, or an option that there is not
            raise BackendRefused("the model cannot be loaded", field="path", got=f"{self._made}: {error}") from error

    def _grammar(self, tools: Sequence[ToolSchema]) -> Any:
        schema = json.dumps(decision_schema(tools))
        if schema not in self._grammars:
            try:
                grammar = self._llama_cpp.LlamaGrammar.from_json_schema(schema, verbose=False)
            except (ValueError, RuntimeError) as error:
                raise BackendRefused(
                    "llama.cpp makes no grammar of the tools' schemas",
                    field="tools",
                    got=str(error),
                    cure="give the tools simpler parameters",
                ) from error
            self._grammars = {schema: grammar}
        return self._grammars[schema]

    def unload(self) -> None:
        """See Backend."""
        super().unload()
        with self._lock:
            if self._model is not None:
                self._model.close()
            self._model = None
            self._grammars = {}
