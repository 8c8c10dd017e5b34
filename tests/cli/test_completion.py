"""What a shell gets when it asks as click's script for it does."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from ue_rl.cli import cli

SHELLS = ("bash", "zsh", "fish")


def ask(shell: str, words: list[str], cwd: Path) -> list[str]:
    """What comes back for the last of the words."""
    place = {"COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1)}
    if shell == "fish":
        place["COMP_CWORD"] = words[-1]
    kind = get_completion_class(shell)
    assert kind is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        for name, value in place.items():
            patch.setenv(name, value)
        lines = kind(cli, {}, "ue-rl", "_UE_RL_COMPLETE").complete().splitlines()
    if shell == "zsh":  # type, value and help, each in a line
        return [f"{kind},{value}" for kind, value in zip(lines[::3], lines[1::3], strict=False)]
    return [line.partition("\t")[0] for line in lines if line]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").touch()
    (tmp_path / "runs" / "no-run").mkdir()
    (tmp_path / "game").mkdir()
    return tmp_path


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_and_options(shell: str, folder: Path) -> None:
    assert ask(shell, ["ue-rl", "tra"], folder) == ["plain,train", "plain,trace"]
    assert ask(shell, ["ue-rl", "train", "--restar"], folder) == ["plain,--restarts"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["train", "--algo", "maskable"], ["maskable_ppo"]),
        (["train", "--channel", "per"], ["per-env"]),
        (["train", "--engine", "unreal"], ["unreal:", "unreal-editor:"]),
        (["check", "--engine", "./Ga"], None),
        (["train", "--run-id", "sec"], ["second"]),
        (["train", "tc"], ["tcp://127.0.0.1:7777"]),
        (["export", "runs/f"], ["runs/first"]),
        (["play", "runs/no"], None),
    ],
)
def test_values(shell: str, words: list[str], found: list[str] | None, folder: Path) -> None:
    expected = [f"file,{words[-1]}"] if found is None else [f"plain,{word}" for word in found]
    assert ask(shell, ["ue-rl", *words], folder) == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="asks bash")
def test_bash_itself(folder: Path) -> None:
    """Its script, with the words as bash takes them apart."""
    script = """
        eval "$(_UE_RL_COMPLETE=bash_source ue-rl)"
        ask() {
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _ue_rl_completion ue-rl; echo "${COMPREPLY[*]}"
        }
        ask ue-rl ser
        ask ue-rl train --engine god
        ask ue-rl check tc
        ask ue-rl train --run-id ""
    """
    binary = folder / "bin" / "ue-rl"  # `env` in click's script starts a program
    binary.parent.mkdir()
    binary.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ue_rl "$@"\n')
    binary.chmod(0o755)
    env = {**os.environ, "PATH": f"{binary.parent}:{os.environ['PATH']}"}
    out = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, cwd=folder, check=True)
    served, preset, url, runs = out.stdout.splitlines()
    assert (served, preset, url) == ("serve", "godot:", "tcp://127.0.0.1:7777")
    assert set(runs.split()) == {"first", "second"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script(shell: str) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("click asks bash for its version")
    env = {**os.environ, "_UE_RL_COMPLETE": f"{shell}_source"}
    words = [sys.executable, "-m", "ue_rl"]
    script = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    assert f"_UE_RL_COMPLETE={shell}_complete" in script
    if interpreter := shutil.which(shell):
        subprocess.run([interpreter, "-n"], input=script, text=True, check=True)


def test_asking_loads_no_learning_library(folder: Path) -> None:
    code = "import sys; from ue_rl.cli import main\ntry: main([])\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'numpy', 'ue_rl.cli.train'} & set(sys.modules), 'slow'"
    place = {"COMP_WORDS": "ue-rl ", "COMP_CWORD": "1", "_UE_RL_COMPLETE": "bash_complete"}
    out = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **place}, capture_output=True, text=True, check=False
    )
    assert (out.returncode, out.stderr) == (0, "")
    assert "plain,check" in out.stdout
