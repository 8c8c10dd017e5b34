"""curves.png: the return of every episode over env-steps, and their moving mean."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np


def draw_curves(episodes: Path, target: Path, title: str) -> None:
    """Draws the picture from episodes.csv; none where there are no episodes yet."""
    with episodes.open(newline="") as file:
        rows = np.array(list(csv.reader(file))[1:], np.float64)
    if not len(rows):
        return
    steps, returns, lengths = rows.T[:3]
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6))
    FigureCanvasAgg(figure)
    # a constrained layout draws all twice, to find about these margins: half of the time of a short run's end
    margins = {"left": 0.12, "right": 0.98, "bottom": 0.09, "top": 0.94, "hspace": 0.08}
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1], gridspec_kw=margins)
    window = max(1, min(100, len(returns) // 10))
    for axes, values, name, colour in ((upper, returns, "return", "tab:blue"), (lower, lengths, "length", "tab:green")):
        axes.plot(steps, values, ".", markersize=3, alpha=0.25, color=colour, label=f"episode {name}")
        means = np.convolve(values, np.ones(window) / window, "valid")
        axes.plot(steps[window - 1 :], means, color=colour, linewidth=2, label=f"mean of {window} episodes")
        axes.set_ylabel(f"episode {name}")
        axes.grid(alpha=0.3)
    upper.legend(loc="lower right")  # where returns that rise are not; to look for the best place takes long
    upper.set_title(title)
    lower.set_xlabel("env-steps")
    figure.savefig(target, dpi=110)
