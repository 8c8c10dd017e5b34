"""Presets: the commands of well-known engines, written for training, in place of a command.

    godot:PATH           a Godot project's folder (run by godot4, godot, godot3-server ..), or an exported game
    unity:PATH           a Unity player
    unreal:PATH          a packaged Unreal game
    unreal-editor:PATH   a .uproject, run by the editor's executable as a game

docs/launching.md explains each option and says which of them were run. What follows the path, after a blank, is added
to the command as it is: "unreal:Game.sh /Game/Maps/Train -UERLPort={port}".
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ue_rl.errors import ConfigurationError
from ue_rl.launching.template import Template

_GODOTS = ("godot4", "godot", "godot3-server", "godot3-headless", "godot3")
_EDITORS = ("UnrealEditor-Cmd", "UnrealEditor", "UE4Editor-Cmd", "UE4Editor")
_UERL = ["-UERLPort={port}", "-UERLNumEnvs={num_envs}", "-UERLSeed={seed}"]
_GODOT = ["--fixed-fps", "60", "--port={port}", "--envs={num_envs}", "--seed={seed}"]
_UNITY = ["-batchmode", "-nographics", "-logFile", "-", "-port={port}", "-envs={num_envs}", "-seed={seed}"]
_UNREAL = [
    "-nullrhi", "-nosound", "-unattended", "-nosplash", "-nopause", "-UseFixedTimeStep", "-FPS=60", "-NoVSync",
    "-ExecCmds=t.MaxFPS 0", "-stdout", "-FullStdOutLogOutput", "-log",
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
    if not path:
        raise ConfigurationError(
            f"the preset {name} needs a path", field="engine", expected=f"{name}:PATH", got=command
        )
    if not os.path.exists(path):
        raise ConfigurationError(
            f"the preset {name}: there is no such file or folder", field="engine", got=path,
            cure="a path with blanks needs quotes",
        )  # fmt: skip
    words = [word for word in PRESETS[name](path) if not any(f"{{{gone}}}" in word for gone in without)]
    return Template([*words, *plain.words[1:]])


def _godot(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [_program(path), "--headless", *_GODOT]
    program = _installed("Godot", "GODOT", _GODOTS)
    # Godot 3 has no --headless: its godot3-server and godot3-headless have no display at all
    headless = [] if "3" in Path(program).name else ["--headless"]
    return [program, *headless, "--path", os.path.abspath(path), *_GODOT]


def _unity(path: str) -> list[str]:
    return [_program(path), *_UNITY]


def _unreal(path: str) -> list[str]:
    return [_program(path), *_UNREAL, *_UERL]


def _unreal_editor(path: str) -> list[str]:
    return [
        _installed("the Unreal editor", "UNREAL_EDITOR", _EDITORS),
        os.path.abspath(path),
        "-game",
        *_UNREAL,
        *_UERL,
    ]


PRESETS: dict[str, Callable[[str], list[str]]] = {
    "godot": _godot,
    "unity": _unity,
    "unreal": _unreal,
    "unreal-editor": _unreal_editor,
}


def _program(path: str) -> str:
    """Of a path, for a call without a shell: "Game.sh" alone would be looked for in PATH."""
    return os.path.abspath(path)


def _installed(what: str, variable: str, names: Sequence[str]) -> str:
    given = os.environ.get(variable)
    found = shutil.which(given) if given else next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise ConfigurationError(
            f"{what} was not found", field="engine", expected=f"the path of it in the environment variable {variable}"
            if given else f"one of {', '.join(names)} in PATH", got=given,
            cure=f"set {variable} to the program, or give the whole command instead of a preset",
        )  # fmt: skip
    return found
