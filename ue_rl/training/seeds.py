"""The same run with several seeds, side by side: a folder of runs, with a table, a confidence interval and a plot.

    runs/NAME/  seeds.yaml  run.yaml  seeds.csv  seeds.png
        seed-0/ ..   each a run as any other; seed-0.log is what its process said

Each run is a process, `ue-rl train`, under a keeper: none outlives this one. Killed and started again with --resume,
those that have ended are left as they are, and the others go on.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ue_rl.connections.launching.process import EngineProcess, Output, exit_words
from ue_rl.system.durable import write_whole
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.trust.files import refuse_links, trusts_all
from ue_rl.training.config import signed_yaml
from ue_rl.training.directory import RunDirectory, checked_id
from ue_rl.training.options import TrainOptions
from ue_rl.training.pictures import add_legend, new_figure, save
from ue_rl.training.reading import EpisodeTable
from ue_rl.training.saving.checkpoints import OVER
from ue_rl.training.saving.stopping import Stopping
from ue_rl.training.writing import WriteGuard, evaluations

FILE = "seeds.yaml"
CONFIG = "run.yaml"
_SAVING = 60.0  # seconds that runs have to save themselves when this is stopped
_TOLD = 10.0  # seconds between two lines of progress
# Student's t, 97.5 %, for 1, 2, .. degrees of freedom.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class SeedRun:
    """One of the runs.

    Attributes:
        state: "done"; "failed"; "stopped", which goes on with --resume.
        mean: of the last evaluation's returns, or the last 100 episodes' where there is none; None without any.
        best: mean return of its best evaluation; None without any.
    """

    seed: int
    state: str
    env_steps: int
    mean: float | None
    best: float | None


def train_seeds(
    options: TrainOptions,
    *,
    resume: bool = False,
    force: bool = False,
    tell: Callable[[str], object] = print,
) -> tuple[Path, list[SeedRun], BaseException | None]:
    """Trains with seeds `options.seed` (or 0), and the following `options.seeds` - 1.

    Args:
        resume: go on with those that have not ended. force: begin anew where the folder exists.
        tell: shows a sentence.

    Returns:
        (their folder, the runs, what stopped it: None, or a RunStopped).

    Raises:
        ConfigurationError: the folder exists already, or is none of this kind.
    """
    o = options
    if resume:
        folder = group_of(o)
    else:
        folder = _created(o, force)
    assert folder is not None
    refuse_links(folder)
    asked_jobs = o.jobs
    if not asked_jobs:
        asked_jobs = max(1, (os.cpu_count() or 2) // 2)
    jobs = min(asked_jobs, o.seeds or 1)
    write_whole(folder / FILE, lambda path: path.write_text(signed_yaml(replace(o, run_id=folder.name)), "utf-8"))
    threads = o.threads
    if not threads:
        threads = None
        if jobs > 1:
            threads = 1
    one = replace(o, seeds=None, jobs=None, run_id=None, seed=None, threads=threads)
    write_whole(folder / CONFIG, lambda path: path.write_text(one.as_yaml(), "utf-8"))
    seeds = [(o.seed or 0) + number for number in range(o.seeds or 1)]
    tell(f"runs: {folder}, {len(seeds)} seeds, {jobs} at a time; watch: tensorboard --logdir {folder}")
    stopped: BaseException | None = None
    processes = _Processes(folder, jobs, force and not resume, tell)
    with Stopping() as stopping:
        try:
            with stopping.interruptible():
                processes.run([seed for seed in seeds if not _has_ended(folder, seed, o)])
        except KeyboardInterrupt as error:
            stopped = error
        finally:
            processes.end()
    runs = [_read(folder, seed, o, processes.failed) for seed in seeds]
    # The runs are done: neither a full disk nor what matplotlib says of it may end this without the summary.
    with WriteGuard(folder / "seeds.csv", tell, Exception):
        _write(folder / "seeds.csv", runs)
    with WriteGuard(folder / "seeds.png", tell, Exception):
        draw(folder, runs, f"{o.algo.upper()} on {o.task}")
    return folder, runs, stopped


def interval(values: Sequence[float]) -> tuple[float, float]:
    """(mean, half the width of its 95 % confidence interval), by Student's t; the half is NaN for one value."""
    n = len(values)
    if n < 2:
        if n:
            value = float(values[0])
        else:
            value = math.nan
        return value, math.nan
    t = 1.96
    if n - 2 < len(_T):
        t = _T[n - 2]
    return float(np.mean(values)), float(t * np.std(values, ddof=1) / math.sqrt(n))


