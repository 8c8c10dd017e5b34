"""Each mistake in an engine's behaviour is named, and nothing else is said to be certainly wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.compliance.behaviour import HANGS, checked, found
from tests.harness.engines.mistaken import MistakenEngine
from ue_rl.compliance import Outcome, Report
from ue_rl.testing import ChaosEngine

WRONG = [
    "reset-ignored:state", "reset-ignored:zero-step", "reset-ignored:env-1", "reset-ignored:mid-episode",
    "resets-all", "resets-all:next", "resets-itself", "resets-itself:twice", "stale-reset", "stale-reset:velocity",
    "done-after-reset", "done-after-reset:one-step", "trunc-without-done", "seed-ignored", "seed-ignored:env-0",
    "seed-ignored:first-only", "seed-ignored:fixed", "not-repeatable", "not-repeatable:length",
    "wrong-env-acted", "wrong-env-acted:swapped", "wrong-env-acted:position",
    "action-ignored", "action-ignored:env-2", "action-ignored:first", "choice-refused:last",
    "bound-refused", "bound-refused:lowest", "outside-obs-space", "outside-obs-space:done", "options-refused",
]  # fmt: skip
PROBABLE = {
    "one-step-late:obs": "one-step-late", "one-step-late:action": "one-step-late",
    "action-order:first-only": "action-order", "two-decimals": "two-decimals",
    "zero-reward": "zero-reward", "never-done": "never-done", "limit-as-done": "limit-as-done",
    "actions-clipped": "actions-clipped", "actions-clipped:unseeded": "actions-clipped",
}  # fmt: skip


def of_a_mistake(way: str, patience: float = 3.0) -> Report:
    with MistakenEngine(way, channel="SHARED") as engine:
        return checked(engine.url, patience=patience)


FIRSTS = {way.partition(":")[0]: way for way in reversed(WRONG)}


@pytest.mark.ahead(job=of_a_mistake)
@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=() if way in FIRSTS.values() else pytest.mark.exhaustive) for way in WRONG],
)
def test_a_mistake_is_certain_and_alone(way: str, result: Report) -> None:
    assert found(result, Outcome.FAIL) == {way.partition(":")[0]}, result
    assert result.seconds < HANGS


def test_a_reset_of_one_neighbour_is_found_among_many() -> None:
    with MistakenEngine("resets-all:next", channel="SHARED", num_envs=16) as engine:
        assert found(checked(engine.url), Outcome.FAIL) == {"resets-all"}


# it ends by its steps, also on a machine that is busy
@pytest.mark.ahead(job=partial(of_a_mistake, patience=30))
@pytest.mark.parametrize("way", PROBABLE)
def test_a_mistake_is_probable(way: str, result: Report) -> None:
    assert PROBABLE[way] in found(result, Outcome.WARN), result
    assert not found(result, Outcome.FAIL), result


def of_a_right_engine(options: dict[str, Any]) -> Report:
    with MistakenEngine(**options) as engine:
        return checked(engine.url, seed=5)


@pytest.mark.ahead(job=of_a_right_engine)
@pytest.mark.parametrize("options", [{}, {"choices": True}, {"num_envs": 1}, {"channel": "PER_ENV"}], ids=str)
def test_nothing_is_wrong_with_an_engine_that_is_right(options: dict[str, Any], result: Report) -> None:
    assert result.mistakes == [], result


def test_nothing_is_wrong_over_any_carrier() -> None:
    with ChaosEngine(num_envs=3, shm=True) as engine:
        report = checked(engine.url, seed=2)
    assert report.mistakes == [], report
    assert len({finding.carrier for finding in report.findings if finding.check == "a seed twice"}) == 3
