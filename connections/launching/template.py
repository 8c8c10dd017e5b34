"""The command that starts an engine: words with placeholders, never given to a shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

from ue_rl.system.errors import ConfigurationError, nearest

PLACEHOLDERS = ("port", "num_envs", "seed", "engine")
_PLACEHOLDER = re.compile(r"\{(\{?)([A-Za-z_][A-Za-z_0-9]*)\}(\}?)")
_GODOTS = ("godot4", "godot", "godot3-server", "godot3-headless", "godot3")
_EDITORS = ("UnrealEditor-Cmd", "UnrealEditor", "UE4Editor-Cmd", "UE4Editor")
_GODOT = ["--fixed-fps", "60", "--port={port}", "--envs={num_envs}", "--seed={seed}"]
_UNITY = ["-batchmode", "-nographics", "-logFile", "-", "-port={port}", "-envs={num_envs}", "-seed={seed}"]
# Not -Benchmark or -Deterministic: they give all engines the same random numbers.
_UNREAL = [
    "-nullrhi", "-nosound", "-unattended", "-nosplash", "-UseFixedTimeStep", "-FPS=60", "-ExecCmds=t.MaxFPS 0",
    "-log", "-stdout", "-FullStdOutLogOutput", "-UERLPort={port}", "-UERLNumEnvs={num_envs}", "-UERLSeed={seed}",
]  # fmt: skip


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
        if isinstance(command, str):
            self.words = _split(command)
        else:
            self.words = [str(word) for word in command]
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
            if _escaped(found):
                return found[0][1:-1]
            return found[1] + str(values[found[2]]) + found[3]

        return [_PLACEHOLDER.sub(value, word) for word in self.words]


def _escaped(found: re.Match[str]) -> bool:
    return bool(found[1] and found[3])


def _split(command: str) -> list[str]:
    try:
        if sys.platform == "win32":
            return windows_words(command)
        return shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(
            "the engine's command cannot be read",
            field="engine",
            expected="every quote closed",
            got=command,
            cure=str(error),
        ) from error


def windows_words(command: str) -> list[str]:
    """The words of a command as programs on Windows split it: a backslash is part of a path unless a " follows it.

    Double quotes may stand anywhere in a word: -ExecCmds="t.MaxFPS 0" is one word without them. A word that begins with
    a single quote goes on to the next one, as in other shells.

    Raises:
        ValueError: a quote is not closed.

    Source: CommandLineToArgvW of the Windows API, and the rules for C programs' arguments in Microsoft's documentation.
    """
    words: list[str] = []
    word: list[str] | None = None  # None: between two words
    quote = ""
    at = 0
    while at < len(command):
        letter = command[at]
        at += 1
        if letter == "\\":
            behind = len(command[at - 1 :]) - len(command[at - 1 :].lstrip("\\"))
            at += behind - 1
            before_quote = command[at : at + 1] == '"' and quote != "'"
            if not word:
                word = []
            word.append("\\" * (behind // 2 if before_quote else behind))
            if before_quote and behind % 2:
                word.append('"')
                at += 1
        elif letter == quote:
            quote = ""
            if letter == '"' and command[at : at + 1] == '"':  # a doubled one within quotes stands for itself
                word = [*(word or []), '"']
                quote = '"'
                at += 1
        elif not quote and (letter == '"' or (letter == "'" and word is None)):
            quote = letter
            if not word:
                word = []
        elif not quote and letter in " \t\r\n":
            if word is not None:
                words.append("".join(word))
            word = None
        else:
            if not word:
                word = []
            word.append(letter)
    if quote:
        raise ValueError("No closing quotation")
    if word is not None:
        words.append("".join(word))
    return words


def template(command: str | Sequence[str], without: Collection[str] = ()) -> Template:
    """A command, or the one of a preset.

    Args:
        without: placeholders that have no value: a preset leaves out the options that need them.

    Raises:
        ConfigurationError: as Template; a preset's path does not exist, or its program is not installed.
    """
    plain = Template(command)
    name, colon, path = plain.words[0].partition(":")
    if not colon or name not in PRESETS:
        if colon and shutil.which(plain.words[0]) is None and (meant := nearest(name, PRESETS)):
            raise ConfigurationError("no such preset", field="engine", got=plain.words[0], cure=meant)
        return plain
    if not path or not os.path.exists(path):
        got = path
        if not got:
            got = plain.words[0]
        cure = None
        if path:
            cure = "a path with blanks needs quotes"
        raise ConfigurationError(
            f"the preset {name} needs a file or folder{' that exists' if path else ''}",
            field="engine",
            expected=f"{name}:PATH",
            got=got,
            cure=cure,
        )
    program, options = PRESETS[name](os.path.abspath(path))
    options = [word for word in options if not any(f"{{{gone}}}" in word for gone in without)]
    return Template([*program, *plain.words[1:], *options])


def used(command: str | Sequence[str], **values: int) -> dict[str, Any]:
    """Those of `values` whose placeholders the command has, and None for the others; errors as `template`."""
    uses = template(command).uses
    return {name: value if uses(name) else None for name, value in values.items()}


def program_of(engine: str) -> str:
    """A short name of an engine's command, or of a preset's PATH: "walker" of "godot:/games/walker"."""
    kind, colon, path = engine.partition(":")
    if colon and re.fullmatch(r"[a-z][a-z-]+", kind):
        words = [path]
    else:
        words = engine.split()
    scripts = [word for word in words[1:] if not word.startswith("-")]
    if re.fullmatch(r"(python|py|bash|sh|node|wine|xvfb-run)[\d.]*", PureWindowsPath(words[0]).stem) and scripts:
        words = scripts
    return PureWindowsPath(words[0].strip("'\"")).stem or "engine"


def _godot(path: str) -> tuple[list[str], list[str]]:
    if not os.path.isdir(path):
        return [path], ["--headless", *_GODOT]
    program = _installed("Godot", "GODOT", _GODOTS)
    # Godot 3 has no --headless: its godot3-server and godot3-headless have no display at all
    if _is_godot_3(program):
        headless = []
    else:
        headless = ["--headless"]
    return [program, *headless, "--path", path], _GODOT


def _is_godot_3(program: str) -> bool:
    """By the version behind "godot" in the name of the program, or of the file that a link leads to.

    Other numbers in it say nothing: Godot_v4.3-stable_win32.exe is a Godot 4.
    """
    for name in (Path(program).name, Path(program).resolve().name):
        version = re.search(r"godot(?:[ _.-]?mono)?[ _.-]?v?(\d+)(?!\d)", name, re.IGNORECASE)
        if version is not None:
            return version[1] == "3"
        if ".x11." in name.lower():
            return True  # Godot 4 calls this platform linuxbsd
    return False


def _unreal_editor(path: str) -> tuple[list[str], list[str]]:
    return [_installed("the Unreal editor", "UNREAL_EDITOR", _EDITORS), path], ["-game", *_UNREAL]


# The path -> the program with what stands at its beginning, and the options behind it.
PRESETS: dict[str, Callable[[str], tuple[list[str], list[str]]]] = {
    "godot": _godot,
    "unity": lambda path: ([path], _UNITY),
    "unreal": lambda path: ([path], _UNREAL),
    "unreal-editor": _unreal_editor,
}


def _installed(what: str, variable: str, names: Sequence[str]) -> str:
    given = os.environ.get(variable)
    if given:
        found = shutil.which(given)
    else:
        found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise ConfigurationError(
            f"{what} was not found",
            field="engine",
            expected=f"a program in the environment variable {variable}"
            if given
            else f"one of {', '.join(names)} in PATH",
            got=given,
            cure=f"set {variable} to the program, or give the whole command instead of a preset",
        )
    return found
