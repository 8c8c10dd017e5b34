"""`ue-rl runs`: a table of runs, one of them, some beside each other. It only reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ue_rl.cli import completion
from ue_rl.cli.common import console, number, table_of, two_columns
from ue_rl.system.errors import printable

log_dir_option = click.option(
    "--log-dir",
    default="runs",
    show_default=True,
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="The folder that holds the runs.",
)


_WIDE = 1000  # columns that a file, or a pipe, has at least


def run_argument(nargs: int = 1) -> Callable[[Any], Any]:
    """RUN, the name of a run or its folder."""
    metavar = "RUN..."
    if nargs == 1:
        metavar = "RUN"
    return click.argument("run", nargs=nargs, required=True, metavar=metavar, shell_complete=completion.run_id)


def _when(at: float) -> str:
    """`2 min ago`, or the date of what is longer ago than a day."""
    seconds = max(0.0, time.time() - at)
    if seconds >= 86_400:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    size, unit = next((s, u) for s, u in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= s or s == 1)
    return f"{seconds / size:.0f} {unit} ago"


@click.group(invoke_without_command=True, short_help="List and compare runs.")
@log_dir_option
@click.pass_context
def runs(context: click.Context, log_dir: Path) -> None:
    """List the runs in a folder, the newest last; show and compare them.

    A folder of runs, such as that of several seeds, is one row: --log-dir runs/NAME lists what is in it.
    """
    if context.invoked_subcommand is not None:
        context.default_map = {name: {"log_dir": log_dir} for name in runs.commands}
        return
    from ue_rl.training.runs.listing import listed

    words = ("run", "task", "algorithm", "state", "when")
    table = table_of("run", "task", "algorithm", "env-steps", "return", "state", "when", left=words)
    found = listed(log_dir)
    for each in found:
        facts = [f"{each.runs} runs", "", "", ""]
        if not each.runs:
            if each.options is None:
                named = ["-", "-"]
            else:
                named = [each.options.task, each.options.algo]
            facts = [*named, f"{each.env_steps:,}", number(each.mean_return)]
        table.add_row(printable(each.path.name), *map(printable, facts), each.state, _when(each.at))
    screen = console()
    if not found:
        screen.print(f"there are no runs in {log_dir}", soft_wrap=True)
        return
    # A name is copied into other commands: the other columns are folded first, and nothing is where nobody looks on.
    table.columns[0].no_wrap = True
    if screen.is_terminal:
        width = None
    else:
        width = max(screen.width, _WIDE)
    screen.print(table, width=width)


@runs.command(short_help="Everything about a run.")
@run_argument()
@log_dir_option
def show(run: str, log_dir: Path) -> None:
    """Show what RUN came to, its options that are not the defaults, and its files."""
    from ue_rl.training.runs.comparing import changed
    from ue_rl.training.runs.listing import listed_run, options_of, outcome_of, run_named

    found = run_named(run, log_dir)
    row = listed_run(found)
    o = options_of(found)
    outcome = outcome_of(found)
    table = two_columns(printable(str(found.path)))
    table.add_row("state", f"{row.state}, {_when(row.at)}")
    table.add_row("task", printable(f"{o.task}, {o.algo}, {o.backend}"))
    table.add_row("env-steps", f"{row.env_steps:,} of {o.timesteps:,}")
    table.add_row("last 100 episodes", f"mean return {number(row.mean_return)}")
    if outcome.get("evaluation"):
        table.add_row("evaluation", "mean return {:.1f} +/- {:.1f}".format(*outcome["evaluation"]))
    for name, value in changed(o):
        table.add_row(printable(name), printable(value))
    names = ", ".join(sorted(path.name for path in found.checkpoints.glob("[0-9]*")))
    checkpoints = printable(names) or "none"
    table.add_row("checkpoints", checkpoints)
    files = (found.model, found.onnx, found.curves, found.log)
    table.add_row("files", ", ".join(path.name for path in files if path.exists()))
    console().print(table)


@runs.command(short_help="Options that differ, curves in one picture.")
@run_argument(-1)
@click.option("--chart", type=click.Path(path_type=Path), help="The picture, a PNG.  [default: LOG_DIR/compare.png]")
@log_dir_option
def compare(run: tuple[str, ...], log_dir: Path, chart: Path | None) -> None:
    """Show the options in which two runs or more differ, their returns, and draw their curves in one picture."""
    from ue_rl.training.runs.comparing import differences, draw
    from ue_rl.training.runs.listing import listed_run, run_named

    found = [run_named(name, log_dir) for name in run]
    if len(found) < 2:
        raise click.UsageError("name two runs or more")
    names = ["", *(printable(each.path.name) for each in found)]
    table = table_of(*names, left=names)
    rows = [listed_run(each) for each in found]
    table.add_row("state", *(row.state for row in rows))
    table.add_row("env-steps", *(f"{row.env_steps:,}" for row in rows))
    table.add_row("return", *(number(row.mean_return) for row in rows), end_section=True)
    for name, values in differences(found):
        table.add_row(*map(printable, (name, *values)))
    console().print(table)
    target = chart or log_dir / "compare.png"
    draw(found, target)
    console().print(printable(f"curves: {target}"), soft_wrap=True)
