"""Backends: what answers a prompt; the answers to the same prompts are kept."""

from __future__ import annotations

import abc
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from ue_rl.bridges.tools import ToolSchema
from ue_rl.system.errors import ConfigurationError

Line = str | dict[str, Any] | Exception | Callable[[str], str]  # of a script
MAX_KEPT = 100_000  # characters of an answer that is kept
MAX_STRING = 80  # characters of a text in a constrained answer: a small model would go on for ever


@dataclass(frozen=True)
class Answer:
    """What a model said.

    Attributes:
        prompt_tokens, tokens: read and written; 0 where the backend does not count. seconds: that it took.
        cached: it was not asked again.
    """

    text: str
    prompt_tokens: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cached: bool = False

    @property
    def spent(self) -> int:
        """Tokens that this answer cost."""
        if self.cached:
            return 0
        return self.prompt_tokens + self.tokens


class BackendRefused(ConfigurationError):
    """What a model is asked is refused, or it cannot be loaded, and no further try can succeed: an option, the key or
    the model's name is wrong. Whoever plays in this process is told at once (AgentArena.play raises it).
    """


class Backend(abc.ABC):
    """What LLMAgentBehavior needs of a model; keeps answers and counts. A backend fills `_generate`.

    Errors: TimeoutError where it took too long, ConnectionError where it cannot be reached, ValueError where it answers
    nonsense, BackendRefused where it refuses for good.

    Args:
        cache: of how many prompts the answers are kept; 0: of none. For models that answer the same again.

    Attributes:
        asked, prompt_tokens, tokens: totals of what was not cached. Agents may share it: they ask side by side.
    """

    def __init__(self, cache: int = 256) -> None:
        self._room = cache
        self._kept: OrderedDict[tuple[str, str, int | None], Answer] = OrderedDict()
        self.asked = self.prompt_tokens = self.tokens = 0
        self._counting = threading.Lock()

    @abc.abstractmethod
    def _generate(self, prompt: str, tools: Sequence[ToolSchema] | None, max_tokens: int | None) -> Answer:
        """Asks the model.

        Args:
            tools: None, or none: free text. max_tokens: of the answer; None: what the backend does by itself.
        """

    def generate(self, prompt: str, max_tokens: int | None = None) -> Answer:
        """Free text."""
        return self._ask(prompt, None, max_tokens)

    def generate_with_tools(self, prompt: str, tools: Sequence[ToolSchema], max_tokens: int | None = None) -> Answer:
        """A decision as JSON; as far as the backend can, only one that `decision_schema` allows."""
        return self._ask(prompt, tools, max_tokens)

    def is_available(self) -> bool:
        """Whether it can be asked now."""
        return True

    def unload(self) -> None:
        """Gives back what it holds; asking it again loads it again."""
        with self._counting:
            self._kept.clear()

    def _ask(self, prompt: str, tools: Sequence[ToolSchema] | None, max_tokens: int | None) -> Answer:
        described = ""
        if tools is not None:
            described = json.dumps([tool.as_dict() for tool in tools])
        key = prompt, described, max_tokens
        with self._counting:
            if key in self._kept:
                self._kept.move_to_end(key)
                return replace(self._kept[key], cached=True, seconds=0.0)
        began = time.perf_counter()
        answer = replace(self._generate(prompt, tools, max_tokens), seconds=time.perf_counter() - began)
        with self._counting:
            self.asked += 1
            self.prompt_tokens += answer.prompt_tokens
            self.tokens += answer.tokens
            if self._room and len(answer.text) <= MAX_KEPT:
                self._kept[key] = answer
                if len(self._kept) > self._room:
                    self._kept.popitem(last=False)
        return answer


def decision_schema(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    """The JSON schema of a decision, {"decision": {"tool": NAME, "params": {..}}}: one of the tools, with parameters
    of that tool and no others.

    The choice does not stand at the root: services take nothing but an object there.
    """
    definitions: dict[str, Any] = {}
    choices = [_of_tool(tool, definitions) for tool in tools]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"decision": {"anyOf": choices}},
        "required": ["decision"],
        "additionalProperties": False,
    }
    if definitions:
        return {**schema, "$defs": definitions}
    return schema


def _of_tool(tool: ToolSchema, definitions: dict[str, Any]) -> dict[str, Any]:
    """Its own definitions go to the root of the whole, where references are looked up, under names of their own."""
    params = {**tool.parameters, "required": list(tool.parameters.get("properties", {}))}
    own = params.pop("$defs", {})
    names = {f"#/$defs/{name}": f"{tool.name}_{name}" for name in own}
    for name, value in own.items():
        definitions[names[f"#/$defs/{name}"]] = _plain(value, names)
    return {
        "type": "object",
        "properties": {"tool": {"const": tool.name}, "params": _plain(params, names)},
        "required": ["tool", "params"],
        "additionalProperties": False,
    }


def _plain(schema: Any, names: Mapping[str, str]) -> Any:
    """Texts with a length; without what is no constraint; with references as `names` has them."""
    if isinstance(schema, list):
        return [_plain(each, names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":  # whose keys are a game's own words
            kept[key] = {name: _plain(each, names) for name, each in value.items()}
        elif key == "$ref":
            kept[key] = f"#/$defs/{names[value]}"
        elif key not in ("default", "description", "title"):
            kept[key] = _plain(value, names)
    if kept.get("type") == "string" and "enum" not in kept:
        kept.setdefault("maxLength", MAX_STRING)
    return kept


class ScriptedBackend(Backend):
    """Its answers one after the other, then from the first again.

    Args:
        lines: a text, a dict that becomes JSON, an exception that is raised, or a function of the prompt.

    Attributes:
        prompts: that it was asked, the last 1000.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__(cache=0)
        self._lines = cycle(lines)
        self.prompts: list[str] = []

    def _generate(self, prompt: str, tools: Sequence[ToolSchema] | None, max_tokens: int | None) -> Answer:
        line = next(self._lines)
        self.prompts = [*self.prompts[-999:], prompt]
        if isinstance(line, Exception):
            raise line
        if isinstance(line, dict):
            text = json.dumps(line)
        elif isinstance(line, str):
            text = line
        else:
            text = line(prompt)
        return Answer(text, len(prompt.split()), len(text.split()))
