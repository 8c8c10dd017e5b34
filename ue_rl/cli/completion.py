"""What a shell completes a value with; none of these raises. Click asks them, and has the scripts for the shells."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem[Any]]"]


def _files(incomplete: str) -> list[CompletionItem[Any]]:
    return [CompletionItem(incomplete, type="file")]


def _those(words: Iterable[str], incomplete: str) -> list[CompletionItem[Any]]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def words(*known: str) -> Complete:
    """One of these."""
    return lambda context, parameter, incomplete: _those(known, incomplete)


def engine(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """A preset, or a program."""
    from ue_rl.connections.launching.template import PRESETS

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
    log_dir = context.params.get("log_dir")
    if not log_dir:
        log_dir = "runs"
    return _those(_runs(log_dir), incomplete)


def run_or_file(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """The folder of a run in `runs`, or any file."""
    return _those((os.path.join("runs", name) for name in _runs("runs")), incomplete) or _files(incomplete)


url = words("tcp://127.0.0.1:7777", "shm://")
