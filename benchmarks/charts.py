"""Draws the charts of docs/performance.md from docs/performance/figures.json: python benchmarks/charts.py

A benchmark that is run again changes figures.json by hand; `bars` holds what is drawn, group by group.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "performance"
WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 760, 220, 100, 18, 14, 62
COLOURS = ("#90a4ae", "#1e88e5")  # of two bars in a group: what one compares with, what it is about


def drawing(chart: dict[str, Any]) -> str:
    """One chart, as SVG."""
    groups: dict[str, dict[str, float]] = chart["bars"]
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    length, ticks = scale(chart, max(max(bars.values()) for bars in groups.values()))
    shapes, y = [], HEAD + (22 if len(names) > 1 else 0)
    top = y
    for group, bars in groups.items():
        middle = y + len(bars) * BAR / 2
        shapes.append(text(LEFT - 10, middle + 5, group, anchor="end"))
        for name, value in bars.items():
            colour = COLOURS[names.index(name)] if len(names) > 1 else COLOURS[1]
            wide = length(value)
            shapes.append(f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{BAR - 2}" fill="{colour}"/>')
            shapes.append(text(LEFT + wide + 6, y + 13, short(value), size=12))
            y += BAR
        y += GAP
    lines = [
        f'<path d="M{LEFT + length(tick):.1f},{top - 4} V{y - GAP + 4}" stroke="#cfd8dc"/>'
        + text(LEFT + length(tick), y + 6, short(tick), "middle", 11, "#546e7a")
        for tick in ticks
    ]
    height = y + 22
    words = [text(16, 26, chart["title"], size=16, weight=600), text(16, 46, chart["note"], size=12, colour="#546e7a")]
    at = LEFT
    for name, colour in zip(names if len(names) > 1 else [], COLOURS, strict=False):
        words.append(
            f'<rect x="{at}" y="58" width="12" height="12" fill="{colour}"/>' + text(at + 18, 69, name, size=12)
        )
        at += 40 + 7 * len(name)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="14">\n<title>{escape(chart["title"])}</title>\n'
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>\n'
        + "\n".join([*lines, *shapes, *words])
        + "\n</svg>\n"
    )


def scale(chart: dict[str, Any], most: float) -> tuple[Callable[[float], float], list[float]]:
    """From a value to its length, and where lines are drawn."""
    room = WIDTH - LEFT - RIGHT
    if chart["scale"] == "log":
        least = min(min(bars.values()) for bars in chart["bars"].values())
        low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
        return lambda value: room * (math.log10(value) - low) / (high - low), [10**n for n in range(low, high + 1)]
    step = next(s for n in range(12) for s in (10**n, 2 * 10**n, 5 * 10**n) if most / s <= 5)
    return lambda value: room * value / most, [step * n for n in range(int(most // step) + 1)]


def short(value: float) -> str:
    """27 500 as 27.5 k."""
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:g}"


def text(
    x: float, y: float, words: str, anchor: str = "start", size: int = 14, colour: str = "#263238", weight: int = 400
) -> str:
    """One line of it."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
        f'fill="{colour}">{escape(words)}</text>'
    )


def charts() -> dict[str, str]:
    """File name and content of each."""
    figures = json.loads((FOLDER / "figures.json").read_text("utf-8"))
    return {f"{name}.svg": drawing(chart) for name, chart in figures.items()}


if __name__ == "__main__":
    for name, content in charts().items():
        (FOLDER / name).write_text(content, "utf-8")
