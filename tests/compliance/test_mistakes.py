"""Every mistake of an engine is named, however it is made; and an engine that makes none is left in peace."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compliance.conftest import first_findings
from tests.compliance.test_behaviour import PROBABLE, WRONG
from tests.harness.engines.mistaken import MistakenEngine
from tests.harness.engines.mistakes import UNUSUAL, WAYS, find
from tests.harness.engines.ways import Way
from ue_rl.compliance import MISTAKES, Options, Report, check

ROOT = Path(__file__).resolve().parents[2]
QUICK = Options(timeout=0.5)

# Mistakes that a RightEngine cannot make: nobody is there, somebody else is served, agents, shared memory, or RLBASE.
ELSEWHERE = {"not-listening", "busy", "bad-agent", "shm-refused", "not-woken", "no-first-state"}

# Each run makes each mistake in one way, but those of test_behaviour.py; the rest is exhaustive.
USUAL = (
    "right:takes-the-next", "right:32-bit-seeds", "right:pairs-of-seeds",
    "right:autoreset", "right:single", "right:choices", "right:parameters", "right:pieces", "right:numbers",
    "right:numbered-lines", "right:done-after-reset", "right:short-episodes",
)  # fmt: skip


FIRSTS = {way.mistake: way for way in reversed(WAYS)}


def params(ways: list[Way], in_each_run: Callable[[Way], bool]) -> list[Any]:
    return [pytest.param(way.name, marks=() if in_each_run(way) else pytest.mark.exhaustive) for way in ways]


def named(way: str) -> list[str]:
    found = first_findings(find(way), QUICK)
    return [finding.mistake.name for finding in found if finding.mistake is not None]


@pytest.mark.ahead(job=named)
@pytest.mark.parametrize(
    "way", params(WAYS, lambda way: way is FIRSTS[way.mistake] and not {way.name, way.mistake} & {*WRONG, *PROBABLE})
)
def test_a_mistake_is_named(way: str, result: list[str]) -> None:
    assert result[-1:], "nothing was found"
    assert result[-1] in (find(way).mistake, *find(way).also)


def of_a_right_engine(seed: int) -> Report:
    with MistakenEngine(seed=seed) as engine:
        return check(engine.url, Options(seed=seed))


@pytest.mark.ahead(job=of_a_right_engine)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (2, 3, 4))])
def test_a_right_engine_is_left_in_peace(seed: int, result: Report) -> None:
    assert result.mistakes == [], result
    assert {finding.carrier for finding in result.findings} >= {"text, shared channel", "text, env sockets"}


def of_an_unusual_engine(way: str) -> Report:
    with MistakenEngine(way) as engine:
        return check(engine.url)


@pytest.mark.ahead(job=of_an_unusual_engine)
@pytest.mark.parametrize("way", params(UNUSUAL, lambda way: way.name in USUAL))
def test_an_unusual_engine_is_left_in_peace(way: str, result: Report) -> None:
    assert result.mistakes == [], result


def test_every_mistake_can_be_made() -> None:
    made = {way.mistake for way in WAYS}
    assert made <= MISTAKES.keys()
    assert MISTAKES.keys() - made == ELSEWHERE


def test_ways_have_names_of_their_own() -> None:
    names = [way.name for way in [*WAYS, *UNUSUAL]]
    assert len(set(names)) == len(names)


def test_sections_are_those_of_the_protocol() -> None:
    headings = set(
        re.findall(
            r"^#{2,3} (.+?)(?: \((?:base|1\.[12]|MULTI, SINGLE)\))?$",
            (ROOT / "docs" / "protocol.md").read_text("utf-8"),
            re.MULTILINE,
        )
    )
    for mistake in MISTAKES.values():
        if mistake.section.startswith("docs/"):
            continue
        found = re.fullmatch(r"(\d+) \((.+)\)", mistake.section)
        assert found is not None, mistake
        title, _, part = found[2].partition(", ")
        assert f"{found[1]}. {title}" in headings, mistake.section
        assert not part or part in headings, mistake.section


def test_a_mistake_has_a_title_and_a_cure_that_can_be_read() -> None:
    for mistake in MISTAKES.values():
        assert re.fullmatch(r"[a-z]+(-[a-z0-9]+)*", mistake.name)
        assert not mistake.title.endswith(".")
        assert mistake.cure.endswith((".", "?", ")"))
        assert mistake.cure[0].isupper()
