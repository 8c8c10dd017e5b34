"""Writes the tables of docs/performance.md from what was measured last: python benchmarks/tables.py

benchmarks/overlap.json     `bench_overlap.py --json benchmarks/overlap.json` writes it
benchmarks/sessions.json    `bench_sessions.py --json benchmarks/sessions.json`; what OpenRA-RL says of itself is kept
benchmarks/learner.json     `bench_learner.py --json benchmarks/learner.json`

Each holds the date, the machine and the versions beside its figures.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parent / "docs" / "performance.md"
OVERLAP = FOLDER / "overlap.json"
SESSIONS = FOLDER / "sessions.json"
LEARNER = FOLDER / "learner.json"


def measured_here(*packages: str) -> dict[str, Any]:
    """Date, machine and versions, for the head of a JSON file."""
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}",
        "versions": {"Python": platform.python_version(), **{name: version(name) for name in packages}},
    }


def refuse_a_part(part: object, file: Path | None) -> None:
    """Ends the program where a part of a table, if one was asked for, would replace a file."""
    if part and file is not None and file.exists():
        raise SystemExit(f"{file} is there, and may hold more than the part that was asked for: give another --json")


def grouped(value: float) -> str:
    """A number with a blank between groups of three digits."""
    return f"{value:,.0f}".replace(",", " ")


def overlap(held: dict[str, Any]) -> list[str]:
    """The table of runs with and without --overlap, one row for each case, both carriers in a cell."""
    lines = ["| algorithm | the engine's step | the policy | without | with / without |", "|---|---|---|---|---|"]
    for case in held["cases"]:
        ticks = "nothing"
        if case["engine_ms"]:
            ticks = f"{case['engine_ms']:g} ms, half for half of the envs"
            if case["shared"]:
                ticks = f"{case['engine_ms']:g} ms, as long for half of them"
            elif not case["policy_ms"]:
                ticks = f"{case['engine_ms']:g} ms"
        thinks = f"{case['policy_ms']:g} ms" if case["policy_ms"] else "as is"
        without = ", ".join(grouped(one["env-steps/s"]) for one in case["carriers"].values())
        times = ", ".join(f"{one['times']:.2f}" for one in case["carriers"].values())
        lines.append(f"| {case['algorithm']} | {ticks} | {thinks} | {without} | {times} |")
    return lines


def sessions(held: dict[str, Any]) -> list[str]:
    """The table of many sessions in one process, beside what OpenRA-RL says of itself."""
    found, theirs = held["figures"], held["OpenRA-RL"]
    rows = (
        ("ticks a second, all sessions", ("one VectorBridge", "a bridge a session"), _ticks, "ticks"),
        (
            "the same game in a loop without sessions, on one core",
            ("the game alone, all rows", "the game alone, one row"),
            _ticks,
            "alone",
        ),
        ("a reset, p50 and p99", ("reset", None), _milliseconds, "reset"),
        (
            "memory above that of one session",
            ("memory, one VectorBridge", "memory, a bridge a session"),
            _megabytes,
            "memory",
        ),
        (
            "25 ticks a second, how late by p50 and p99",
            ("25 Hz, one VectorBridge", "25 Hz, a bridge a session"),
            _milliseconds,
            "late",
        ),
    )
    lines = ["| | one `VectorBridge` | a bridge for each session | OpenRA-RL |", "|---|---:|---:|---:|"]
    for what, names, shown, said in rows:
        cells = ["" if name is None else shown(found[name]) for name in names]
        lines.append(re.sub(r"  +", " ", f"| {what} | {cells[0]} | {cells[1]} | {theirs.get(said, '')} |"))
    return lines


def _ticks(figures: dict[str, float]) -> str:
    return grouped(float(f"{figures['ticks/s']:.4g}"))


def _milliseconds(figures: dict[str, float]) -> str:
    return f"{figures['p50 ms']:.1f} and {figures['p99 ms']:.1f} ms"


def _megabytes(figures: dict[str, float]) -> str:
    return f"{figures['MB above one session']:.1f} MB"


def learner(held: dict[str, Any]) -> list[str]:
    """The table of learners: times Stable-Baselines3's frames per second."""
    lines = ["| learner | 16 CartPoles, 64-64 | 64 envs of 64 numbers, 256-256 |", "|---|---:|---:|"]
    for who in held["cartpole"]["ratios"]:
        cells = " | ".join(f"{held[task]['ratios'][who]:.2f}" for task in ("cartpole", "wide"))
        lines.append(f"| {who} | {cells} |")
    return lines


def tables() -> list[list[str]]:
    """Each table of the page, as its lines."""
    return [
        overlap(json.loads(OVERLAP.read_text("utf-8"))),
        sessions(json.loads(SESSIONS.read_text("utf-8"))),
        learner(json.loads(LEARNER.read_text("utf-8"))),
    ]


def written(page: str) -> str:
    """The page with its tables anew; a table is found by its first line.

    Raises:
        LookupError: a table is not on the page.
    """
    lines = page.splitlines()
    for table in tables():
        if table[0] not in lines:
            raise LookupError(f"the page has no table that begins with {table[0]}")
        begin = lines.index(table[0])
        end = begin
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        lines[begin:end] = table
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
