"""OpenAIBackend: a model behind an OpenAI-compatible service: OpenAI, vLLM, llama.cpp's server, OpenRouter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from ue_rl.arena.backends.base import Answer, Backend, decision_schema
from ue_rl.errors import shorten
from ue_rl.system.lazy import named_if_missing
from ue_rl.tools import ToolSchema


def openai_client(what: str, base_url: str | None, api_key: str | None, timeout: float, retries: int) -> Any:
    """A client of the package openai; local servers take any key."""
    with named_if_missing(what):
        import openai
    key = api_key or ("none" if base_url else None)
    return openai.OpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=retries)


class OpenAIBackend(Backend):
    """Asks by the package openai, which also retries.

    Args:
        model: its name at the service.
        base_url: such as http://127.0.0.1:8000/v1; None: OpenAI's, or the variable OPENAI_BASE_URL.
        api_key: None: the variable OPENAI_API_KEY; local servers take any.
        timeout: seconds for each try. retries: further tries, where it cannot be reached or is overloaded.
        constrain: how the answer is held to the tools' schemas. "json_schema": OpenAI, vLLM; "json_object": llama.cpp
            and llama-cpp-python, with a schema; "tools": function calling; "none": by the prompt alone.
        options: further arguments of chat.completions.create, such as temperature.

    Raises:
        MissingPackage: openai is not installed.
    """

    def __init__(
        self, model: str, base_url: str | None = None, api_key: str | None = None, *, timeout: float = 30.0,
        retries: int = 2, constrain: Literal["json_schema", "json_object", "tools", "none"] = "json_schema",
        cache: int = 256, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(cache)
        self.client = openai_client("OpenAIBackend", base_url, api_key, timeout, retries)
        self.model, self._constrain, self._options = model, constrain, {"temperature": 0, **options}

    def _generate(self, prompt: str, tools: Sequence[ToolSchema] | None, max_tokens: int) -> Answer:
        asked: dict[str, Any] = {"model": self.model, "max_tokens": max_tokens, **self._options}
        asked["messages"] = [{"role": "user", "content": prompt}]
        if tools is not None:
            asked |= self._constraint(tools)
        import openai

        try:
            said = self.client.chat.completions.create(**asked)
        except openai.APITimeoutError as error:
            raise TimeoutError("the model did not answer in time") from error
        except openai.APIConnectionError as error:
            raise ConnectionError(f"the model cannot be reached: {error.__cause__ or error}") from error
        except (openai.InternalServerError, openai.RateLimitError) as error:
            raise ConnectionError(f"the service is overloaded: {error}") from error
        try:
            message, usage = said.choices[0].message, said.usage
            text = str(message.content or "")
            if getattr(message, "tool_calls", None):
                function = message.tool_calls[0].function
                text = json.dumps({"tool": function.name, "params": function.arguments, "reasoning": text})
            return Answer(text, int(usage.prompt_tokens), int(usage.completion_tokens)) if usage else Answer(text)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not an answer of a model: {shorten(said)}") from error

    def _constraint(self, tools: Sequence[ToolSchema]) -> dict[str, Any]:
        if self._constrain == "tools":
            functions = [{"type": "function", "function": tool.as_dict("parameters")} for tool in tools]
            return {"tools": functions, "tool_choice": "required"}
        if self._constrain == "json_object":
            return {"response_format": {"type": "json_object", "schema": decision_schema(tools)}}
        if self._constrain == "json_schema":
            schema = {"name": "decision", "schema": decision_schema(tools)}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}
        return {}

    def is_available(self) -> bool:
        """Whether the service lists its models."""
        try:
            self.client.with_options(timeout=5.0, max_retries=0).models.list()
        except Exception:  # noqa: BLE001 - whatever answers there is no such service
            return False
        return True
