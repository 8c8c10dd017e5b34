"""What `ue-rl train` shows of a run: lines with a progress bar, and the summary at the end."""

from __future__ import annotations

import logging
import shlex
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from ue_rl.cli.common import engine_line, number, table_of, two_columns
from ue_rl.cli.common import lasting_console as console
from ue_rl.connections.engines.lifecycle import Change, LifeState
from ue_rl.system.errors import RestartsSpent, printable
from ue_rl.training.directory import RunDirectory
from ue_rl.training.fleet import Fleet
from ue_rl.training.report import RunResult, TrainingReport
from ue_rl.training.seeds import SeedRun, interval

_REFRESH = 4  # times a second
_LINES = 8  # of the log
_POINTS = 400  # of the curve that are kept
_HEIGHT = 5  # rows of the curve
_RECENT = 15.0  # seconds over which the speed is taken
_BLOCKS = " ▁▂▃▄▅▆▇█"
_STYLES = {
    LifeState.PLAYING: "green", LifeState.EPISODE_OVER: "green", LifeState.STREAMING: "green",
    LifeState.TIMEOUT: "red", LifeState.CONNECTION_LOST: "red", LifeState.QUOTA_SPENT: "bold red",
}  # fmt: skip


def lines(screen: Console | None = None) -> TrainingReport:
    """Shows a run as lines, in order; on standard output where no screen is named."""
    if screen is None:
        screen = console()
    return _ProgressLines(screen)


class _ProgressLines(TrainingReport):
    """On a terminal progress is a bar, otherwise a line every ten seconds and one at the end."""

    def __init__(self, screen: Console) -> None:
        self.screen = screen
        self.bar: Progress | None = None
        self.begun = self.shown = 0.0
        self.last = ""
        self.away: set[int] = set()  # engines that were lost

    def started(self, run: RunDirectory) -> None:
        self.run = run
        self.screen.print(f"run: {run.path}", soft_wrap=True)

    def discarded(self, run: RunDirectory) -> None:
        left = "is not kept"
        if run.path.exists():
            left = "is as it was before"
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
            self.begun = now
            self.first = env_steps
            self.shown = now
            if self.screen.is_terminal:
                self.bar = Progress(
                    BarColumn(None, table_column=Column(ratio=1)),  # what the numbers leave it
                    TextColumn("{task.completed:,} of {task.total:,} env-steps"),
                    TextColumn("{task.fields[fps]:>7} fps"),
                    TextColumn("return {task.fields[mean]:>8}"),
                    TimeElapsedColumn(),
                    TimeRemainingColumn(),
                    console=self.screen,
                    expand=True,
                )
                self.task = self.bar.add_task("", total=total, completed=env_steps, fps="", mean="-")
                self.bar.start()
            return
        fps = f"{(env_steps - self.first) / max(now - self.begun, 1e-9):,.0f}"
        mean = number(mean_return)
        self.last = f"{env_steps:,} of {total:,} env-steps, {fps} fps, return {mean}"
        if self.bar:
            self.bar.update(self.task, completed=min(env_steps, total), fps=fps, mean=mean)
        elif now - self.shown >= 10:
            self.screen.print(self.last)
            # not once more at the end
            self.shown = now
            self.last = ""

    def ended(self) -> None:
        if self.bar:
            self.bar.stop()
        elif self.last:
            self.screen.print(self.last)


def summary(outcome: RunResult, screen: Console | None = None) -> None:
    """The table at the end, and, where the run was stopped, why and how to go on."""
    run = outcome.run
    reason = outcome.stopped_by
    title = "stopped early"
    if reason is None:
        title = "done"
    table = two_columns(title)
    learnt = outcome.env_steps - outcome.before
    speed = learnt / max(outcome.seconds, 1e-9)
    steps = f"{learnt:,} in {outcome.seconds:.0f} s ({speed:,.0f} per second)"
    if outcome.before:
        env_steps = f"{outcome.env_steps:,}, of them {steps} now"
    else:
        env_steps = steps
    table.add_row("env-steps", env_steps)
    if outcome.mean_return is not None:
        table.add_row("last 100 episodes", f"mean return {outcome.mean_return:.1f} ({outcome.episodes:,} in all)")
    if outcome.evaluation is not None:
        table.add_row("evaluation", "mean return {:.1f} +/- {:.1f}, without exploration".format(*outcome.evaluation))
    if outcome.best is not None:
        table.add_row("best model", "{}, of env-step {:,}, mean return {:.1f}".format(run.best, *outcome.best))
    if outcome.restarts:
        times = "once"
        if outcome.restarts != 1:
            times = f"{outcome.restarts} times"
        back = " and back"
        if isinstance(reason, RestartsSpent):
            back = ""
        table.add_row("engines", f"lost{back} {times}; the episodes that this cut short are counted nowhere")
    if outcome.model is not None:
        current = outcome.saved == outcome.env_steps
        if current:
            model = str(outcome.model)
        else:
            model = f"{outcome.model}, as it was saved last"
        table.add_row("model", model)
    if outcome.exported is not None:
        table.add_row("ONNX", outcome.exported)
    if run.curves.exists():
        table.add_row("curves", str(run.curves))
    table.add_row("logs", f"{run.log}, {run.episodes}, tensorboard --logdir {run.path}")
    if screen is None:
        screen = console()
    screen.print(table)
    if reason is not None:
        if isinstance(reason, KeyboardInterrupt):
            text = str(reason)
        else:
            text = f"{type(reason).__name__}: {reason}"
        if outcome.crash is not None:  # what a library prints of a whole tensor is there, too
            text = text.partition("\n")[0]
        screen.print(printable(text, lines=True), style="bold red", soft_wrap=True)
        if outcome.crash is not None:
            screen.print(f"The traceback is in {outcome.crash}", soft_wrap=True)
        screen.print(advice(outcome), soft_wrap=True)


