"""`ue-rl trace show`: what a trace holds, as a table and message by message."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import click

from ue_rl.cli.common import console, two_columns
from ue_rl.system.errors import printable


@click.command(short_help="Show what a trace holds.")
@click.argument("what", metavar="show", type=click.Choice(["show"]))
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--messages", type=click.IntRange(0), default=20, show_default=True, help="How many to show.")
@click.option("--skip", type=click.IntRange(0), default=0, show_default=True, help="How many to leave out before.")
def trace(what: str, file: Path, messages: int, skip: int) -> None:
    """Show the header of FILE, which --trace has written, what it holds, and its messages."""
    from ue_rl.devtools.recording import Trace

    found = Trace(file)
    counts: Counter[str] = Counter()
    shown: list[tuple[str, str, str]] = []
    seconds = 0.0
    for number, message in enumerate(found):
        counts[message.kind.name.lower()] += 1
        seconds = message.at
        if skip <= number < skip + messages:
            shown.append((f"{message.at:.6f}", _ARROWS.get(message.kind.name, ""), _said(message)))
    table = two_columns(str(file))
    if found.header["handshake"]:
        spec = found.spec
        sizes = f"{spec.num_envs} envs, {spec.obs_size} -> {spec.act_size} numbers, {spec.env_type.value}"
        table.add_row("engine", sizes)
    for name, value in found.header["about"].items():
        table.add_row(printable(name), printable(str(value))[:200])
    where = f"{found.header['began']}, on the {found.header['side']}'s side, {seconds:.1f} s"
    table.add_row("recorded", printable(where))
    table.add_row("versions", printable(", ".join(f"{name} {text}" for name, text in found.header["versions"].items())))
    table.add_row("messages", ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none")
    beginning = "dropped: more was recorded than the trace could take"
    if found.begins:
        beginning = "whole"
    table.add_row("beginning", beginning)
    end = found.end
    if not end:
        end = "whole"
    table.add_row("end", end)
    screen = console()
    screen.print(table)
    for row in shown:
        screen.print("  ".join(row), soft_wrap=True)


_ARROWS = {
    **dict.fromkeys(("STEP", "ASK", "CALL", "EPISODE", "ACTION"), "->"),
    **dict.fromkeys(("ANSWER", "PART", "REPLY", "TICKS"), "<-"),
}


def _said(message: Any) -> str:
    envs = "all envs"
    if message.envs is not None:
        envs = f"envs {_few(message.envs)}"
    arrays = (f"{name} {_few(array.ravel())}" for name, array in message.arrays.items() if array.size)
    facts = (f"{name} {value}" for name, value in message.facts.items() if value and name not in ("steps", "envs"))
    first = []
    if message.arrays:
        first = [envs]
    parts = [*first, *arrays, *facts]
    return printable(f"{message.kind.name.lower():8} {', '.join(parts)}")[:400]


def _few(numbers: Any) -> str:
    some = list(islice(numbers.tolist(), 6))
    more = ""
    if len(numbers) > len(some):
        more = f" .. {len(numbers)}"
    return f"[{', '.join(f'{x:.6g}' for x in some)}{more}]"
