"""Runs beside each other: the options that differ, and their curves in one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ue_rl.system.errors import ConfigurationError, printable
from ue_rl.training.directory import RunDirectory
from ue_rl.training.hyperparameters import tuned_for
from ue_rl.training.options import ROWS, TrainOptions, plain
from ue_rl.training.pictures import add_legend, new_figure, save
from ue_rl.training.reading import EpisodeTable
from ue_rl.training.runs.listing import options_of

NONE = "-"  # an option that one of them does not have
_PLACE = ("log_dir", "run_id")


def differences(runs: Sequence[RunDirectory]) -> list[tuple[str, list[str]]]:
    """(option, its value in each run) of those that differ, parts of a mapping one by one.

    Raises:
        ConfigurationError: the config of one cannot be read.
    """
    found = [_flat(options_of(run)) for run in runs]
    names = dict.fromkeys(name for each in found for name in each)
    rows = [(name, [each.get(name, NONE) for each in found]) for name in names]
    return [(name, [str(value) for value in values]) for name, values in rows if any(v != values[0] for v in values)]


def changed(options: TrainOptions) -> list[tuple[str, str]]:
    """(option, value) of those that are not as `ue-rl train` has them by default."""
    before = _flat(TrainOptions())
    return [(name, str(value)) for name, value in _flat(options).items() if before.get(name, NONE) != value]


def _flat(options: TrainOptions) -> dict[str, Any]:
    """Every option by name, those in mappings by NAME.KEY; hyperparameters with those that are known for the task."""
    values = {name: plain(getattr(options, name)) for name in ROWS if name not in _PLACE}
    values["hyperparameters"] = plain(tuned_for(options, resolved=False))
    flat: dict[str, Any] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, part in value.items():
                add(f"{name}.{key}", part)
        else:
            flat[name] = value

    for name, value in values.items():
        add(name, value)
    return flat


def draw(runs: Sequence[RunDirectory], target: Path) -> None:
    """Writes the curves of all runs, mean returns over env-steps, as a PNG.

    Raises:
        ConfigurationError: no run has an episode, or `target` cannot be written.
    """
    curves = [(printable(run.path.name), EpisodeTable(run.episodes).follow().curve()) for run in runs]
    if not any(len(steps) for _, (steps, _) in curves):
        raise ConfigurationError("none of these runs has finished an episode", field="run")
    figure, axes = new_figure()
    for name, (steps, means) in curves:
        axes.plot(steps, means, linewidth=1.5, label=name)
    axes.set_ylabel("mean return of the last episodes")
    add_legend(figure, axes)
    try:
        save(figure, target)
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written", field="chart", got=str(error)) from error
