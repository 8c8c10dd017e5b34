"""The command that starts an engine: words with placeholders, never given to a shell."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence

from ue_rl.errors import ConfigurationError, nearest

PLACEHOLDERS = ("port", "num_envs", "seed", "engine")
_PLACEHOLDER = re.compile(r"\{(\{?)([A-Za-z_][A-Za-z_0-9]*)\}(\}?)")


class Template:
    """A command with placeholders.

    Args:
        command: as it would be typed, cut at blanks outside of quotes, or its words. {port}, {num_envs}, {seed} and
            {engine} stand for values; {{port}} is the text "{port}". Braces around anything but a name are text.

    Attributes:
        words: before anything is filled in.

    Raises:
        ConfigurationError: no word, an open quote, or a name in braces that is no placeholder.
    """

    def __init__(self, command: str | Sequence[str]) -> None:
        self.words = _split(command) if isinstance(command, str) else [str(word) for word in command]
        if not self.words or not self.words[0]:
            raise ConfigurationError("there is no command to start an engine with", field="engine", got=command)
        for word in self.words:
            if "\0" in word:
                raise ConfigurationError("a command has no NUL character", field="engine", got=word)
            for found in _PLACEHOLDER.finditer(word):
                if not _escaped(found) and found[2] not in PLACEHOLDERS:
                    raise ConfigurationError(
                        f"{{{found[2]}}} is no placeholder",
                        field="engine",
                        expected=", ".join(f"{{{name}}}" for name in PLACEHOLDERS),
                        got=word,
                        cure=nearest(found[2], PLACEHOLDERS)
                        or f"write {{{{{found[2]}}}}} for the text itself; no shell expands $ and ~",
                    )

    def uses(self, name: str) -> bool:
        """Does it contain {name}?"""
        return any(found[2] == name and not _escaped(found) for w in self.words for found in _PLACEHOLDER.finditer(w))

    def fill(self, **values: object) -> list[str]:
        """The words with their values; a value is never cut into words.

        Args:
            values: of all placeholders that are used.
        """

        def value(found: re.Match[str]) -> str:
            return found[0][1:-1] if _escaped(found) else found[1] + str(values[found[2]]) + found[3]

        return [_PLACEHOLDER.sub(value, word) for word in self.words]


def _escaped(found: re.Match[str]) -> bool:
    return bool(found[1] and found[3])


def _split(command: str) -> list[str]:
    try:
        if sys.platform != "win32":
            return shlex.split(command)
        words = shlex.split(command, posix=False)  # a backslash is part of a path there
    except ValueError as error:
        raise ConfigurationError(
            "the engine's command cannot be read",
            field="engine",
            expected="every quote closed",
            got=command,
            cure=str(error),
        ) from error
    return [word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word for word in words]
