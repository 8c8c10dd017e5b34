"""Engines that take seeds: what is wrong with how they take them, and carriers that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.devtools.check.games import Walk
from tests.devtools.check.reports import check, found, of_bridge
from ue_rl.bridges import run_in_thread
from ue_rl.devtools.check import CheckReport, Finding, Verdict
from ue_rl.devtools.check.bench import SHARED, Bench, NewEngine, Options
from ue_rl.devtools.check.checks import carriers, envs
from ue_rl.devtools.check.replay import replay, replayed, seeds_of


class Seeded(Walk):
    """Right: a start and a length from the seed."""

    shift = 0

    def __init__(self) -> None:
        super().__init__(seeded=True)

    def seed(self, env: int, seed: int) -> None:
        super().seed(env, seed + self.shift)


class Cut(Seeded):
    """Seeds go through a double."""

    def seed(self, env: int, seed: int) -> None:
        super().seed(env, int(float(seed)) % 2**63)


class Narrow(Seeded):
    """Seeds are integers of 32 bits."""

    def seed(self, env: int, seed: int) -> None:
        super().seed(env, int(np.array(seed, np.int32)))


class Constant(Seeded):
    """Every seed is the same one; without a seed episodes differ."""

    def seed(self, env: int, seed: int) -> None:
        super().seed(env, 5)


class Drifting(Seeded):
    """Where an episode is cut is no part of it: the walk is pushed by a generator that all envs share."""

    def seed(self, env: int, seed: int) -> None:
        self.rng = [np.random.default_rng(seed)] * self.num_envs

    def move(self, env: int, action: Any) -> None:
        super().move(env, action)
        self.at[env] += self.rng[env].uniform(-0.01, 0.01, 2)


class Remembering(Seeded):
    """Something of an episode is left in the next one, but two of one seed in a row are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.kept, self.leaves = np.zeros((2, self.num_envs))

    def seed(self, env: int, seed: int) -> None:
        super().seed(env, seed)
        first = Options().seed + 1000 + 7919  # of the first seeds that the check plays between
        self.leaves[env] = 0.001 if first <= seed < first + 31 * self.num_envs else 0.0

    def begin(self, env: int) -> None:
        super().begin(env)
        self.at[env] += self.kept[env]
        self.kept[env] = self.leaves[env]


@pytest.mark.parametrize(
    ("make", "outcome", "name"),
    [
        (Cut, Verdict.WARN, "seed-ignored"),
        (Narrow, Verdict.FAIL, "seed-refused"),
        (Drifting, Verdict.FAIL, "not-repeatable"),
        pytest.param(Constant, Verdict.FAIL, "seed-ignored", marks=pytest.mark.exhaustive),
    ],
)
def test_a_seed_that_is_taken_wrongly(make: Callable[[], Walk], outcome: Verdict, name: str) -> None:
    report = of_bridge(make())
    assert found(report, outcome) == {name}, report
    assert len(report.mistakes) == 1, report


def test_seeds_that_are_taken_rightly() -> None:
    assert of_bridge(Seeded()).mistakes == []


def test_a_carrier_that_differs() -> None:
    shared: dict[str, Any] = {}
    bridge = Seeded()
    with run_in_thread(bridge) as engine:
        for shift, name in ((0, set()), (0, set()), (1, {"carriers-differ"})):
            bridge.shift = shift
            bench = Bench(("127.0.0.1", engine.port), Options(), SHARED, shared=shared)
            carriers.same(bench)
            assert bench.failed == name
            bench.drop()


def test_a_game_that_remembers_is_told_so() -> None:
    report = of_bridge(Remembering())
    assert found(report, Verdict.FAIL) == {"seed-ignored"}, report
    assert len(report.mistakes) == 1, report
    assert "behind episodes of other seeds, and not before them" in str(report), report


class Unseeded(Seeded):
    """Only the start is that of the seed."""

    def move(self, env: int, action: Any) -> None:
        super().move(env, action)
        self.at[env] += np.random.default_rng().uniform(-0.01, 0.01, 2)


