"""Draws docs/architecture.svg from tests/places.py: python docs/architecture_drawing.py

A box is a place, an arrow says who imports whom. A place stands one floor above the highest that it sees. What all see
(the ground) and the places that see all (the commands) have no arrows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.places import GROUND, ROOMS, ROWS, Place  # noqa: E402  (docs/ is no package)

PICTURE = ROOT / "docs/architecture.svg"
BOX_W, BOX_H, GAP_X, GAP_Y, PAD = 178, 52, 18, 44, 16
FILL = {"ground": "#e8e3d9", "room": "#dbe9f6", "core": "#ffffff", "top": "#f6e7d3"}


def room(name: str) -> str:
    """A place's row in the picture: subfolders of a room are drawn in it."""
    parts = name.split("/")
    return parts[0] + "/" if f"{parts[0]}/" in ROOMS else "/".join(parts[:2]) + ("/" if parts[2:] else "")


def boxes() -> dict[str, Place]:
    """The places that are drawn, by name."""
    return {row.name: row for row in ROWS if room(row.name) == row.name and not row.name.startswith("ue_rl/__")}


def arrows() -> dict[str, set[str]]:
    """Who sees whom, room by room, without the ground and without what one sees through another."""
    seen: dict[str, set[str]] = {name: set() for name in boxes()}
    for row in ROWS:
        if room(row.name) in seen and row.sees != "*" and row.name not in GROUND:
            seen[room(row.name)] |= {room(other) for other in row.may_see() - GROUND} & seen.keys() - {room(row.name)}
    return seen


def through(name: str, seen: dict[str, set[str]]) -> set[str]:
    """All that a place reaches over others."""
    return set().union(*({other} | through(other, seen) for other in seen[name])) if seen[name] else set()


def floors(seen: dict[str, set[str]]) -> list[list[str]]:
    """The names on each floor, the ground first."""
    level: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in level:
            level[name] = 1 + max((height(other) for other in seen[name]), default=0)
        return level[name]

    for name in seen:
        height(name)
    top = max(level.values()) + 1
    rows: list[list[str]] = [[] for _ in range(top + 1)]
    for name, row in boxes().items():
        rows[0 if name in GROUND else top if row.sees == "*" else level[name]].append(name)
    return [row for row in rows if row]


def kind(name: str) -> str:
    """Which colour a box has."""
    if name in GROUND:
        return "ground"
    if name in ROOMS:
        return "room"
    return "top" if name in ("ue_rl/cli/", "ue_rl/devtools/testing/", "ue_rl/envs/connect.py") else "core"


def words(text: str, width: int = 27) -> list[str]:
    """A text in lines of less than `width` characters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def drawing() -> str:
    """The whole picture as SVG."""
    seen = arrows()
    rows = floors(seen)
    width = max(map(len, rows)) * (BOX_W + GAP_X) - GAP_X + 2 * PAD
    height = len(rows) * (BOX_H + GAP_Y) - GAP_Y + 2 * PAD
    at: dict[str, tuple[float, float]] = {}
    for floor, names in reversed(list(enumerate(rows))):  # from the top: each below those that see it
        above = {name: [at[who][0] for who in at if name in seen[who]] or [width / 2] for name in names}
        if floor:
            names.sort(key=lambda name: sum(above[name]) / len(above[name]))
        span = len(names) * (BOX_W + GAP_X) - GAP_X
        for slot, name in enumerate(names):
            left = (width - span) / 2 + slot * (BOX_W + GAP_X)
            at[name] = (left, height - PAD - BOX_H - floor * (BOX_H + GAP_Y))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,1 L7,4 L0,7" fill="none" stroke="#7a7a7a"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fbfaf7"/>',
    ]
    for name, others in seen.items():
        direct = others - set().union(*(through(other, seen) for other in others)) if others else set()
        for other in sorted(direct):
            (x, y), (u, v) = at[name], at[other]
            x0, y0, x1, y1 = x + BOX_W / 2, y + BOX_H, u + BOX_W / 2, v
            mid = (y0 + y1) / 2
            out.append(
                f'<path d="M{x0:g},{y0:g} C{x0:g},{mid:g} {x1:g},{mid:g} {x1:g},{y1:g}" fill="none" '
                'stroke="#7a7a7a" marker-end="url(#a)"/>'
            )
    for name, (x, y) in at.items():
        out.append(
            f'<rect x="{x:g}" y="{y:g}" width="{BOX_W}" height="{BOX_H}" rx="6" fill="{FILL[kind(name)]}" '
            'stroke="#4a4a4a"/>'
        )
        lines = words(boxes()[name].what)
        out.append(f'<text x="{x + 9:g}" y="{y + 17:g}" font-size="13" font-weight="bold">{escape(name)}</text>')
        for line, text in enumerate(lines):
            out.append(f'<text x="{x + 9:g}" y="{y + 32 + 12 * line:g}" font-size="10.5">{escape(text)}</text>')
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawing(), "utf-8")
