"""Presets: the commands of well-known engines, written for training, in place of a command.

    godot:PATH           a Godot project's folder (run by godot4, godot, godot3-server ..), or an exported game
    unity:PATH           a Unity player
    unreal:PATH          a packaged Unreal game
    unreal-editor:PATH   a .uproject, run by the editor's executable as a game

docs/engines.md, section 3, has the commands and says which were run. What follows the path, after a blank, comes
right behind the path in the command: "unreal:Game.sh /Game/Maps/Train".
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from ue_rl.errors import ConfigurationError
from ue_rl.launching.template import Template

_GODOTS = ("godot4", "godot", "godot3-server", "godot3-headless", "godot3")
_EDITORS = ("UnrealEditor-Cmd", "UnrealEditor", "UE4Editor-Cmd", "UE4Editor")

_GODOT = ["--fixed-fps", "60", "--port={port}", "--envs={num_envs}", "--seed={seed}"]
_UNITY = ["-batchmode", "-nographics", "-logFile", "-", "-port={port}", "-envs={num_envs}", "-seed={seed}"]
# Not -Benchmark or -Deterministic: they give all engines the same random numbers.
_UNREAL = [
    "-nullrhi", "-nosound", "-unattended", "-nosplash", "-UseFixedTimeStep", "-FPS=60", "-ExecCmds=t.MaxFPS 0",
    "-log", "-stdout", "-FullStdOutLogOutput", "-UERLPort={port}", "-UERLNumEnvs={num_envs}", "-UERLSeed={seed}",
]  # fmt: skip


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
        return plain
    if not path or not os.path.exists(path):
        raise ConfigurationError(
            f"the preset {name} needs the path of a file or folder",
            field="engine",
            expected=f"{name}:PATH",
            got=path or plain.words[0],
            cure="a path with blanks needs quotes" if path else None,
        )
    program, options = PRESETS[name](os.path.abspath(path))
    options = [word for word in options if not any(f"{{{gone}}}" in word for gone in without)]
    return Template([*program, *plain.words[1:], *options])


def used(command: str | Sequence[str], **values: int) -> dict[str, Any]:
    """Those of `values` whose placeholders the command has, and None for the others; errors as `template`."""
    uses = template(command).uses
    return {name: value if uses(name) else None for name, value in values.items()}


def _godot(path: str) -> tuple[list[str], list[str]]:
    if not os.path.isdir(path):
        return [path], ["--headless", *_GODOT]
    program = _installed("Godot", "GODOT", _GODOTS)
    # Godot 3 has no --headless: its godot3-server and godot3-headless have no display at all
    headless = [] if "3" in Path(program).name else ["--headless"]
    return [program, *headless, "--path", path], _GODOT


def _unity(path: str) -> tuple[list[str], list[str]]:
    return [path], _UNITY


def _unreal(path: str) -> tuple[list[str], list[str]]:
    return [path], _UNREAL


def _unreal_editor(path: str) -> tuple[list[str], list[str]]:
    return [_installed("the Unreal editor", "UNREAL_EDITOR", _EDITORS), path], ["-game", *_UNREAL]


# The path -> the program with what stands at its beginning, and the options behind it.
PRESETS: dict[str, Callable[[str], tuple[list[str], list[str]]]] = {
    "godot": _godot,
    "unity": _unity,
    "unreal": _unreal,
    "unreal-editor": _unreal_editor,
}


def _installed(what: str, variable: str, names: Sequence[str]) -> str:
    given = os.environ.get(variable)
    found = shutil.which(given) if given else next(filter(None, map(shutil.which, names)), None)
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
