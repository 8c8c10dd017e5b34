"""Engines that take no seeds: what is certain about them all the same, and what is only probable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.devtools.check.games import Walk
from tests.devtools.check.reports import found, of_bridge
from ue_rl.devtools.check import CheckReport, Verdict
from ue_rl.protocol.spec import ActionSpec


class NextEnv(Walk):
    """The action of the env behind it moves an env."""

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        super().step_envs(np.roll(actions, -1, axis=0), env_ids)


class OneState(Walk):
    """All envs show env 0."""

    def show(self, env: int) -> Any:
        return self.at[0]


class OneGenerator(Walk):
    """All envs draw the same starts."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = [np.random.default_rng(1) for _ in self.rng]


class Deaf(Walk):
    """Actions move nothing; the places wander by themselves."""

    def move(self, env: int, action: Any) -> None:
        self.at[env] += self.rng[env].uniform(-0.1, 0.1, 2)


class HalfDeaf(Walk):
    """The second number of an action is not read."""

    def move(self, env: int, action: Any) -> None:
        self.at[env] += 0.1 * action[0]


class Late(Walk):
    """The action before moves the env."""

    def __init__(self) -> None:
        super().__init__()
        self.before = np.zeros((self.num_envs, 2), np.float32)

    def move(self, env: int, action: Any) -> None:
        last = self.before[env].copy()
        self.before[env] = action
        super().move(env, last)


class Still(Walk):
    """Nothing is shown."""

    def show(self, env: int) -> Any:
        return [0.5, 0.25]


class Endless(Walk):
    """No episode ends."""

    def begin(self, env: int) -> None:
        super().begin(env)
        self.left[env] = 10**9


class Home(Walk):
    """Right: every episode begins in one place."""

    def begin(self, env: int) -> None:
        super().begin(env)
        self.at[env] = 0.25


class BeginsAgain(Walk):
    """Resets itself with the last step, from random starts."""

    def play(self, env: int, action: Any) -> tuple[float, bool]:
        reward, over = super().play(env, action)
        if over:
            self.begin(env)
        return reward, over


class BeginsAtHome(BeginsAgain, Home):
    """Likewise, from one place."""


class Cells(Walk):
    """Right: one of 16 cells, whole numbers, from which four choices lead to others."""

    obs_size, act_size = 1, 1

    def __init__(self) -> None:
        super().__init__(action=ActionSpec.discrete(4))

    def begin(self, env: int) -> None:
        super().begin(env)
        self.at[env] = 0

    def move(self, env: int, action: Any) -> None:
        x, y = self.at[env] + [(0, 1), (1, 0), (0, -1), (-1, 0)][int(action[0])]
        self.at[env] = np.clip((x, y), 0, 3)

    def show(self, env: int) -> Any:
        return 4 * self.at[env, 0] + self.at[env, 1]


def of(make: Callable[[], Walk], name: str = "", seed: int = 0, patience: float = 3.0) -> CheckReport:
    return of_bridge(make(), seed=seed, patience=patience)


# These end by their steps, also on a machine that is busy.
@pytest.mark.ahead(job=partial(of, patience=30))
@pytest.mark.parametrize(
    ("make", "name"),
    [(NextEnv, "wrong-env-acted"), (OneState, "same-trajectory"), (OneGenerator, "same-trajectory"),
     (BeginsAgain, "resets-itself"), (BeginsAtHome, "resets-itself")],
)  # fmt: skip
def test_what_is_certain(make: Callable[[], Walk], name: str, result: CheckReport) -> None:
    assert found(result, Verdict.FAIL) == {name}, result


@pytest.mark.ahead(job=partial(of, patience=30))
@pytest.mark.parametrize(
    ("make", "name"),
    [(Deaf, "action-ignored"), (HalfDeaf, "action-order"), (Late, "one-step-late"), (Still, "constant-observation"),
     (Endless, "never-done")],
)  # fmt: skip
def test_what_is_probable(make: Callable[[], Walk], name: str, result: CheckReport) -> None:
    assert name in found(result, Verdict.WARN), result
    assert not found(result, Verdict.FAIL), result


@pytest.mark.ahead(job=of)
@pytest.mark.parametrize("make", [Walk, Home, Cells])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_nothing_is_wrong(make: Callable[[], Walk], seed: int, result: CheckReport) -> None:
    assert result.mistakes == [], result
