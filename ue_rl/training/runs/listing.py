"""The runs in a folder as rows of a table, from their files alone; nothing is loaded, locked or written."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ue_rl.system.errors import ConfigurationError, UeRlError, nearest, printable
from ue_rl.system.files import require_file
from ue_rl.training.config import resolve
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import TrainOptions
from ue_rl.training.reading import EpisodeTable
from ue_rl.training.saving.lock import RunLock


@dataclass(frozen=True)
class Listed:
    """One run, or (`runs` > 0) a folder with several.

    Attributes:
        options: of the run, None of a folder. state: "running", "done", "stopped", "failed", "killed", "new".
        env_steps: that it has learnt from. mean_return: of the last 100 episodes, None without any.
        at: when it has written something last, seconds since the epoch.
    """

    path: Path
    options: TrainOptions | None
    state: str
    env_steps: int
    mean_return: float | None
    at: float
    runs: int = 0


def listed(folder: Path) -> list[Listed]:
    """Every run in `folder`, and every folder of runs there, the newest last. What is neither is left out."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if not path.is_dir() or path.name.startswith("."):
            continue
        if (path / "config.yaml").is_file() and (path / "checkpoints").is_dir():
            found.append(listed_run(RunDirectory(path)))
        else:
            inner = runs_in(path)
            if inner:
                at = max(each.stat().st_mtime for each in inner)
                found.append(Listed(path, None, "", 0, None, at, len(inner)))
    return sorted(found, key=lambda each: each.at)


def runs_in(folder: Path) -> list[Path]:
    """The config.yaml of each run in a folder of runs; [] of any other."""
    return sorted(folder.glob("*/config.yaml"))


def listed_run(run: RunDirectory) -> Listed:
    """The row of one run; one whose config cannot be read is "broken"."""
    table = EpisodeTable(run.episodes).follow()
    steps = max(run.store().env_steps, table.steps[-1] if table.steps else 0)
    times = [path.stat().st_mtime for path in (run.config, run.log, run.episodes, run.outcome) if path.exists()]
    try:
        options, state = options_of(run), state_of(run)
    except UeRlError:
        options = None
        state = "broken"
    outcome = outcome_of(run)
    return Listed(run.path, options, state, outcome.get("env_steps", steps), table.mean(), max(times, default=0.0))


def state_of(run: RunDirectory) -> str:
    """What a run does: see Listed; one that another machine writes, or wrote and was killed, is "running on HOST"."""
    writer = RunLock(run.path).writer()
    if writer is not None:
        host = writer.get("host")
        if host == socket.gethostname():
            return "running"
        return printable(f"running on {host}")
    state = outcome_of(run).get("state")
    if not state:
        state = "new"
        if run.saved_anything:
            state = "killed"
    return printable(str(state))


def outcome_of(run: RunDirectory) -> dict[str, Any]:
    """Its outcome.json; {} where it has not ended by itself, or where that is damaged."""
    try:
        require_file(run.outcome)
        found = json.loads(run.outcome.read_text("utf-8"))
        evaluation = found.get("evaluation")
        whole = isinstance(found.get("env_steps", 0), int) and (
            evaluation is None or len([*map(float, evaluation)]) > 1
        )
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return found if whole else {}


def options_of(run: RunDirectory) -> TrainOptions:
    """The options of a run.

    Raises:
        ConfigurationError: its config cannot be read.
    """
    return resolve({}, None, base=run.read_config())


def run_named(name: str, log_dir: Path) -> RunDirectory:
    """The run that is the folder `name`, or of that name in `log_dir`.

    Raises:
        ConfigurationError: there is none.
    """
    for path in (log_dir / name, Path(name)):
        if path.is_dir():
            run = RunDirectory(path)
            if run.config.exists():
                inner = []
            else:
                inner = runs_in(path)
            if inner:
                what = f"{path} is a folder of {len(inner)} runs"
                first = inner[0].parent
                cure = f"name one of them, such as {first}; ue-rl runs --log-dir {first.parent} lists them"
                raise ConfigurationError(what, field="run", cure=cure)
            run.check_is_run("`ue-rl runs` shows those that there are")
            return run
    near = nearest(name, [each.path.name for each in listed(log_dir)])
    cure = near or "`ue-rl runs` shows those that there are"
    raise ConfigurationError(f"there is no run {name} in {log_dir}", field="run", got=name, cure=cure)
