"""`ue-rl doctor`: what is installed, whether an engine can be reached, and a cure for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ue_rl.cli import completion
from ue_rl.cli.common import console, engine_url, port_option, timeout_option
from ue_rl.devtools.doctor import DoctorRow, DoctorVerdict, diagnose
from ue_rl.system.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {DoctorVerdict.OK: "green", DoctorVerdict.WARN: "yellow", DoctorVerdict.FAIL: "bold red"}


@click.command(short_help="Say what is installed, and whether an engine can be reached.")
@click.argument("url", required=False, metavar="[URL]", shell_complete=completion.url)
@port_option()
@timeout_option(5.0, "How long the engine may take.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object and nothing else.")
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write the text into FILE, too.")
def doctor(url: str | None, port: int | None, timeout: float, as_json: bool, output: Path | None) -> int:
    """Show versions, extras, compiled modules and shared memory; where a URL is given, dial the engine. A cure for each
    row that is not OK.

    The exit code is 1 where something FAILs, else 0. URL is an engine's, as for ue-rl check.
    """
    address = None
    if (url, port) != (None, None):
        address = engine_url(url, port)
    rows = list(diagnose(address, timeout))
    failed = [row for row in rows if row.outcome is DoctorVerdict.FAIL]
    if as_json:
        click.echo(json.dumps({"exit_code": int(bool(failed)), "rows": [row.as_dict() for row in rows]}))
    else:
        _show(rows, console())
    if output is not None:
        _write(rows, output)
    return int(bool(failed))


def _write(rows: list[DoctorRow], path: Path) -> None:
    from rich.console import Console

    try:
        with path.open("w", encoding="utf-8") as file:
            _show(rows, Console(file=file, width=110, markup=False, emoji=False))
    except OSError as error:
        raise click.FileError(str(path), error.strerror) from error


def _show(rows: list[DoctorRow], screen: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False)
    table.add_column()
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for row in rows:
        if row.fault:
            said = f"{row.text}\n{row.cure} [{row.fault}]"
        else:
            said = row.text
        table.add_row(Text(row.outcome.value, _COLOURS[row.outcome]), row.check, Text(printable(said, lines=True)))
    screen.print(table)
    counts = {outcome: sum(row.outcome is outcome for row in rows) for outcome in DoctorVerdict}
    screen.print(", ".join(f"{count} {outcome.value}" for outcome, count in counts.items()))
