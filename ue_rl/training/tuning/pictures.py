"""What a search has found, drawn: history.png and importance.png."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import optuna
from optuna.trial import TrialState

from ue_rl.training.pictures import add_legend, new_figure, save, without_windows

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
    with without_windows():
        from matplotlib.ticker import MaxNLocator

    figure, axes = new_figure(title)
    numbers, values = np.array(done, np.float64).T
    axes.plot(numbers, values, "o", label="trial")
    if pruned:
        axes.plot(*np.array(pruned, np.float64).T, "x", color="tab:gray", label="pruned, at its last return")
    axes.step(numbers, np.maximum.accumulate(values), where="post", color="tab:red", label="best so far")
    if unchanged is not None:
        axes.axhline(unchanged, linestyle="--", linewidth=1, color="black", label="options unchanged")
    axes.set_xlabel("trial")
    axes.set_ylabel("return")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_legend(figure, axes)
    save(figure, folder / "history.png")
    found = importances(study)
    if found:
        figure, axes = new_figure(f"{title}: what the return depends on, by {len(done)} trials", left=0.3)
        names, shares = zip(*reversed(found.items()), strict=True)
        axes.barh(names, shares)
        axes.set_xlabel("importance (sum 1)")
        axes.grid(visible=False)
        save(figure, folder / "importance.png")


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