def advice(outcome: RunResult) -> str:
    """What is saved, and the command that goes on from there."""
    run = outcome.run
    saved = outcome.saved
    again = ["ue-rl", "train", "--resume", "--log-dir", str(run.path.parent), "--run-id", run.path.name]
    if saved is None:
        return f"Nothing could be saved; continue from what was there before: {shlex.join(again)}"
    if saved >= outcome.env_steps:
        what = "The model is saved"
    else:
        what = f"The model of env-step {saved:,} is saved"
    return f"{what}; continue with: {shlex.join(again)}"


def seeds_summary(
    folder: Path, runs: Sequence[SeedRun], stopped: BaseException | None, screen: Console | None = None
) -> None:
    """The table of several seeds, with the mean and its confidence interval over those that are done."""
    columns = ("seed", "state", "env-steps", "mean return", "best evaluation")
    table = table_of(*columns, left=["state"], title=str(folder))
    for run in runs:
        table.add_row(str(run.seed), run.state, f"{run.env_steps:,}", number(run.mean), number(run.best))
    done = [run for run in runs if run.state == "done"]
    both = [[value for run in done if (value := getattr(run, name)) is not None] for name in ("mean", "best")]
    table.add_section()
    table.add_row(
        "mean",
        f"of {len(done)}",
        "",
        *(_mean_of(each) for each in both),
    )
    if screen is None:
        screen = console()
    screen.print(table)
    if len(done) > 1:
        screen.print("+/-: 95 % confidence interval of the mean over seeds", soft_wrap=True)
    screen.print(f"table: {folder / 'seeds.csv'}, plot: {folder / 'seeds.png'}", soft_wrap=True)
    if stopped is not None or len(done) < len(runs):
        if stopped is not None:
            screen.print(str(stopped), style="bold red", soft_wrap=True)
        again = ["ue-rl", "train", "--resume", "--log-dir", str(folder.parent), "--run-id", folder.name]
        screen.print(f"continue with: {shlex.join(again)}", soft_wrap=True)


def _mean_of(values: Sequence[float]) -> str:
    """With its confidence interval, which one value has not."""
    if len(values) < 2:
        value = None
        if values:
            value = values[0]
        return number(value)
    return "{:.1f} +/- {:.1f}".format(*interval(values))


def live_view(screen: Console | None = None, clock: Callable[[], float] = time.monotonic) -> _LiveView:
    """Shows a run as a picture that stays in place. For a terminal; `clock` says seconds."""
    if screen is None:
        screen = console()
    return _LiveView(screen, clock)


