"""Commands with placeholders, and the presets that write them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ue_rl.connections.launching.starting import launched
from ue_rl.connections.launching.template import PRESETS, Template, template
from ue_rl.system.errors import ConfigurationError


@pytest.mark.skipif(sys.platform == "win32", reason="quotes are others there")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("game --port {port} --envs={num_envs}", ["game", "--port", "7801", "--envs=4"]),
        ("'./my game' \"a b\" c\\ d", ["./my game", "a b", "c d"]),
        ("game $HOME * ~ | rm", ["game", "$HOME", "*", "~", "|", "rm"]),
        ('game \'{"a": {"b": 1}}\' {}', ["game", '{"a": {"b": 1}}', "{}"]),
        ("game '{\"port\": {port}}'", ["game", '{"port": 7801}']),
        ("game {{port}} {port}{seed}", ["game", "{port}", "78017"]),
        (["game", "{engine} of 8", ""], ["game", "2 of 8", ""]),
    ],
)
def test_filled_in(command: str | list[str], words: list[str]) -> None:
    assert Template(command).fill(port=7801, num_envs=4, seed=7, engine=2) == words


def test_a_value_is_never_cut_into_words() -> None:
    assert Template("game {seed}").fill(seed="1 --evil") == ["game", "1 --evil"]


def test_a_backslash_is_part_of_a_path_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert Template('"C:\\My Games\\a.exe" -port {port}').words == ["C:\\My Games\\a.exe", "-port", "{port}"]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("game {prot}", r"\{prot\} is no placeholder.*\{port\}, \{num_envs\}.*did you mean 'port'"),
        ("game ${HOME}", r"(?i)\{HOME\} is no placeholder.*no shell"),
        ("", "no command"),
        ([], "no command"),
        ("game 'open", "every quote closed"),
        (["game\0", "{port}"], "no NUL"),
    ],
)
def test_refused_by_name(command: str | list[str], error: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?is){error}"):
        Template(command)


def test_uses() -> None:
    words = Template("game {port} {{seed}}")
    assert words.uses("port")
    assert not words.uses("seed")


# -- presets


def test_a_packaged_unreal_game(tmp_path: Path) -> None:
    game = tmp_path / "My Game.sh"
    game.touch()
    words = template([f"unreal:{game}", "/Game/Maps/Train"]).fill(port=7801, num_envs=4, seed=7)
    assert words[:2] == [str(game), "/Game/Maps/Train"]  # a map must be the first argument
    assert {"-nullrhi", "-unattended", "-nosplash", "-UseFixedTimeStep", "-FPS=60", "-ExecCmds=t.MaxFPS 0"} < set(words)
    assert words[-3:] == ["-UERLPort=7801", "-UERLNumEnvs=4", "-UERLSeed=7"]


def test_options_without_a_value_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "game").touch()
    words = template(f"unity:{tmp_path}/game", without=["seed"]).words
    assert words[1:] == ["-batchmode", "-nographics", "-logFile", "-", "-port={port}", "-envs={num_envs}"]


def test_the_preset_that_was_meant_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"got unrael:Game\.sh.*unreal"):
        template("unrael:Game.sh --port {port}")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("GODOT", "UNREAL_EDITOR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def program(folder: Path, name: str) -> str:
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


@pytest.mark.skipif(os.name == "nt", reason="programs end in .exe there")
def test_a_godot_project(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="unity needs a file or folder that exists"):
        template("unity:Build/Game.x86_64")
    with pytest.raises(ConfigurationError, match=r"Godot was not found.*godot3-server.*GODOT"):
        template(f"godot:{tmp_path}")
    server = program(programs, "godot3-server")
    assert template(f"godot:{tmp_path}").words[:5] == [server, "--path", str(tmp_path), "--fixed-fps", "60"]
    four = program(programs, "godot4")
    assert template(f"godot:{tmp_path}").words[:4] == [four, "--headless", "--path", str(tmp_path)]
    mine = program(tmp_path, "mine")
    monkeypatch.setenv("GODOT", mine)
    assert template(f"godot:{tmp_path}").words[0] == mine
    assert template(f"godot:{mine}").words[:2] == [mine, "--headless"]


@pytest.mark.skipif(os.name == "nt", reason="programs end in .exe there")
@pytest.mark.parametrize(
    ("name", "headless"),
    [
        ("Godot_v4.3-stable_linux.x86_64", True),
        ("Godot_v4.3-stable_win32.exe", True),
        ("Godot_v4.0.3-stable_mono_linux.arm32", True),
        ("godot-4.13", True),
        ("godot", True),
        ("Godot_v3.5.3-stable_linux_headless.64", False),
        ("Godot_v3.6-stable_win64.exe", False),
        ("godot-mono-3.5", False),
        ("godot_server.x11.opt.tools.64", False),
    ],
)
def test_which_godot_it_is_stands_behind_the_name(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, headless: bool
) -> None:
    monkeypatch.setenv("GODOT", program(tmp_path, name))
    assert ("--headless" in template(f"godot:{tmp_path}").words) == headless
    linked = tmp_path / "engine-of-the-game"
    linked.symlink_to(tmp_path / name)
    monkeypatch.setenv("GODOT", str(linked))
    assert ("--headless" in template(f"godot:{tmp_path}").words) == headless


@pytest.mark.skipif(os.name == "nt", reason="programs end in .exe there")
def test_the_unreal_editor(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "My.uproject"
    project.touch()
    monkeypatch.setenv("UNREAL_EDITOR", "/nowhere/UnrealEditor")
    with pytest.raises(ConfigurationError, match="UNREAL_EDITOR; got /nowhere"):
        template(f"unreal-editor:{project}")
    monkeypatch.setenv("UNREAL_EDITOR", program(programs, "UnrealEditor"))
    assert template(f"unreal-editor:{project}").words[1:4] == [str(project), "-game", "-nullrhi"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_path_that_is_not_there(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"file or folder.*got /nowhere/game.*quotes"):
        template(f"{name}:/nowhere/game")
    with pytest.raises(ConfigurationError, match=f"expected {name}:PATH"):
        template(f"{name}:")


def test_a_path_with_a_colon_is_a_command() -> None:
    assert template("C:game.exe {port}").words == ["C:game.exe", "{port}"]


# -- what ue_rl.launch checks before anything is started


def test_several_engines_need_ports() -> None:
    with pytest.raises(ConfigurationError, match=r"2 engines cannot listen on the same port.*Put \{port\}"):
        launched("game", num_engines=2)
    assert len(launched("game {port}", num_engines=2)) == 2


@pytest.mark.parametrize(
    "options", [{"num_engines": 0}, {"num_envs": 0}, {"start_timeout": 0.0}, {"start_timeout": float("nan")}]
)
def test_numbers_that_make_no_sense(options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        launched("game {port}", **options)  # type: ignore[arg-type]


def test_the_handshake_of_a_started_engine_may_take_as_long_as_its_start() -> None:
    """Unless another time is given; None is none."""
    asked: list[float] = []

    def note(*_: Any, connect_timeout: float) -> Any:
        asked.append(connect_timeout)

    for given in ({}, {"connect_timeout": None}, {"connect_timeout": 3.0}):
        engine = launched("game {port}", start_timeout=7.0, open=note, **given)[0]  # type: ignore[arg-type]
        engine.dial("tcp://127.0.0.1:1")
    assert asked == [7.0, 7.0, 3.0]
