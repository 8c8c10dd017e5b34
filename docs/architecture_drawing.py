"""Draws docs/architecture.svg from the imports of the library: python docs/architecture_drawing.py

A box is a wing, an arrow says who imports whom; what a wing reaches through another has no arrow. WINGS stands in the
order that setup.cfg holds as a contract, from the ground to the annex.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/architecture.svg"
BOX_W, BOX_H, GAP_X, GAP_Y, PAD = 190, 52, 18, 44, 16


class Wing(NamedTuple):
    """A part of the library.

    Attributes:
        folder: in the repository. what: it is for. floor: from the ground, 0. fill: the colour of its box.
    """

    folder: str
    what: str
    floor: int
    fill: str

    @property
    def name(self) -> str:
        """The package that it is imported as."""
        return "ue_rl." + self.folder.rstrip("/").removeprefix("ue_rl/")


WINGS = (
    Wing("ue_rl/system/", "processes, files, errors, trust in files", 0, "#e8e3d9"),
    Wing("ue_rl/protocol/", "what both sides say: no game, no trainer", 1, "#e8e3d9"),
    Wing("connections/", "the trainer's side", 2, "#dbe9f6"),
    Wing("bridges/", "the engine's side", 2, "#dbe9f6"),
    Wing("inference/", "a trained policy in the trainer's place", 2, "#dbe9f6"),
    Wing("ue_rl/envs/", "Stable-Baselines3, Gymnasium, PettingZoo", 3, "#ffffff"),
    Wing("ue_rl/devtools/", "check, testing, traces, doctor, metrics", 4, "#ffffff"),
    Wing("ue_rl/training/", "a run, saved, resumed, compared", 5, "#ffffff"),
    Wing("ue_rl/cli/", "the commands", 6, "#ffffff"),
    Wing("ue_rl/plugins/", "sessions, RLlib, arena, MuJoCo, web pages", 7, "#f6e7d3"),
)


def statements_that_run(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements but those under `if TYPE_CHECKING`, with their `except` and `case`; no expression holds one."""
    waiting = [tree]
    while waiting:
        within = waiting.pop()
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            for node in getattr(within, block, []):
                if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                    continue
                yield node
                waiting.append(node)


def modules(file: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in it."""
    for node in statements_that_run(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def imports(modules_of: Callable[[Path], Iterable[str]] = modules) -> dict[Wing, set[Wing]]:
    """Which wings a wing imports; `modules_of`: the modules that a file imports."""
    seen: dict[Wing, set[Wing]] = {wing: set() for wing in WINGS}
    for wing in WINGS:
        for file in (ROOT / wing.folder).rglob("*.py"):
            for module in modules_of(file):
                seen[wing].update(other for other in WINGS if f"{module}.".startswith(f"{other.name}."))
    return {wing: others - {wing} for wing, others in seen.items()}


def reached(wing: Wing, seen: dict[Wing, set[Wing]]) -> set[Wing]:
    """All that a wing imports, and what those import in turn."""
    return seen[wing].union(*(reached(other, seen) for other in seen[wing]))


def lines(text: str, width: int = 30) -> list[str]:
    """A text in lines of less than `width` characters."""
    broken = [""]
    for word in text.split():
        if len(broken[-1]) + len(word) >= width and broken[-1]:
            broken.append("")
        broken[-1] = f"{broken[-1]} {word}".strip()
    return broken


def drawing(seen: dict[Wing, set[Wing]] | None = None) -> str:
    """The whole picture as SVG; `seen`: what `imports` says, where it is known."""
    if seen is None:
        seen = imports()
    floors: dict[int, list[Wing]] = {}
    for wing in WINGS:
        floors.setdefault(wing.floor, []).append(wing)
    width = max(map(len, floors.values())) * (BOX_W + GAP_X) - GAP_X + 2 * PAD
    height = len(floors) * (BOX_H + GAP_Y) - GAP_Y + 2 * PAD
    places: dict[Wing, tuple[float, float]] = {}
    for floor, wings in floors.items():
        span = len(wings) * (BOX_W + GAP_X) - GAP_X
        for slot, wing in enumerate(wings):
            left = (width - span) / 2 + slot * (BOX_W + GAP_X)
            places[wing] = (left, height - PAD - BOX_H - floor * (BOX_H + GAP_Y))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,1 L7,4 L0,7" fill="none" stroke="#7a7a7a"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fbfaf7"/>',
    ]
    for wing, others in seen.items():
        direct = others - set().union(*(reached(other, seen) for other in others))
        for other in sorted(direct):
            (x, y), (u, v) = places[wing], places[other]
            x0, y0, x1, y1 = x + BOX_W / 2, y + BOX_H, u + BOX_W / 2, v
            middle = (y0 + y1) / 2
            out.append(
                f'<path d="M{x0:g},{y0:g} C{x0:g},{middle:g} {x1:g},{middle:g} {x1:g},{y1:g}" fill="none" '
                'stroke="#7a7a7a" marker-end="url(#a)"/>'
            )
    for wing, (x, y) in places.items():
        out.append(
            f'<rect x="{x:g}" y="{y:g}" width="{BOX_W}" height="{BOX_H}" rx="6" fill="{wing.fill}" stroke="#4a4a4a"/>'
        )
        out.append(f'<text x="{x + 9:g}" y="{y + 17:g}" font-size="13" font-weight="bold">{escape(wing.folder)}</text>')
        for line, text in enumerate(lines(wing.what)):
            out.append(f'<text x="{x + 9:g}" y="{y + 32 + 12 * line:g}" font-size="10.5">{escape(text)}</text>')
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawing(), "utf-8")