class _LiveView(TrainingReport):
    """Drawn by a thread of its own, four times a second, so that it is also renewed while an engine is awaited."""

    def __init__(self, screen: Console, clock: Callable[[], float]) -> None:
        self._screen = screen
        self._clock = clock
        self._title = ""
        self._facts = ""
        self._fleet: Fleet | None = None
        self._speed: deque[tuple[float, int]] = deque()  # (time, env-steps)
        self._curve: list[float] = []
        self._stride = self._seen = 1
        self._env_steps = self._total = 0
        self._doing = "starting"  # until there is progress to show
        self._begun = clock()
        self._lines: deque[Text] = deque(maxlen=_LINES)
        self._handler = _Kept(self._lines)
        self._muted: list[logging.Handler] = []
        self._live = Live(
            console=self._screen,
            get_renderable=self.draw,
            refresh_per_second=_REFRESH,
            redirect_stdout=True,
            redirect_stderr=True,
            transient=False,
        )  # draws at once

    # -- what the run tells

    def started(self, run: RunDirectory) -> None:
        self._title = f"{run.path}"
        logger = logging.getLogger("ue_rl")
        logger.addHandler(self._handler)
        for handler in logging.getLogger().handlers:
            handler.addFilter(_not_ours)
            self._muted.append(handler)
        self._live.start()

    def connected(self, num_envs: int, facts: Mapping[str, str]) -> None:
        self._facts = engine_line(num_envs, facts)
        self._doing = "preparing to learn"

    def engines(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def said(self, text: str) -> None:
        self._lines.append(_line(text))

    def warned(self, text: str) -> None:
        """It is in the log."""

    def signalled(self, text: str) -> None:
        self._lines.append(_line(text, "bold yellow"))

    def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:
        now = self._clock()
        self._env_steps = env_steps
        self._total = total
        self._speed.append((now, env_steps))
        while len(self._speed) > 2 and now - self._speed[0][0] > _RECENT:
            self._speed.popleft()
        if mean_return is not None:
            self._seen += 1
            if self._seen % self._stride == 0:
                self._curve.append(mean_return)
            if len(self._curve) >= _POINTS:
                self._curve = self._curve[1::2]
                self._stride *= 2

    def closed(self) -> None:
        self._live.stop()
        logging.getLogger("ue_rl").removeHandler(self._handler)
        for handler in self._muted:
            handler.removeFilter(_not_ours)
        self._muted.clear()

    # -- the picture

    def draw(self) -> RenderableType:
        """Everything, as it is now."""
        parts: list[RenderableType] = [Text(self._title, style="bold", overflow="fold")]
        if self._facts:
            parts.append(Text(self._facts, style="dim", overflow="ellipsis", no_wrap=True))
        parts.append(self._progress())
        if self._fleet is not None:
            parts.append(self._engines(self._fleet))
        width = max(20, self._screen.width - 16)
        parts.append(Panel(curve(self._curve, width, _HEIGHT), title="mean return of 100 episodes", title_align="left"))
        lines = Group(*list(self._lines))
        parts.append(Panel(lines, title="log", title_align="left", height=_LINES + 2))
        return Group(*parts)

    @property
    def fps(self) -> float:
        """env-steps a second, of late."""
        if len(self._speed) < 2:
            return 0.0
        (first, before) = self._speed[0]
        (last, now) = self._speed[-1]
        return (now - before) / max(last - first, 1e-9)

    def _progress(self) -> RenderableType:
        fps = self.fps
        left = "-"
        if fps:
            left = duration((self._total - self._env_steps) / fps)
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(ratio=1)
        for _ in range(4):
            row.add_column(no_wrap=True, justify="right")
        if self._total:
            steps = f"{self._env_steps:,} of {self._total:,} env-steps"
        else:
            steps = self._doing
        row.add_row(
            ProgressBar(total=max(self._total, 1), completed=min(self._env_steps, self._total)),
            steps,
            f"{fps:,.0f} fps" if fps else "- fps",
            f"{duration(self._clock() - self._begun)} gone",
            f"{left} left",
        )
        return row

    def _engines(self, fleet: Fleet) -> RenderableType:
        table = Table(box=SIMPLE, pad_edge=False)
        for name in ("engine", "state", "envs", "fps", "restarts", "step p50", "step p99"):
            table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
        statuses = fleet.statuses()
        envs = sum(status.num_envs for status in statuses)
        if not envs:
            envs = 1
        for status in statuses:
            if status.latency is None:
                p50 = "-"
                p99 = "-"
            else:
                p50, p99 = map(milliseconds, status.latency)
            table.add_row(
                str(status.number),
                Text(status.state.value, style=_STYLES.get(status.state, "yellow")),
                str(status.num_envs),
                f"{self.fps * status.num_envs / envs:,.0f}",
                str(status.restarts),
                p50,
                p99,
            )
        return table


class _Kept(logging.Handler):
    """Keeps the last log lines of the project for the view."""

    def __init__(self, lines: deque[Text]) -> None:
        super().__init__(logging.INFO)
        self._kept = lines

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            style = "red"
        elif record.levelno >= logging.WARNING:
            style = "yellow"
        else:
            style = ""
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        self._kept.append(_line(f"{at} {record.getMessage()}", style))


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text, lines=True).partition("\n")[0], style=style, no_wrap=True, overflow="ellipsis")


def _not_ours(record: logging.LogRecord) -> bool:
    """The view shows the project's own records."""
    return not record.name.startswith("ue_rl")


def curve(values: Sequence[float], width: int, height: int) -> Text:
    """`values` from left to right in blocks of text, with the least and the greatest one at its side."""
    if len(values) < 2:
        if not values:
            text = "\n" * (height - 1) + "no episode has ended yet"
        else:
            text = f"{values[0]:.1f}"
        return Text(text)
    if len(values) > width:
        last = len(values) - 1
        values = [values[round(i * last / (width - 1))] for i in range(width)]
    low = min(values)
    high = max(values)
    levels = [round((value - low) / (high - low or 1) * (8 * height - 1)) + 1 for value in values]
    lines = []
    for row in reversed(range(height)):
        if row == height - 1:
            label = f"{high:9.1f} "
        elif row == 0:
            label = f"{low:9.1f} "
        else:
            label = " " * 10
        lines.append(label + "".join(_BLOCKS[min(max(level - 8 * row, 0), 8)] for level in levels))
    return Text("\n".join(lines), no_wrap=True)


def milliseconds(seconds: float) -> str:
    """`0.123 ms`."""
    if seconds >= 1e-4:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.0f} us"


def duration(seconds: float) -> str:
    """`1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