def group_of(options: TrainOptions) -> Path | None:
    """The folder that --resume goes on with, where it is one of several seeds; None for that of a single run.

    Raises:
        ConfigurationError: `seeds` is given, and there is no such folder.
    """
    log_dir = Path(options.log_dir)
    name = options.run_id
    if name:
        found = [log_dir / checked_id(name) / FILE]
    else:
        found = sorted(log_dir.glob(f"{options.run_name}-seeds-*/{FILE}"))
    found = sorted((path for path in found if path.is_file()), key=lambda path: path.stat().st_mtime)
    if found and (name or options.seeds is not None):
        return found[-1].parent
    if options.seeds is None:
        return None
    raise ConfigurationError(
        f"there are no runs with several seeds in {log_dir / (name or '')}",
        field="run_id",
        cure="check --log-dir and --run-id, or start them without --resume",
    )


def _created(o: TrainOptions, force: bool) -> Path:
    log_dir = Path(o.log_dir)
    names = (log_dir / f"{o.run_name}-seeds-{number}" for number in itertools.count(1))
    if o.run_id is None:
        folder = next(path for path in names if not path.exists())
    else:
        folder = log_dir / checked_id(o.run_id)
    if folder.exists() and not (force and (folder / FILE).is_file()):
        cure = "go on with --resume, begin anew with --force, or choose another --run-id"
        raise ConfigurationError(f"{folder} exists already", field="run_id", cure=cure)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be made", field="log_dir", got=str(error)) from error
    return folder


class _Processes:
    """`ue-rl train` for one seed after the other, a few at a time."""

    def __init__(self, folder: Path, jobs: int, force: bool, tell: Callable[[str], object]) -> None:
        self._folder = folder
        self._jobs = jobs
        self._force = force
        self._tell = tell
        self._running: dict[int, tuple[EngineProcess, Output]] = {}
        self._said: dict[int, str] = {}
        self.failed: set[int] = set()

    def run(self, seeds: Sequence[int]) -> None:
        """Until all have ended."""
        waiting = list(seeds)
        told = time.monotonic()
        while waiting or self._running:
            while waiting and len(self._running) < self._jobs:
                self._start(waiting.pop(0))
            first = next(iter(self._running.values()))[0]
            first.ended.wait(0.2)
            for seed, (process, output) in [*self._running.items()]:
                if process.ended.is_set():
                    self._ended(seed, process, output)
            if time.monotonic() - told >= _TOLD:
                told = time.monotonic()
                for seed in self._running:
                    self._say_progress(seed)

    def _start(self, seed: int) -> None:
        run = RunDirectory(self._folder / f"seed-{seed}")
        words = [sys.executable, "-m", "ue_rl", "train", "--config", str(self._folder / CONFIG), "--written-here"]
        words += ["--log-dir", str(self._folder), "--run-id", run.path.name, "--seed", str(seed)]
        begun = run.config.exists()
        if self._force:
            words += ["--force"]
        elif begun:
            words += ["--resume"]
        else:
            words += []
        if trusts_all():
            words += ["--trust"]
        else:
            words += []
        self._tell(f"seed {seed}: {'goes on' if begun and not self._force else 'begins'}")
        output = Output(self._folder / f"seed-{seed}.log")
        output.begin(" ".join(words))
        self._running[seed] = EngineProcess(words, output.file, None), output

    def _ended(self, seed: int, process: EngineProcess, output: Output) -> None:
        del self._running[seed]
        process.end()
        if process.exit_code == 0:
            self._tell(f"seed {seed}: done")
        else:
            self.failed.add(seed)
            self._tell(f"seed {seed}: {exit_words(process.exit_code)}; {output.last_lines()}")
        output.close()

    def _say_progress(self, seed: int) -> None:
        with suppress(OSError):
            lines = (self._folder / f"seed-{seed}.log").read_text("utf-8", "replace").splitlines()
            found = [line for line in lines if " env-steps, " in line]
            if found and found[-1] != self._said.get(seed):
                self._said[seed] = found[-1]
                self._tell(f"seed {seed}: {found[-1]}")

    def end(self) -> None:
        """Stops those that run; they save themselves."""
        for process, _ in self._running.values():
            process.ask_to_end(_SAVING)
        for process, output in self._running.values():
            process.end(_SAVING)
            output.close()
        self._running.clear()


