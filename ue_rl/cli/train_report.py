"""What `ue-rl train` shows of a run: lines with a progress bar, and the summary at the end."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ue_rl.cli.common import engine_line, two_columns
from ue_rl.cli.common import lasting_console as console
from ue_rl.engines.lifecycle import Change, LifeState
from ue_rl.errors import RestartsSpent, printable
from ue_rl.training.directory import RunDirectory
from ue_rl.training.report import Outcome, Report


def lines() -> Report:
    """Shows a run as lines, in order."""
    return _Lines()


class _Lines(Report):
    """On a terminal progress is a bar, otherwise a line every ten seconds and one at the end."""

    def __init__(self) -> None:
        self.screen = console()
        self.bar: Progress | None = None
        self.begun = self.shown = 0.0
        self.last = ""
        self.away: set[int] = set()  # engines that were lost

    def started(self, run: RunDirectory) -> None:
        self.run = run
        self.screen.print(f"run: {run.path}", soft_wrap=True)

    def discarded(self, run: RunDirectory) -> None:
        left = "is as it was before" if run.path.exists() else "is not kept"
        self.screen.print(f"nothing was learnt, and {run.path} {left}", soft_wrap=True)

    def connected(self, num_envs: int, facts: Mapping[str, str]) -> None:
        self.screen.print(f"watch: tensorboard --logdir {self.run.path.parent}", soft_wrap=True)
        self.screen.print(engine_line(num_envs, facts), soft_wrap=True)

    def changed(self, change: Change) -> None:
        if change.after in (LifeState.TIMEOUT, LifeState.CONNECTION_LOST):
            self.away.add(change.engine)
        elif change.after is LifeState.STREAMING and change.engine in self.away:
            self.away.remove(change.engine)
            self.screen.print(f"engine {change.engine} is back", soft_wrap=True)

    def said(self, text: str) -> None:
        self.screen.print(text, soft_wrap=True)

    def warned(self, text: str) -> None:
        self.screen.print(f"warning: {text}", style="yellow", soft_wrap=True)

    def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:
        now = time.monotonic()
        if not self.begun:
            self.begun, self.first, self.shown = now, env_steps, now
            if self.screen.is_terminal:
                self.bar = Progress(
                    TextColumn("training"),
                    BarColumn(),
                    MofNCompleteColumn(),
                    TextColumn("env-steps"),
                    TextColumn("{task.fields[fps]:>7} fps"),
                    TextColumn("return {task.fields[mean]:>8}"),
                    TimeElapsedColumn(),
                    TimeRemainingColumn(),
                    console=self.screen,
                )
                self.task = self.bar.add_task("", total=total, completed=env_steps, fps="", mean="-")
                self.bar.start()
            return
        fps = f"{(env_steps - self.first) / max(now - self.begun, 1e-9):,.0f}"
        mean = "-" if mean_return is None else f"{mean_return:.1f}"
        self.last = f"{env_steps:,} of {total:,} env-steps, {fps} fps, return {mean}"
        if self.bar:
            self.bar.update(self.task, completed=min(env_steps, total), fps=fps, mean=mean)
        elif now - self.shown >= 10:
            self.shown = now
            self.screen.print(self.last)

    def ended(self) -> None:
        if self.bar:
            self.bar.stop()
        elif self.last:
            self.screen.print(self.last)


def summary(outcome: Outcome) -> None:
    """The table at the end, and, where the run was stopped, why and how to go on."""
    run, reason = outcome.run, outcome.stopped_by
    table = two_columns("done" if reason is None else "stopped early")
    learnt = outcome.env_steps - outcome.before
    speed = learnt / max(outcome.seconds, 1e-9)
    steps = f"{learnt:,} in {outcome.seconds:.0f} s ({speed:,.0f} per second)"
    table.add_row("env-steps", f"{outcome.env_steps:,}, of them {steps} now" if outcome.before else steps)
    if outcome.mean_return is not None:
        table.add_row("last 100 episodes", f"mean return {outcome.mean_return:.1f} ({outcome.episodes:,} in all)")
    if outcome.evaluation is not None:
        table.add_row("evaluation", "mean return {:.1f} +/- {:.1f}, without exploration".format(*outcome.evaluation))
    if outcome.restarts:
        times = "once" if outcome.restarts == 1 else f"{outcome.restarts} times"
        back = "" if isinstance(reason, RestartsSpent) else " and back"
        table.add_row("engines", f"lost{back} {times}; the episodes that this cut short are counted nowhere")
    if outcome.model is not None:
        current = outcome.saved == outcome.env_steps
        table.add_row("model", str(outcome.model) if current else f"{outcome.model}, as it was saved last")
    if outcome.exported is not None:
        table.add_row("ONNX", outcome.exported)
    if run.curves.exists():
        table.add_row("curves", str(run.curves))
    table.add_row("logs", f"{run.log}, {run.episodes}, tensorboard --logdir {run.path}")
    screen = console()
    screen.print(table)
    if reason is not None:
        text = str(reason) if isinstance(reason, KeyboardInterrupt) else f"{type(reason).__name__}: {reason}"
        if outcome.crash is not None:  # what a library prints of a whole tensor is there, too
            text = text.partition("\n")[0]
        screen.print(printable(text, lines=True), style="bold red", soft_wrap=True)
        if outcome.crash is not None:
            screen.print(f"The traceback is in {outcome.crash}", soft_wrap=True)
        screen.print(advice(outcome), soft_wrap=True)


def advice(outcome: Outcome) -> str:
    """What is saved, and the command that goes on from there."""
    run, saved = outcome.run, outcome.saved
    again = ["ue-rl", "train", "--resume", "--log-dir", str(run.path.parent), "--run-id", run.path.name]
    if saved is None:
        return f"Nothing could be saved; continue from what was there before: {shlex.join(again)}"
    what = "The model is saved" if saved >= outcome.env_steps else f"The model of env-step {saved:,} is saved"
    return f"{what}; continue with: {shlex.join(again)}"
