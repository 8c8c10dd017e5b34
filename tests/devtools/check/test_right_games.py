"""Right games that look like a mistake are left in peace; the mistakes that look like them are named."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.devtools.check.games import GAMES, Bandit, Board, Catch, Corridor, Countdown, Walk, WalkHome
from tests.devtools.check.reports import check, of_bridge
from tests.docs.blocks import labelled
from ue_rl.bridges import BaseBridge, GymnasiumBridge, run_in_thread
from ue_rl.devtools.check import CheckReport, Options, Verdict
from ue_rl.protocol.spec import ActionSpec


def of(bridge: BaseBridge, **options: Any) -> CheckReport:
    with run_in_thread(bridge) as engine:
        return check(engine.url, Options(**options))


def of_a_game(name: str, seeded: bool, num_envs: int) -> CheckReport:
    (make,) = (game for game in GAMES if game.__name__ == name)
    return of(make(num_envs=num_envs, seeded=seeded))


# One that ends where it began, one that ends itself, one without an observation, one that is long, one of chance.
IN_EACH_RUN = (WalkHome, Catch, Bandit, Countdown, Board)


def games() -> Iterator[Any]:
    """Each run has some games, with one kind of resets and one number of envs; all others are exhaustive."""
    kinds = list(itertools.product((True, False), (3, 1)))
    for number, game in enumerate(GAMES):
        for kind in kinds:
            usual = game in IN_EACH_RUN and kind == kinds[number % len(kinds)]
            marks = () if usual else pytest.mark.exhaustive
            yield pytest.param(game.__name__, *kind, marks=marks)


@pytest.mark.ahead(job=of_a_game)
@pytest.mark.parametrize(("name", "seeded", "num_envs"), list(games()))
def test_a_right_game(name: str, seeded: bool, num_envs: int, result: CheckReport) -> None:
    assert result.mistakes == [], result


def of_the_agents_page(num_envs: int) -> CheckReport:
    names: dict[str, Any] = {"__name__": "page"}
    exec(labelled("docs/agents.md", "python engine"), names)
    return of(names["Line"](num_envs))


@pytest.mark.ahead(job=of_the_agents_page)
@pytest.mark.parametrize("num_envs", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_the_engine_of_the_agents_page(num_envs: int, result: CheckReport) -> None:
    assert result.mistakes == [], result


@pytest.mark.exhaustive
def test_a_deterministic_game_of_gymnasium() -> None:
    report = of(GymnasiumBridge(partial(gymnasium.make, "FrozenLake-v1", is_slippery=False), 2))
    assert report.mistakes == [], report


# -- what looks like them, and is wrong


class AtHome(Corridor):
    """Begins anew with the last state, in the one place where episodes begin."""

    obs_size = 9

    def begin(self, env: int) -> None:
        self.place = getattr(self, "place", np.zeros(self.num_envs, np.intp))
        self.place[env] = 4
        self.at[env] = np.eye(9)[4]

    def play(self, env: int, action: Any) -> tuple[float, bool]:
        self.place[env] += int(2 * action[0] - 1)
        over = self.place[env] in (0, 8)
        if over:
            self.begin(env)
        self.at[env] = np.eye(9)[self.place[env]]
        return float(over), over


class EndsAtOnce(Walk):
    """DONE is always 1, and the walk goes on."""

    def play(self, env: int, action: Any) -> tuple[float, bool]:
        return super().play(env, action)[0], True


class Limited(Walk):
    """A limit of steps is sent as DONE."""

    limit = 40

    def begin(self, env: int) -> None:
        super().begin(env)
        self.left[env] = self.limit


class LongLimited(Limited):
    """One that is met three times only."""

    limit = 1000

    def __init__(self) -> None:
        super().__init__(1)


class Often(Limited):
    """Half of the episodes end before it."""

    def begin(self, env: int) -> None:
        super().begin(env)
        if self.rng[env].random() < 0.3:
            self.left[env] = self.rng[env].integers(3, 40)


class Clipped(Walk):
    """-2..2 is announced, and what is beyond -1..1 is cut off."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(action=ActionSpec.box(2, -2, 2), **spec)


class Deaf(Countdown):
    """Nothing that is done in 120 steps counts."""

    def play(self, env: int, action: Any) -> tuple[float, bool]:
        return 0.5, super().play(env, action)[1]


MISTAKES: list[tuple[Callable[[], BaseBridge], Verdict, str]] = [
    (AtHome, Verdict.WARN, "resets-itself"),
    (EndsAtOnce, Verdict.WARN, "done-after-reset"),
    (Limited, Verdict.WARN, "limit-as-done"),
    (LongLimited, Verdict.WARN, "limit-as-done"),
    (Often, Verdict.WARN, "limit-as-done"),
    (Clipped, Verdict.WARN, "actions-clipped"),
    (partial(Deaf, seeded=True), Verdict.FAIL, "action-ignored"),
]


def mistakes() -> Iterator[Any]:
    for make, outcome, name in MISTAKES:
        marks = pytest.mark.exhaustive if make not in (AtHome, Clipped) else ()
        yield pytest.param(make, outcome, name, id=name, marks=marks)


@pytest.mark.parametrize(("make", "outcome", "name"), list(mistakes()))
def test_a_mistake_like_it(make: Callable[[], Any], outcome: Verdict, name: str) -> None:
    report = of_bridge(make(), patience=40)  # until all steps are made, also on a machine that is busy
    assert [(found.outcome, found.mistake.name) for found in report.findings if found.mistake is not None] == [
        (outcome, name)
    ], report