def _has_ended(folder: Path, seed: int, o: TrainOptions) -> bool:
    """By itself, and with nothing left to learn."""
    run = RunDirectory(folder / f"seed-{seed}")
    last = run.store().last
    if last is None or last.facts.get("reason") != OVER:
        return False
    if last.env_steps >= o.timesteps:
        return True
    return o.stop_at_return is not None and run.read_config().get("stop_at_return") == o.stop_at_return


def _read(folder: Path, seed: int, o: TrainOptions, failed: set[int]) -> SeedRun:
    run = RunDirectory(folder / f"seed-{seed}")
    if _has_ended(folder, seed, o):
        state = "done"
    elif seed in failed:
        state = "failed"
    else:
        state = "stopped"
    rows = evaluations(run.path)
    if not rows:
        mean = EpisodeTable(run.episodes).follow().mean()
    else:
        mean = rows[-1].mean_return
    best = max((row.mean_return for row in rows), default=None)
    return SeedRun(seed, state, run.store().env_steps, mean, best)


def _write(path: Path, runs: Sequence[SeedRun]) -> None:
    def write(half: Path) -> None:
        with half.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["seed", "state", "env_steps", "mean_return", "best_return"])
            table.writerows([each.seed, each.state, each.env_steps, each.mean, each.best] for each in runs)

    write_whole(path, write)


def draw(folder: Path, runs: Sequence[SeedRun], title: str) -> None:
    """Writes seeds.png: each seed's curve, their mean and its 95 % confidence interval; nothing without episodes."""
    curves: dict[int, Any] = {}
    evaluated = all(len(evaluations(folder / f"seed-{each.seed}")) > 1 for each in runs)
    for each in runs:
        run = RunDirectory(folder / f"seed-{each.seed}")
        curve: Any = EpisodeTable(run.episodes).follow().curve()
        if evaluated:
            curve = np.array([(row.env_steps, row.mean_return) for row in evaluations(run.path)], np.float64).T
        if len(curve[0]):
            curves[each.seed] = curve
    if not curves:
        return
    figure, axes = new_figure(title)
    for seed, (steps, values) in curves.items():
        axes.plot(steps, values, linewidth=1, alpha=0.5, label=f"seed {seed}")
    low = max(steps[0] for steps, _ in curves.values())
    high = min(steps[-1] for steps, _ in curves.values())
    if len(curves) > 1 and high > low:  # where there is something of each
        grid = np.linspace(low, high, 200)
        at = [interval([float(np.interp(x, *curve)) for curve in curves.values()]) for x in grid]
        mean, half = np.array(at).T
        axes.plot(grid, mean, color="black", linewidth=2, label="mean")
        axes.fill_between(grid, mean - half, mean + half, color="black", alpha=0.15, label="95 % confidence interval")
    label = "mean return of the last episodes"
    if evaluated:
        label = "mean return of an evaluation"
    axes.set_ylabel(label)
    add_legend(figure, axes)
    save(figure, folder / "seeds.png")
