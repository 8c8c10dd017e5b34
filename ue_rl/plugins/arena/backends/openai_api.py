"""OpenAIBackend: a model behind an OpenAI-compatible service: OpenAI, vLLM, llama.cpp's server, OpenRouter."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

from ue_rl.bridges.tools import ToolSchema
from ue_rl.plugins.arena.backends.base import Answer, Backend, BackendRefused, decision_schema
from ue_rl.protocol.access.server_access import is_local
from ue_rl.system.errors import ConfigurationError, shorten
from ue_rl.system.lazy import named_if_missing

_FOR_A_WHILE = (408, 409, 425)  # of a service that may answer the same question later
_THIS_PROMPT = ("content_filter", "content_policy_violation", "invalid_prompt")  # codes: another prompt may pass
_CURES = {
    401: "check the key: api_key, or the variable OPENAI_API_KEY",
    403: "check the key, and what it is allowed: api_key, or the variable OPENAI_API_KEY",
    404: "check model and base_url",
    429: "the account has no more to spend",
}
_THOUGHT = 4000  # characters
_CURE = "change what the message names: an option of the backend, its `constrain`, or `max_tokens`"


def openai_client(what: str, base_url: str | None, api_key: str | None, timeout: float, retries: int) -> Any:
    """A client of the package openai; local servers take any key.

    Raises:
        MissingPackage: openai is not installed. ConfigurationError: there is no key.
    """
    with named_if_missing(what):
        import openai
    key = api_key or ("none" if base_url else None)
    more: dict[str, Any] = {}
    url = base_url or os.environ.get("OPENAI_BASE_URL")
    if not url:
        url = ""
    address = urlsplit(url)
    if address.hostname is not None and is_local(address.hostname):  # no proxy is asked for this machine
        if address.scheme == "https":  # what else the environment says counts: SSL_CERT_FILE
            if ":" in address.hostname:
                name = f"[{address.hostname}]"
            else:
                name = address.hostname
            more["http_client"] = openai.DefaultHttpxClient(mounts={f"all://{name}": None})
        else:  # nor is one looked at: that of $all_proxy may need a package that is missing
            more["http_client"] = openai.DefaultHttpxClient(trust_env=False)
    try:
        return openai.OpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=retries, **more)
    except openai.OpenAIError as error:
        raise ConfigurationError(
            f"{what} has no key", field="api_key", got=str(error), cure="give one, or set OPENAI_API_KEY"
        ) from error


@contextmanager
def asking() -> Iterator[None]:
    """Within it the errors of the package openai become those that Backend names."""
    import openai

    try:
        yield
    except openai.APITimeoutError as error:
        raise TimeoutError("the model did not answer in time") from error
    except openai.APIConnectionError as error:
        raise ConnectionError(f"the model cannot be reached: {error.__cause__ or error}") from error
    except openai.APIStatusError as error:
        raise _named(error) from error


def _named(error: Any) -> Exception:
    """What a status says of a further try."""
    status = int(error.status_code)
    body = error.body if isinstance(error.body, Mapping) else {}
    code = str(body.get("code"))
    message = body.get("message")
    if not message:
        message = error
    said = shorten(message, 600)
    spent = status == 429 and code == "insufficient_quota"
    if status >= 500 or status in _FOR_A_WHILE or (status == 429 and not spent):
        return ConnectionError(f"the service is overloaded: {said}")
    if code in _THIS_PROMPT:
        return ValueError(f"the service refuses this prompt: {said}")
    return BackendRefused(
        f"the service refuses what it is asked (HTTP {status}): {said}", cure=_CURES.get(status, _CURE)
    )


class OpenAIBackend(Backend):
    """Asks by the package openai, which also retries. What is not given is not sent: the model's own defaults hold.

    Args:
        model: its name at the service.
        base_url: such as http://127.0.0.1:8000/v1; None: OpenAI's, or the variable OPENAI_BASE_URL.
        api_key: None: the variable OPENAI_API_KEY; local servers take any.
        timeout: seconds for each try. retries: further tries, where it cannot be reached or is overloaded.
        constrain: how the answer is held to the tools' schemas. "json_schema": OpenAI, vLLM; "json_object": llama.cpp
            and llama-cpp-python, with a schema; "tools": function calling; "none": by the prompt alone.
        options: further arguments of chat.completions.create, such as temperature, seed or reasoning_effort.
            max_completion_tokens: as OpenAI's models that reason want it; then an answer's `max_tokens` is sent under
            that name, too.

    Raises:
        MissingPackage: openai is not installed. ConfigurationError: there is no key.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 2,
        constrain: Literal["json_schema", "json_object", "tools", "none"] = "json_schema",
        cache: int = 256,
        **options: Any,
    ) -> None:
        super().__init__(cache)
        if constrain not in _CONSTRAINTS:
            raise ConfigurationError(
                "no such constraint", field="constrain", expected=", ".join(_CONSTRAINTS), got=constrain
            )
        self.client = openai_client("OpenAIBackend", base_url, api_key, timeout, retries)
        self.model = model
        self._constrain = constrain
        self._options = options

    def _generate(self, prompt: str, tools: Sequence[ToolSchema] | None, max_tokens: int | None) -> Answer:
        asked: dict[str, Any] = {"model": self.model, **self._options}
        if max_tokens is not None:
            newer = "max_completion_tokens" in self._options
            asked["max_completion_tokens" if newer else "max_tokens"] = max_tokens
        asked["messages"] = [{"role": "user", "content": prompt}]
        if tools:
            asked |= self._constraint(tools)
        with asking():
            said = self.client.chat.completions.create(**asked)
        try:
            choice = said.choices[0]
            usage = said.usage
            text = _text_of(choice)
            if usage:
                return Answer(text, int(usage.prompt_tokens), int(usage.completion_tokens))
            return Answer(text)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
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


_CONSTRAINTS = ("json_schema", "json_object", "tools", "none")


def _text_of(choice: Any) -> str:
    """What the model says, and calls.

    Raises:
        ValueError: it says nothing: it refuses, or it was cut off within its thoughts.
    """
    message = choice.message
    content = message.content
    if isinstance(content, list):  # some services send thoughts and answer as parts
        content = "".join(part["text"] for part in content if part.get("type") == "text")
    given_text = content or ""
    text = str(given_text)
    if getattr(message, "tool_calls", None):
        function = message.tool_calls[0].function
        thought = text[:_THOUGHT]  # a long one must not push the call out of what is read
        return json.dumps({"tool": function.name, "params": function.arguments, "reasoning": thought})
    if text:
        return text
    if getattr(message, "refusal", None):
        raise ValueError(f"the model refuses: {shorten(message.refusal, 300)}")
    if choice.finish_reason == "length":
        raise ValueError("the model was cut off before it said anything: let it write more (max_tokens)")
    return ""
