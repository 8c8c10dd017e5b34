"""What is named first is the mistake itself: of engines that are no MistakenEngine, or one of their own."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tests.devtools.check.reports import BEHAVIOUR, check, of_engine
from tests.harness.engines.mistaken import MistakenEngine
from tests.harness.engines.right import Answer, Ask
from tests.support.listening import serving
from ue_rl.devtools.check import Options
from ue_rl.devtools.check.statistics import rounding

QUICK = Options(timeout=1.5)


def test_what_comes_in_any_session_is_not_left_over_from_the_one_before() -> None:
    with MistakenEngine(channel="SHARED") as engine:
        write, count = engine.write, itertools.count()

        def broken(answer: Answer) -> str:
            late = next(count) > 300 and answer.steps == 1
            return write(answer).replace(";REW=", ";REW=null") if late else write(answer)

        engine.write = broken
        report = check(engine.url, QUICK)
    assert report.mistakes == ["reward-not-a-number"]


def test_what_a_reset_does_not_put_back_is_said() -> None:
    report = of_engine("not-repeatable:velocity", BEHAVIOUR, QUICK, channel="SHARED")
    assert "only the numbers [2, 3] are others" in next(one for one in report.findings if one.mistake is not None).text


def test_rewards_that_do_not_repeat_are_shown() -> None:
    with MistakenEngine(channel="SHARED") as engine:
        observe, before = engine.observe, [0.0] * engine.num_envs

        def late(ask: Ask) -> Answer:
            answer = observe(ask)
            if answer.reset:
                return answer
            before[answer.env], reward = answer.reward, before[answer.env]
            return replace(answer, reward=reward)

        engine.observe = late
        report = check(engine.url, QUICK, only=("a seed twice",))
    assert report.mistakes == ["not-repeatable"]
    assert "the same observation, and REW=" in report.findings[-1].seen


# -- engines of one answer


@contextmanager
def says(first: bytes, answer: bytes) -> Iterator[str]:
    """An engine that begins with these lines, and sends `answer` as often as it is asked."""

    def serve(sock: socket.socket) -> None:
        sock.sendall(first)
        for _ in sock.makefile("rb"):
            sock.sendall(answer)

    with serving(serve) as (host, port):
        yield f"tcp://{host}:{port}"


RLBASE = b"CONFIG:OBS=2;ACT=1;ENV_TYPE=RLBASE;VERSION=1\n"
AGENTS = b"CONFIG:OBS=2;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;CHANNEL=SHARED;AGENTS=cat:1,dog:1;OBS.cat=1\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"OBS=1;REW=0;DONE=0;ENV=0||OBS=1,2;REW=0;DONE=0;ENV=0\n",  # no AGENT
        b"OBS=1;REW=0;DONE=0;ENV=0;AGENT=1||OBS=1,2;REW=0;DONE=0;ENV=0;AGENT=2\n",  # from 1
        b"OBS=1;REW=0;DONE=0;ENV=0;AGENT=0\nOBS=1,2;REW=0;DONE=0;ENV=0;AGENT=1\n",  # a line each
        b"OBS=1;REW=0;DONE=0;ENV=0;AGENT=0||OBS=1,2;REW=0;DONE=0;ENV=0;AGENT=7\n",
    ],
    ids=["none", "from-one", "lines", "seven"],
)
def test_agents(answer: bytes) -> None:
    with says(AGENTS, answer) as url:
        report = check(url, QUICK)
    assert report.mistakes == ["bad-agent"], report


@pytest.mark.parametrize(
    ("first", "answer", "mistake"),
    [(b"", b"1,2;0.5;0\n", "no-first-state"), (b"0,5,1,25;-1,5;0\n", b"0,5,1,25;-1,5;0\n", "decimal-comma")],
)
def test_rlbase(first: bytes, answer: bytes, mistake: str) -> None:
    with says(RLBASE + first, answer) as url:
        assert check(url, QUICK).mistakes == [mistake]


# -- rounding


def numbers(count: int = 2000) -> np.ndarray:
    return np.unique(np.random.default_rng(0).normal(0, 1, count).astype(np.float32)).astype(np.float64)


@pytest.mark.parametrize("text", ["%.3f", "%.4f", "%f", "%.3g", "%g", "%.5e"])
def test_rounding_is_seen(text: str) -> None:
    values = np.array([text % x for x in numbers()], np.float32).astype(np.float64)
    assert rounding(np.unique(values))


@pytest.mark.parametrize("unit", [1 / 8, 1 / 60, 1 / 64, 0.05, 0.1, 0.5, 1.0])
def test_a_grid_is_not_rounding(unit: float) -> None:
    values = np.arange(-400, 400).astype(np.float32) * np.float32(unit)
    assert not rounding(np.unique(values.astype(np.float64)))


@pytest.mark.parametrize("text", ["%.9g", "%.8e", "%.9f", "%.7f"])
@pytest.mark.parametrize("scale", [1.0, 1000.0, 1e6])
def test_exact_numbers_are_not_rounded(text: str, scale: float) -> None:
    values = np.array([text % x for x in numbers() * scale], np.float32).astype(np.float64)
    assert not rounding(np.unique(values))