def of_new_engines(make: Callable[[], Walk]) -> CheckReport:
    """As `ue-rl check --engine` does it: of an engine of which others can be started."""

    @contextmanager
    def anew() -> Iterator[NewEngine]:
        with run_in_thread(make()) as engine:
            yield NewEngine("127.0.0.1", engine.port, lambda: False)

    with run_in_thread(make()) as engine:
        return check(engine.url, Options(timeout=3.0, anew=anew), only=("a seed twice", "a seed in a new engine"))


def of_a_new_engine(report: CheckReport) -> Finding:
    """What the check says that starts others."""
    return next(finding for finding in report.findings if finding.check == "a seed in a new engine")


def test_a_seed_that_fixes_an_episode_of_a_new_engine_alone() -> None:
    report = of_new_engines(Remembering)
    assert report.mistakes == ["seed-ignored", "remembers-episodes"], report
    finding = of_a_new_engine(report)
    assert finding.outcome is Verdict.WARN
    assert "two new engines play the same" in finding.text


def test_a_seed_that_fixes_no_episode() -> None:
    report = of_new_engines(Unseeded)
    assert report.mistakes == ["not-repeatable"], report
    finding = of_a_new_engine(report)
    assert finding.outcome is Verdict.FAIL
    assert "nor do two new engines play the same" in finding.text


class Tiring(Seeded):
    """It remembers how many steps it has played, and that shows late: no other check plays so long."""

    played = 0

    def move(self, env: int, action: Any) -> None:
        super().move(env, action)
        self.played += 1
        if self.played > 400:
            self.at[env] += 0.001

    def begin(self, env: int) -> None:
        super().begin(env)
        self.left[env] = 200


def test_what_is_left_of_an_episode_may_show_beside_a_new_engine_alone() -> None:
    report = of_new_engines(Tiring)
    assert of_a_new_engine(report).outcome is Verdict.WARN, report
    assert report.mistakes[-1] == "remembers-episodes"


def test_an_engine_that_remembers_is_not_compared_with_itself() -> None:
    """Another action for one env would be blamed for what is left of an episode."""
    with run_in_thread(Seeded()) as engine:
        bench = Bench(("127.0.0.1", engine.port), Options(), SHARED, shared={"remembers": True})
        bench.memo["replayed"] = replay(bench, seeds_of(bench), 8)
        assert replayed(bench) is None
        bench.drop()


def test_a_right_engine_plays_the_same_in_each_process() -> None:
    report = of_new_engines(Seeded)
    assert of_a_new_engine(report).outcome is Verdict.PASS, report
    assert report.mistakes == []


def test_an_engine_that_does_not_run_twice_is_not_said_to_be_wrong() -> None:
    @contextmanager
    def anew() -> Iterator[NewEngine]:
        with run_in_thread(Seeded()) as engine:
            port = engine.port
        yield NewEngine("127.0.0.1", port, lambda: True)

    with run_in_thread(Seeded()) as engine:
        report = check(engine.url, Options(timeout=3.0, anew=anew), only=("a seed in a new engine",))
    assert of_a_new_engine(report).outcome is Verdict.SKIP
    assert report.mistakes == []


class EveryThird(Seeded):
    """One env begins elsewhere in every third episode."""

    def __init__(self, which: int) -> None:
        super().__init__()
        self.which = which
        self.episodes = 0

    def begin(self, env: int) -> None:
        super().begin(env)
        if env == 1:
            self.episodes += 1
            if self.episodes % 3 == self.which:
                self.at[env] += 0.001


@pytest.mark.parametrize("which", [0, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (1, 2))])
def test_a_game_that_remembers_is_not_said_to_mix_up_its_envs(which: int) -> None:
    """That another env went elsewhere has two causes; one of them shows without another action, too."""
    with run_in_thread(EveryThird(which)) as engine:
        bench = Bench(("127.0.0.1", engine.port), Options(), SHARED, shared={})
        bench.memo["replayed"] = replay(bench, seeds_of(bench), 8)  # as where it came twice the same by chance
        envs.own_actions(bench)
        assert bench.failed <= {"not-repeatable"}
        bench.drop()
