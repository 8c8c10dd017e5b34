"""Every mistake of an engine is named, however it is made; and an engine that makes none is left in peace."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.devtools.check.reports import BEHAVIOUR, CALLS, DELIVERY, HANGS, SESSIONS, check, found, of_engine
from tests.harness.engines.mistaken import MistakenEngine
from tests.harness.engines.mistakes import UNUSUAL, WAYS, find
from tests.harness.engines.ways import Way
from ue_rl.devtools.check import MISTAKES, CheckReport, Finding, Options, Verdict

ROOT = Path(__file__).resolve().parents[3]
QUICK = Options(timeout=1.5)

# Mistakes that a RightEngine cannot make: nobody is there, somebody else is served, agents, shared memory, RLBASE, and
# what shows beside a new engine.
ELSEWHERE = {"not-listening", "busy", "bad-agent", "shm-refused", "not-woken", "no-first-state", "remembers-episodes"}

# The checks that run -> ways that they name, and nothing else.
ALONE: dict[tuple[str, ...], list[str]] = {
    BEHAVIOUR: [
        "reset-ignored:state", "reset-ignored:zero-step", "reset-ignored:env-1", "reset-ignored:mid-episode",
        "resets-all", "resets-all:next", "resets-itself", "resets-itself:twice", "resets-itself:won",
        "stale-reset", "stale-reset:velocity",
        "done-after-reset", "done-after-reset:one-step", "trunc-without-done", "seed-ignored", "seed-ignored:env-0",
        "seed-ignored:first-only", "seed-ignored:fixed", "not-repeatable:length",
        "wrong-env-acted", "wrong-env-acted:swapped", "wrong-env-acted:position",
        "action-ignored", "action-ignored:env-2", "action-ignored:first", "choice-refused:last",
        "outside-obs-space", "outside-obs-space:done", "options-refused",
        "one-step-late:obs", "one-step-late:action", "action-order:first-only", "two-decimals", "zero-reward",
        "never-done", "limit-as-done", "actions-clipped", "actions-clipped:unseeded",
    ],
    DELIVERY: [
        "one-read-one-message:whole", "one-message-per-read:lost", "short-reads:dropped", "no-spaces:tab-silent",
        "no-spaces:tab", "no-lower-case:keys", "no-crlf:return", "unknown-key-refused:any",
        "numbers-not-read:trailing-silent", "numbers-not-read:as-zero", "partial-batch:refused",
        "partial-batch:all-step", "mixed-batch:steps-ignored", "row-order:refused", "unasked-env:neighbour",
        "empty-line-refused:session",
    ],
    SESSIONS: [
        "serves-once:listener", "serves-once:silent", "session-leaks:partial", "session-leaks:answer",
        "dies-of-garbage:dies", "dies-of-garbage:hangs", "dies-of-disconnect:reset", "dies-of-disconnect:mid-request",
        "dies-of-disconnect:early", "no-busy:silent",
    ],
    CALLS: ["bad-call:silent", "bad-call:ok", "bad-call:not-set", "bad-call:state"],
    # All of them: these looked like something else, like rows that are not understood or a session that is ended.
    (): [
        "bound-refused:highest", "bound-refused:lowest", "mixed-batch:resets", "partial-batch:waits",
        "not-repeatable:clock", "not-repeatable:one-generator", "handshake-again:behind", "env-refused:one-more",
        "env-socket-refused:closed", "numbers-not-read:fraction", "two-answers:sometimes",
        "not-plain-text:nul", "not-plain-text:nul-inside", "not-plain-text:byte-order-mark",
    ],
}  # fmt: skip
# What the finding says, among other things: of bytes those that were sent or came, with control characters as escapes.
SAID = {
    "no-lower-case:keys": "act=reset;env=0", "no-spaces:tab": "ACT =\\tRESET", "no-crlf:return": "\\r",
    "unknown-key-refused:any": "X_HINT=turn left", "empty-line-refused:session": "> \\n",
    "not-plain-text:byte-order-mark": "\\ufeffCONFIG:",
}  # fmt: skip
FIRSTS = {way.mistake: way for way in reversed(WAYS)}
# Of ALONE each run makes these: FAIL and WARN of behaviour, and some of each other kind. The rest is exhaustive.
IN_EACH_RUN = {
    "reset-ignored:state", "resets-all", "stale-reset", "trunc-without-done", "seed-ignored", "wrong-env-acted",
    "choice-refused:last", "action-ignored", "one-step-late:obs", "limit-as-done",
    "no-lower-case:keys", "no-spaces:tab", "no-crlf:return", "unknown-key-refused:any", "empty-line-refused:session",
    "numbers-not-read:as-zero", "partial-batch:refused", "short-reads:dropped",
    "serves-once:listener", "session-leaks:answer", "dies-of-garbage:dies", "no-busy:silent",
    "bad-call:ok", "bad-call:state",
    "not-plain-text:nul", "not-plain-text:byte-order-mark", "numbers-not-read:fraction",
}  # fmt: skip
# Of those that are made with all checks these take seconds each; the others are named within one.
SECONDS_EACH = {
    "no-demo-action", "unknown-field", "bad-info", "one-request-at-a-time", "number-missing-in-calls",
    "disturbed-session", "two-at-once", "autoreset-wrong", "carriers-differ", "seed-refused", "carriage-return-only",
    "env-never-answered",
}  # fmt: skip


def patience(way: str) -> float:
    """Of a rare mistake: until all steps are made, also on a machine that is busy."""
    return 3.0 if find(way).certain else 30.0


def of_a_mistake(way: str, only: tuple[str, ...]) -> CheckReport:
    options = Options(timeout=3.0, patience=patience(way)) if only == BEHAVIOUR else QUICK
    return of_engine(way, only, options, channel="PER_ENV" if way.startswith("env-socket") else "SHARED")


def alone() -> list[Any]:
    assert {way for ways in ALONE.values() for way in ways} >= IN_EACH_RUN
    return [
        pytest.param(way, only, id=way, marks=() if way in IN_EACH_RUN else pytest.mark.exhaustive)
        for only, ways in ALONE.items()
        for way in ways
    ]


@pytest.mark.ahead(job=of_a_mistake)
@pytest.mark.parametrize(("way", "only"), alone())
def test_a_mistake_is_alone(way: str, only: tuple[str, ...], result: CheckReport) -> None:
    mistake = find(way).mistake
    if find(way).certain:
        # A WARN beside it is allowed of behaviour; and one that breaks sessions off may have others follow.
        said = {BEHAVIOUR: [*found(result, Verdict.FAIL)], DELIVERY: result.mistakes[:1]}.get(only, result.mistakes)
        assert said == [mistake], result
        assert result.exit_code == 1
    else:
        assert mistake in found(result, Verdict.WARN), result
        assert result.exit_code == 0, result
    first = next(one for one in result.findings if one.mistake is not None and one.mistake.name == mistake)
    assert SAID.get(way, "") in f"{first.text} {first.seen}"
    assert result.seconds < HANGS


@pytest.mark.exhaustive
def test_a_reset_of_one_neighbour_is_found_among_many() -> None:
    report = of_engine("resets-all:next", BEHAVIOUR, Options(timeout=3.0), channel="SHARED", num_envs=16)
    assert found(report, Verdict.FAIL) == {"resets-all"}


# -- with all checks, until it is named


class _Enough(Exception):
    """What the test wants to know is known."""


def named(way: str) -> list[str]:
    """What is wrong with an engine of this way, up to the finding that names it; without one all of it."""
    wanted, names = find(way), list[str]()

    def note(finding: Finding) -> None:
        if finding.mistake is not None:
            names.append(finding.mistake.name)
            sure = finding.outcome is Verdict.FAIL or not wanted.certain
            if names[-1] in (wanted.mistake, *wanted.also) and sure:
                raise _Enough

    with MistakenEngine(way) as engine, contextlib.suppress(_Enough):
        check(engine.url, replace(QUICK, patience=patience(way)), progress=note)
    return names


def params(ways: list[Way], in_each_run: Callable[[Way], bool]) -> list[Any]:
    return [pytest.param(way.name, marks=() if in_each_run(way) else pytest.mark.exhaustive) for way in ways]


MADE_ABOVE = {find(way).mistake for ways in ALONE.values() for way in ways} | {"nagle", "slow"}  # test_timing.py


@pytest.mark.ahead(job=named)
@pytest.mark.parametrize(
    "way", params(WAYS, lambda way: way is FIRSTS[way.mistake] and way.mistake not in MADE_ABOVE | SECONDS_EACH)
)
def test_a_mistake_is_named(way: str, result: list[str]) -> None:
    assert result[-1:], "nothing was found"
    assert result[-1] in (find(way).mistake, *find(way).also)


# -- right engines


def of_a_right_engine(seed: int) -> CheckReport:
    return of_engine(None, (), Options(seed=seed), seed=seed)


@pytest.mark.ahead(job=of_a_right_engine)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2, 3, 4))])
def test_a_right_engine_is_left_in_peace(seed: int, result: CheckReport) -> None:
    assert result.mistakes == [], result
    assert passed(result) >= {*SESSIONS, *DELIVERY} - {"pause"}
    assert {finding.carrier for finding in result.findings} >= {"text, shared channel", "text, env sockets"}


def passed(report: CheckReport) -> set[str]:
    return {finding.check for finding in report.findings if finding.outcome is Verdict.PASS}


# Each run has these; the rest is exhaustive.
USUAL = ("one-env", "single", "choices")


@pytest.mark.ahead(job=of_engine)
@pytest.mark.parametrize("way", params(UNUSUAL, lambda way: way.way in USUAL))
def test_an_unusual_engine_is_left_in_peace(way: str, result: CheckReport) -> None:
    assert result.mistakes == [], result
    assert passed(result) >= {*SESSIONS} - {"pause"}, result


# -- the catalogue


def test_every_mistake_can_be_made() -> None:
    made = {way.mistake for way in WAYS}
    assert made <= MISTAKES.keys()
    assert MISTAKES.keys() - made == ELSEWHERE


def test_ways_have_names_of_their_own() -> None:
    names = [way.name for way in [*WAYS, *UNUSUAL]]
    assert len(set(names)) == len(names)


def test_sections_are_those_of_the_protocol() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text("utf-8")
    headings = set(re.findall(r"^#{2,3} (.+?)(?: \((?:base|1\.[12]|MULTI, SINGLE)\))?$", page, re.M))
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
