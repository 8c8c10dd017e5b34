"""ScriptedBackend: says what it was told to, for tests and for trying a prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from ue_rl.arena.backends.base import Answer, BaseBackend
from ue_rl.tools import ToolSchema

Line = str | dict[str, Any] | Exception | Callable[[str], str]


class ScriptedBackend(BaseBackend):
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

    def _generate(self, prompt: str, tools: Sequence[ToolSchema] | None, max_tokens: int) -> Answer:
        line = next(self._lines)
        self.prompts = [*self.prompts[-999:], prompt]
        if isinstance(line, Exception):
            raise line
        text = json.dumps(line) if isinstance(line, dict) else line if isinstance(line, str) else line(prompt)
        return Answer(text, len(prompt.split()), len(text.split()))
