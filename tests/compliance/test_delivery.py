"""Requests in other manners: each mistake by its name, and nothing about an engine that understands them all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compliance.behaviour import HANGS
from tests.harness.engines.mistaken import MistakenEngine
from ue_rl import compliance
from ue_rl.compliance import Options, Outcome, Report, spelling
from ue_rl.testing import PluginStandIn

DELIVERY = (
    "partial batches", "steps and resets together", "what partial batches do", "what steps and resets together do",
    "requests in two pieces", "requests byte by byte", "several lines in one write", "pipelined requests",
    "rows in another order", "what rows in another order do", "carriage returns", "empty lines",
    "spaces", "lower case", "unknown fields",
    "spellings of numbers", "long lines",
)  # fmt: skip
# A mistake in one of its ways -> what must be named, and nothing else.
NAMED = {
    "one-read-one-message:whole": "one-read-one-message",
    "one-message-per-read:lost": "one-message-per-read",
    "short-reads:dropped": "short-reads",
    "no-spaces:tab-silent": "no-spaces",
    "no-lower-case:keys": "no-lower-case",
    "unknown-key-refused:any": "unknown-key-refused",
    "numbers-not-read:trailing-silent": "numbers-not-read",
    "numbers-not-read:as-zero": "numbers-not-read",
    "partial-batch:refused": "partial-batch",
    "partial-batch:all-step": "partial-batch",
    "mixed-batch:resets": "mixed-batch",
    "mixed-batch:steps-ignored": "mixed-batch",
    "row-order:refused": "row-order",
    "unasked-env:neighbour": "unasked-env",
}


def checked(url: str) -> Report:
    return compliance.check(url, Options(timeout=1.5), only=DELIVERY)


def of_a_mistake(way: str) -> Report:
    with MistakenEngine(way, channel="SHARED") as engine:
        return checked(engine.url)


@pytest.mark.ahead(job=of_a_mistake)
@pytest.mark.parametrize("way", NAMED)
def test_a_mistake_is_named(way: str, result: Report) -> None:
    assert NAMED[way] in result.mistakes, result
    assert result.mistakes[0] == NAMED[way], result
    assert result.exit_code == 1
    assert result.seconds < HANGS


def test_a_refused_empty_line_is_named_before_anything_is_asked() -> None:
    with MistakenEngine("empty-line-refused", channel="SHARED") as engine:
        assert checked(engine.url).mistakes == ["empty-line-refused"]


def of_a_right_engine(options: dict[str, Any]) -> Report:
    with MistakenEngine(**options) as engine:
        return checked(engine.url)


@pytest.mark.ahead(job=of_a_right_engine)
@pytest.mark.parametrize(
    "options",
    [
        {"channel": "ANY"}, {"channel": "PER_ENV"}, {"channel": "SHARED", "num_envs": 1}, {"choices": True},
        {"num_envs": 1, "env_type": "SINGLE"},
    ],
    ids=str,
)  # fmt: skip
def test_an_engine_that_understands_everything(options: dict[str, Any], result: Report) -> None:
    assert result.mistakes == [], result
    assert result.count(Outcome.PASS) > 10


def test_the_plugin_in_its_own_dialect() -> None:
    with PluginStandIn(num_envs=2, tick_rate=25) as game:  # a tick is longer than what a busy machine adds
        report = compliance.check(game.url, Options(base=True), only=("speed", *DELIVERY))
    assert report.exit_code == 0
    assert report.mistakes == ["short-reads"], report
    assert game.aborted is None


@pytest.mark.parametrize("line", ["ACT=0.5,-1,0.25;ENV=12", "ACT=3,0,-0.5;ENV=0;AGENT=3||ACT=RESET;ENV=1", "0.5,1,-1"])
@pytest.mark.parametrize("way", spelling.WAYS)
def test_another_spelling_has_the_same_values(line: str, way: str) -> None:
    (spelt,) = spelling.numbers_otherwise(way, line)
    assert values(spelt.decode()) == values(line)
    assert spelt.decode().rstrip("\n").partition(";")[2] == line.partition(";")[2]


def values(line: str) -> list[float]:
    return [float(x) for x in line.partition(";")[0].removeprefix("ACT=").split(",")]


@pytest.mark.parametrize("size", [60, 61, 100, 1100])
def test_a_line_is_made_longer_by_its_digits(size: int) -> None:
    line = "ACT=0.5,-1,3;ENV=0;SEED=4"
    longer = spelling.longer(line, size)
    assert len(longer) + 1 == size
    assert values(longer) == values(line)
    assert longer.endswith(";ENV=0;SEED=4")
    assert spelling.longer("ACT=RESET;ENV=0", size) == "ACT=RESET;ENV=0"


def test_pieces_are_the_line() -> None:
    line = "ACT=0.5;ENV=0||ACT=RESET;ENV=1"
    for spell in (spelling.two_pieces, spelling.byte_by_byte):
        assert b"".join(spell(line)) == line.encode() + b"\n"
    assert len(spelling.byte_by_byte(line)) == len(line) + 1
    assert np.all([len(piece) == 1 for piece in spelling.byte_by_byte(line)])
