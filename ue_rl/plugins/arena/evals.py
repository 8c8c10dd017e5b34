"""Evals: behaviours side by side on the same episodes, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ue_rl.plugins.arena.arena import AgentArena
from ue_rl.plugins.arena.behaviors import AgentBehavior
from ue_rl.plugins.arena.player import ArenaEpisode, Playable
from ue_rl.system.lazy import named_if_missing

_RESAMPLES = 2000


@dataclass(frozen=True)
class Score:
    """What one behaviour earned.

    Attributes:
        label: of the behaviour. mean: return of an episode, the mean over its agents.
        low, high: 95 % confidence interval of `mean`, by bootstrap over episodes.
        success: share of episodes that succeeded. metrics: means.
        seconds, tokens: for each decision. failed: share of decisions that came to nothing.
    """

    label: str
    episodes: int
    mean: float
    low: float
    high: float
    success: float
    metrics: dict[str, float]
    seconds: float
    tokens: float
    failed: float

    @classmethod
    def of(cls, label: str, episodes: Sequence[ArenaEpisode]) -> Score:
        """Of the episodes that were played."""
        scores = np.array([episode.score for episode in episodes])
        low, high = interval(scores)
        decisions = max(1, sum(episode.decisions for episode in episodes))
        return cls(
            label,
            len(episodes),
            float(scores.mean()),
            low,
            high,
            float(np.mean([e.success for e in episodes])),
            {name: float(np.mean([e.metrics[name] for e in episodes])) for name in episodes[0].metrics},
            sum(e.seconds for e in episodes) / decisions,
            sum(e.tokens for e in episodes) / decisions,
            sum(sum(e.codes.values()) for e in episodes) / decisions,
        )


def interval(values: Any) -> tuple[float, float]:
    """95 % confidence interval of the mean of `values`, by bootstrap; always the same for the same values."""
    values = np.asarray(values, float)
    drawn = np.random.default_rng(0).integers(0, len(values), (_RESAMPLES, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def evaluate(
    game: Callable[[], Playable],
    behaviors: Mapping[str, Callable[[], Mapping[str, AgentBehavior]]],
    *,
    episodes: int = 10,
    seeds: Sequence[int] = (0,),
    deadline: float | None = None,
) -> list[Score]:
    """Each behaviour plays the same episodes: `episodes` from each of `seeds` on, with fresh behaviours for each seed.

    Args:
        game: makes one. behaviors: label -> makes the behaviours of all agents.
        seeds: of behaviours' groups; episode k of seed s has the game's seed 1000 s + k.
    """
    scores = []
    for label, make in behaviors.items():
        played: list[ArenaEpisode] = []
        for seed in seeds:
            played += AgentArena.play(game(), make(), episodes=episodes, seed=1000 * seed, deadline=deadline)
        scores.append(Score.of(label, played))
    return scores


def chart(scores: Sequence[Score], path: Path | str, title: str = "") -> None:
    """Writes a picture of the returns with their intervals."""
    with named_if_missing("a chart"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(6, 0.8 + 0.5 * len(scores)))
    axes = figure.subplots()
    means = np.array([score.mean for score in scores])
    errors = np.abs(np.array([[score.low, score.high] for score in scores]).T - means)
    axes.barh([score.label for score in scores], means, xerr=errors, color="#4c78a8", capsize=4)
    axes.invert_yaxis()
    axes.set_xlabel("return of an episode, 95 % confidence interval")
    axes.set_title(title)
    figure.tight_layout()
    figure.savefig(path)
