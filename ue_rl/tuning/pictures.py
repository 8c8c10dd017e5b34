"""What a search has found, drawn: history.png and importance.png."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optuna
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from optuna.trial import TrialState

from ue_rl.system.durable import write_whole

_FEWEST = 4  # trials with a value of which importance says something


def draw(study: optuna.Study, folder: Path, title: str, unchanged: float | None) -> None:
    """Writes both pictures into `folder`, each where there is something to show.

    Args:
        unchanged: the value of the options as they are: a line to compare with.
    """
    trials = study.get_trials(deepcopy=False)
    done = [(trial.number, trial.value) for trial in trials if trial.state is TrialState.COMPLETE]
    pruned = [
        (trial.number, trial.intermediate_values[max(trial.intermediate_values)])
        for trial in trials
        if trial.state is TrialState.PRUNED and trial.intermediate_values
    ]
    if not done:
        return
    figure, axes = _figure(title)
    numbers, values = np.array(done, np.float64).T
    axes.plot(numbers, values, "o", label="trial")
    if pruned:
        axes.plot(*np.array(pruned, np.float64).T, "x", color="tab:gray", label="pruned, at its last return")
    axes.step(numbers, np.maximum.accumulate(values), where="post", color="tab:red", label="best so far")
    if unchanged is not None:
        axes.axhline(unchanged, linestyle="--", linewidth=1, color="black", label="options unchanged")
    axes.set_xlabel("trial")
    axes.set_ylabel("return")
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize="small")
    _save(figure, folder / "history.png")
    found = importances(study)
    if found:
        figure, axes = _figure(f"{title}: what the return depends on, by {len(done)} trials", left=0.3)
        names, shares = zip(*reversed(found.items()), strict=True)
        axes.barh(names, shares)
        axes.set_xlabel("importance (sum 1)")
        _save(figure, folder / "importance.png")


def importances(study: optuna.Study) -> dict[str, float]:
    """Each searched hyperparameter's share in what the trials' values differ by, the greatest first; {} where unknown.

    By PED-ANOVA, over the trials that drew all of them and were not pruned.
    """
    drawn = [trial for trial in study.get_trials(states=(TrialState.COMPLETE,)) if trial.params]
    if len(drawn) < _FEWEST or len({trial.value for trial in drawn}) < 2:
        return {}
    copy = optuna.create_study(direction="maximize")
    copy.add_trials(drawn)
    return optuna.importance.get_param_importances(copy, evaluator=optuna.importance.PedAnovaImportanceEvaluator())


def _figure(title: str, left: float = 0.1) -> tuple[Figure, Any]:
    figure = Figure(figsize=(8, 5))
    FigureCanvasAgg(figure)
    axes = figure.subplots(gridspec_kw={"left": left, "right": 0.97, "bottom": 0.11, "top": 0.93})
    axes.set_title(title, fontsize="medium")
    return figure, axes


def _save(figure: Figure, path: Path) -> None:
    write_whole(path, lambda half: figure.savefig(half, dpi=110, format="png"))
