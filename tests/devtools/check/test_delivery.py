"""Requests in other manners: what they are made of. Engines that do not understand them: test_mistakes.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devtools.check.reports import DELIVERY, check, slow_down
from tests.harness.engines.mistaken import MistakenEngine
from ue_rl.devtools.check import CheckReport, Options, spelling
from ue_rl.devtools.testing import PluginStandIn


@pytest.mark.exhaustive
def test_the_plugin_in_its_own_dialect() -> None:
    with PluginStandIn(num_envs=2, tick_rate=25) as game:  # a tick is longer than what a busy machine adds
        report = check(game.url, Options(base=True), only=("speed", *DELIVERY))
    assert report.exit_code == 0
    assert report.mistakes == ["short-reads"], report
    assert game.aborted is None


def of_a_slow_engine() -> CheckReport:
    """Of one that takes longer for all manners of requests than the 4 s that an engine has by default."""
    with MistakenEngine(channel="SHARED", num_envs=1) as engine:
        slow_down(engine)
        return check(engine.url, Options(timeout=20.0, patience=0.3), only=DELIVERY)


@pytest.mark.slow
@pytest.mark.ahead(job=of_a_slow_engine)
def test_who_gives_an_engine_more_time_for_an_answer_gives_it_more_for_all_of_them(result: CheckReport) -> None:
    assert not [found.check for found in result.findings if "too slow" in found.text]
    assert result.mistakes == []


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
