"""Speed, ticks, and Nagle's algorithm apart from a slow tick."""

from __future__ import annotations

import socket
import sys
import time

import pytest

from tests.devtools.check.reports import HANGS, TIMING, check, of_engine, slow_down
from tests.harness.engines.mistaken import MistakenEngine
from ue_rl.devtools.check import CheckReport, Finding, Options, Verdict
from ue_rl.devtools.check.checks.timing import ticks_of


def _a_write_for_each_row(engine: MistakenEngine) -> None:
    deliver = engine.deliver

    def apart(sock: socket.socket, data: bytes) -> None:
        for row in data.rstrip(b"\n").split(b"||"):
            deliver(sock, row + b"\n")

    engine.deliver = apart


def checked(engine: MistakenEngine) -> CheckReport:
    return check(engine.url, Options(timeout=2.0), only=TIMING)


def of_a_mistake(way: str) -> CheckReport:
    return of_engine(way, TIMING, Options(timeout=2.0), channel="SHARED")


def of_nagle(way: str) -> CheckReport:
    """On a busy machine the 40 ms drown now and then in what all answers take, and then nothing is said."""
    result = of_a_mistake(way)
    for _ in range(4):
        if result.mistakes:
            break
        result = of_a_mistake(way)
    return result


@pytest.mark.skipif(sys.platform != "linux", reason="acknowledgements cannot be asked for elsewhere")
@pytest.mark.ahead(job=of_nagle)
@pytest.mark.parametrize("way", ["nagle:two-writes", pytest.param("nagle:newline", marks=pytest.mark.exhaustive)])
def test_nagle_is_recognised(way: str, result: CheckReport) -> None:
    assert result.mistakes == ["nagle"], result
    (finding,) = (found for found in result.findings if found.mistake is not None)
    assert finding.outcome is Verdict.WARN
    assert "when they are acknowledged at once" in finding.text
    assert result.seconds < HANGS


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="acknowledgements cannot be asked for elsewhere")
def test_a_line_for_each_env_without_nodelay_is_nagle() -> None:
    with MistakenEngine(channel="SHARED") as engine:
        _a_write_for_each_row(engine)
        engine.nodelay = False
        assert checked(engine).mistakes == ["nagle"]


def test_a_line_for_each_env_is_right_with_nodelay() -> None:
    with MistakenEngine(channel="SHARED") as engine:
        _a_write_for_each_row(engine)
        assert checked(engine).mistakes == []


@pytest.mark.exhaustive
def test_a_tick_of_25_hz_is_not_nagle() -> None:
    """The last env answers one tick later, 40 ms behind the others, whoever acknowledges what."""
    with MistakenEngine(channel="SHARED", num_envs=2) as engine:
        deliver = engine.deliver

        def ticking(sock: socket.socket, data: bytes) -> None:
            first, bars, second = data.partition(b"||")
            deliver(sock, first + b"\n" if bars else data)
            if bars:
                time.sleep(0.04)
                deliver(sock, second)

        engine.deliver = ticking
        report = checked(engine)
    assert report.mistakes == [], report
    (finding,) = (found for found in report.findings if found.check == "delayed pieces")
    assert "the game's own time" in finding.text


def test_speed_is_in_the_report() -> None:
    with MistakenEngine(channel="ANY", num_envs=2) as engine:
        report = checked(engine)
    assert set(report.speed) == {"text, shared channel", "text, env sockets"}
    speed = report.speed["text, shared channel"]
    assert 0 < speed["p50_ms"] <= speed["p99_ms"]
    assert speed["env_steps_per_s"] == pytest.approx(2 * speed["steps_per_s"], rel=0.01)
    assert all(isinstance(value, float) for value in speed.values())


def test_a_slow_engine_is_named() -> None:
    with MistakenEngine(channel="SHARED", num_envs=1) as engine:
        slow_down(engine)
        assert check(engine.url, Options(patience=0.3), only=("speed",)).mistakes == ["slow"]


def test_steps_that_are_slow_for_a_moment_are_looked_at_again() -> None:
    """The machine is busy while the check begins: a slow engine stays slow."""
    with MistakenEngine(channel="SHARED", num_envs=1) as engine:
        slow_down(engine, asks=11)
        report = check(engine.url, Options(patience=0.3), only=("speed",))
    assert report.mistakes == []


@pytest.mark.parametrize(
    ("taken", "rate"),
    [
        ([1 / 60] * 20, 60), ([0.0166, 0.0168] * 10, 60), ([0.04] * 10, 25), ([0.05] * 10, 20),
        ([0.0001] * 50, 0), ([0.01, 0.04] * 10, 0), ([1 / 67] * 10, 67),
    ],
)  # fmt: skip
def test_a_rate_of_ticks_is_guessed(taken: list[float], rate: float) -> None:
    assert ticks_of(taken) == pytest.approx(rate, rel=0.02)


@pytest.mark.exhaustive
def test_steps_that_take_longer_and_longer() -> None:
    only = ("speed", "ends of episodes", "speed later")
    assert of_engine("slow:grows", only, Options(patience=0.5), channel="SHARED").mistakes == ["slow"]


def test_steps_that_take_longer_for_a_moment_are_looked_at_again() -> None:
    """Another program has come between: what grows stays slow."""
    busy_until = 0.0

    def note(finding: Finding) -> None:
        nonlocal busy_until
        if finding.check == "speed":
            busy_until = time.monotonic() + 0.3

    with MistakenEngine(channel="SHARED") as engine:
        deliver = engine.deliver

        def late(sock: socket.socket, data: bytes) -> None:
            if time.monotonic() < busy_until:
                time.sleep(0.08)
            deliver(sock, data)

        engine.deliver = late
        report = check(engine.url, Options(timeout=2.0), only=("speed", "speed later"), progress=note)
    assert busy_until > 0
    assert report.mistakes == []
