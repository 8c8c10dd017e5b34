"""Every mistake of an engine is named, however it is made; and an engine that makes none is left in peace."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.compliance.conftest import first_findings
from ue_rl.compliance import MISTAKES, Options, check
from ue_rl.testing.engines.mistaken import MistakenEngine
from ue_rl.testing.engines.mistakes import UNUSUAL, WAYS
from ue_rl.testing.engines.ways import Way

ROOT = Path(__file__).resolve().parents[2]
QUICK = Options(timeout=0.5)

# Mistakes that a RightEngine cannot make: nobody is there, somebody else is served, agents, shared memory, or RLBASE.
ELSEWHERE = {"not-listening", "busy", "bad-agent", "shm-refused", "not-woken", "no-first-state"}

# All ways take some minutes: UE_RL_EVERY_WAY=1 tries them; else each mistake is made in one way, and those that an
# author is most likely to make in all.
EVERY_WAY = os.environ.get("UE_RL_EVERY_WAY") == "1"
IN_ALL_WAYS = (
    "not-plain-text", "rounded", "missing-separator", "wrong-count", "decimal-comma", "nan", "done-after-reset",
    "reset-ignored",
)  # fmt: skip
USUAL = (
    "right:takes-the-next", "right:32-bit-seeds", "right:single", "right:choices", "right:parameters", "right:pieces",
    "right:done-after-reset", "right:short-episodes",
)  # fmt: skip


def _chosen() -> list[Way]:
    firsts = {way.mistake: way for way in reversed(WAYS)}
    return [way for way in WAYS if EVERY_WAY or way is firsts[way.mistake] or way.mistake in IN_ALL_WAYS]


def _ways() -> list[ParameterSet]:
    return [pytest.param(way, id=way.name) for way in _chosen()]


@pytest.mark.parametrize("way", _ways())
def test_a_mistake_is_named(way: Way) -> None:
    found = first_findings(way, QUICK)
    names = [finding.mistake.name for finding in found if finding.mistake is not None]
    assert names[-1:], "nothing was found"
    assert names[-1] in (way.mistake, *way.also)


@pytest.mark.parametrize("seed", range(5))
def test_a_right_engine_is_left_in_peace(seed: int) -> None:
    with MistakenEngine(seed=seed) as engine:
        report = check(engine.url, Options(seed=seed))
    assert report.mistakes == [], report
    assert {finding.carrier for finding in report.findings} >= {"text, shared channel", "text, env sockets"}


@pytest.mark.parametrize("way", [way for way in UNUSUAL if EVERY_WAY or way.name in USUAL], ids=lambda way: way.name)
def test_an_unusual_engine_is_left_in_peace(way: Way) -> None:
    with MistakenEngine(way.name) as engine:
        report = check(engine.url)
    assert report.mistakes == [], report


def test_every_mistake_can_be_made() -> None:
    made = {way.mistake for way in WAYS}
    assert made <= MISTAKES.keys()
    assert MISTAKES.keys() - made == ELSEWHERE


def test_ways_have_names_of_their_own() -> None:
    names = [way.name for way in [*WAYS, *UNUSUAL]]
    assert len(set(names)) == len(names)


def test_sections_are_those_of_the_protocol() -> None:
    headings = set(re.findall(r"^#{2,3} (.+?)(?: \((?:base|1\.1|MULTI, SINGLE)\))?$",
                              (ROOT / "docs" / "protocol.md").read_text("utf-8"), re.MULTILINE))  # fmt: skip
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
