"""Completion in a shell: what it completes a value with, of which none raises, and the scripts of the shells."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem[Any]]"]


def _files(incomplete: str) -> list[CompletionItem[Any]]:
    return [CompletionItem(incomplete, type="file")]


def _those(words: Iterable[str], incomplete: str) -> list[CompletionItem[Any]]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def words(*known: str) -> Complete:
    """One of these."""
    return lambda context, parameter, incomplete: _those(known, incomplete)


def engine(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """A preset with its path, or a program."""
    from ue_rl.connections.launching.template import PRESETS

    preset, colon, path = incomplete.partition(":")
    if colon and preset in PRESETS:
        found = sorted(glob.glob(f"{glob.escape(path)}*"))
        return [CompletionItem(f"{preset}:{one}{os.sep if os.path.isdir(one) else ''}") for one in found]
    return _those((f"{name}:" for name in PRESETS), incomplete) or _files(incomplete)


def _runs(folder: str) -> list[str]:
    """The names of the runs in a folder of runs, the newest first."""
    try:
        found = [(path.stat().st_mtime, path.parent.name) for path in Path(folder).glob("*/config.yaml")]
    except OSError:
        return []
    return [name for _, name in sorted(found, reverse=True)]


def run_id(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """The name of a run in --log-dir."""
    return _those(_runs(context.params.get("log_dir") or "runs"), incomplete)


def run_or_file(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """The folder of a run in `runs`, or any file."""
    return _those((os.path.join("runs", name) for name in _runs("runs")), incomplete) or _files(incomplete)


url = words("tcp://127.0.0.1:7777", "shm://")


@click.command(short_help="Make the shell complete commands.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options, presets, runs and addresses.

    \b
    bash: in ~/.bashrc                    eval "$(ue-rl completion bash)"
    zsh:  in ~/.zshrc, behind compinit    eval "$(ue-rl completion zsh)"
    fish: once     ue-rl completion fish > ~/.config/fish/completions/ue-rl.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "ue-rl", "_UE_RL_COMPLETE").source())


class Bash(BashComplete):
    """Bash takes a word apart at ":" and "=", and is told only what stands behind the last of them."""

    name = "bash"
    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", 'COMPREPLY+=("$value"); [[ $value == *[:/] ]] && compopt -o nospace'
    )
    _told = ""  # how the value begins that is completed, up to its last ":"

    def get_completion_args(self) -> tuple[list[str], str]:
        """See ShellComplete; the parts of a word are one word again."""
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        for word in [*args, incomplete]:
            if words and (word[:1] in (":", "=") or words[-1][-1:] in (":", "=")):
                words[-1] += word
            else:
                words.append(word)
        value = words[-1].partition("=")[2] if words[-1].startswith("-") else words[-1]
        self._told = value[: value.rfind(":") + 1]
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """See ShellComplete."""
        return f"{item.type},{item.value.removeprefix(self._told)}"


add_completion_class(Bash)  # not as a decorator: click 8.1.0 returns nothing
