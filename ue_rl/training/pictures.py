"""Curves of returns over env-steps; matplotlib is imported when one is drawn."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ue_rl.system.durable import write_whole
from ue_rl.training.reading import EpisodeTable, running_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_CHARACTERS = 100  # of small text beside each other, in the figure's width
_LINE = 0.2  # inches


def new_figure(title: str = "", *, rows: Sequence[int] = (1,), **margins: float) -> tuple[Figure, Any]:
    """A figure of 8 inches' width, and its axes, [len(rows)] where there are several, one above the other.

    Args:
        rows: the heights of the axes, relative to each other. margins: left, right, top .., as shares of the figure: a
            layout that finds them by itself draws all twice, half of the time of a short run's end.
    """
    with without_windows():
        from matplotlib.figure import Figure

    height = 6
    if len(rows) == 1:
        height = 5
    figure = Figure(figsize=(8, height))
    places = {"left": 0.1, "right": 0.98, "bottom": 0.11, "top": 0.93, **margins}
    axes = figure.subplots(len(rows), 1, sharex=True, height_ratios=rows)
    figure.subplots_adjust(**places)
    first, last = np.atleast_1d(axes)[[0, -1]]
    first.set_title(title, fontsize="medium")
    last.set_xlabel("env-steps")
    for each in np.atleast_1d(axes):
        each.grid(alpha=0.3)
    return figure, axes


def add_legend(figure: Figure, axes: Any) -> None:
    """Of one axes, or of all, [n]: under them, where it covers no curve. The figure grows by it."""
    handles: list[Any] = []
    labels: list[str] = []
    for each in np.atleast_1d(axes):
        more_handles, more_labels = each.get_legend_handles_labels()
        handles += more_handles
        labels += more_labels
    longest = max(map(len, labels), default=0)
    columns = max(1, min(len(labels), _CHARACTERS // (longest + 8)))  # 8: the line beside a label, and the gap
    before = figure.get_figheight()
    after = before + _LINE * -(-len(labels) // columns) + _LINE
    places = figure.subplotpars
    figure.set_figheight(after)
    figure.subplots_adjust(
        bottom=1 - (1 - places.bottom) * before / after,
        top=1 - (1 - places.top) * before / after,
    )
    figure.legend(handles, labels, loc="lower center", ncol=columns, fontsize="small", frameon=False)


@contextmanager
def without_windows() -> Iterator[None]:
    """Around the first import of matplotlib: MPLBACKEND says where windows are drawn, and nothing here opens one.

    A notebook hands its own on to what it starts. Where that one's package is missing, matplotlib cannot be imported.
    """
    before = os.environ.get("MPLBACKEND")
    if before is None or "matplotlib" in sys.modules:
        yield
        return
    os.environ["MPLBACKEND"] = "agg"
    try:
        yield
    finally:
        os.environ["MPLBACKEND"] = before


def save(figure: Figure, path: Path) -> None:
    """As a PNG, whole or not at all."""
    write_whole(path, lambda half: figure.savefig(half, dpi=110, format="png"))


def draw_curves(episodes: Path, target: Path, title: str) -> None:
    """Draws curves.png from episodes.csv; none where there are no episodes yet."""
    table = EpisodeTable(episodes).follow()
    if not table.returns:
        return
    figure, both = new_figure(title, rows=(3, 1), left=0.12, bottom=0.09, top=0.94, hspace=0.08)
    series = (table.returns, "return", "tab:blue"), (table.lengths, "length", "tab:green")
    for axes, (values, name, colour) in zip(both, series, strict=True):
        axes.plot(table.steps, values, ".", markersize=3, alpha=0.25, color=colour, label=f"episode {name}")
        means, window = running_mean(values)
        label = f"mean of {window} episodes"
        axes.plot(table.steps[window - 1 :], means, color=colour, linewidth=2, label=label)
        axes.set_ylabel(f"episode {name}")
    add_legend(figure, both)
    save(figure, target)
