"""`ue-rl doctor`: a table of what was looked at, with a cure for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ue_rl.cli import completion
from ue_rl.cli.common import console, engine_url, port_option, timeout_option
from ue_rl.devtools.doctor import Outcome, Row, diagnose
from ue_rl.system.errors import printable

_COLOURS = {Outcome.OK: "green", Outcome.WARN: "yellow", Outcome.FAIL: "bold red"}


@click.command(short_help="Say what is wrong with this machine.")
@click.argument("url", required=False, metavar="[URL]", shell_complete=completion.url)
@port_option()
@click.option("--log-dir", type=click.Path(path_type=Path), default="runs", show_default=True,
              help="The folder that holds all runs.")  # fmt: skip
@timeout_option(5.0, "How long the engine may take.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object and nothing else.")
def doctor(url: str | None, port: int | None, log_dir: Path, timeout: float, as_json: bool) -> int:
    """Look at this machine, and at the way to an engine where a URL is given; say what is wrong, and what to do.

    The exit code is 1 where something FAILs, else 0. URL is an engine's, as for ue-rl check.
    """
    address = engine_url(url, port) if (url, port) != (None, None) else None
    rows = list(diagnose(address, log_dir, timeout))
    failed = [row for row in rows if row.outcome is Outcome.FAIL]
    if as_json:
        click.echo(json.dumps({"exit_code": int(bool(failed)), "rows": [row.as_dict() for row in rows]}))
    else:
        _show(rows)
    return int(bool(failed))


def _show(rows: list[Row]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False)
    table.add_column()
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for row in rows:
        said = f"{row.text}\n{row.cure} [{row.fault}]" if row.fault else row.text
        table.add_row(Text(row.outcome.value, _COLOURS[row.outcome]), row.check, Text(printable(said, lines=True)))
    screen = console()
    screen.print(table)
    counts = {outcome: sum(row.outcome is outcome for row in rows) for outcome in Outcome}
    screen.print(", ".join(f"{count} {outcome.value}" for outcome, count in counts.items()))
