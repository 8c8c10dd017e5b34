"""What is named first is the mistake itself, and nothing follows from it that the engine does not do."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tests.harness.engines.mistaken import MistakenEngine
from tests.harness.engines.right import Answer, Ask
from ue_rl.compliance import Options, Report, check
from ue_rl.compliance.statistics import rounding

QUICK = Options(timeout=0.5)


def report_of(way: str, **options: object) -> Report:
    with MistakenEngine(way, **{"channel": "SHARED", **options}) as engine:
        return check(engine.url, QUICK)


# These looked like something else: like rows that are not understood, or like a session that the engine ends.
@pytest.mark.parametrize(
    "way",
    [
        "bound-refused:highest", "bound-refused:lowest", "mixed-batch:resets", "partial-batch:waits",
        "not-repeatable:clock", "not-repeatable:one-generator", "handshake-again:behind",
        "env-refused:one-more", "numbers-not-read:fraction", "two-answers:sometimes", "not-plain-text:nul",
        "not-plain-text:nul-inside",
    ],
)  # fmt: skip
def test_it_is_the_only_name(way: str) -> None:
    assert report_of(way).mistakes == [way.split(":", maxsplit=1)[0]]


def test_what_comes_in_any_session_is_not_left_over_from_the_one_before() -> None:
    with MistakenEngine(channel="SHARED") as engine:
        write, count = engine.write, itertools.count()

        def broken(answer: Answer) -> str:
            late = next(count) > 300 and answer.steps == 1
            return write(answer).replace(";REW=", ";REW=null") if late else write(answer)

        engine.write = broken
        report = check(engine.url, QUICK)
    assert report.mistakes == ["reward-not-a-number"]


def test_an_env_socket_that_is_closed_is_not_an_empty_line() -> None:
    report = report_of("env-socket-refused:closed", channel="PER_ENV")
    assert report.mistakes == ["env-socket-refused"]


@pytest.mark.parametrize(("way", "bytes_sent"), [
    ("no-lower-case:keys", "act=reset;env=0"), ("no-spaces:tab", "ACT =\\tRESET"), ("no-crlf:return", "\\r"),
    ("unknown-key-refused:any", "X_HINT=turn left"), ("empty-line-refused:session", "> \\n"),
])  # fmt: skip
def test_the_bytes_are_those_that_were_sent(way: str, bytes_sent: str) -> None:
    found = next(one for one in report_of(way).findings if one.mistake is not None and one.mistake.name in way)
    assert bytes_sent in found.seen


def test_what_a_reset_does_not_put_back_is_said() -> None:
    found = [one for one in report_of("not-repeatable:velocity").findings if one.mistake is not None]
    assert "only the numbers [2, 3] are others" in found[0].text


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


def test_control_characters_are_shown_as_escapes() -> None:
    report = report_of("not-plain-text:byte-order-mark")
    (found,) = [one for one in report.findings if one.mistake is not None]
    assert found.seen.startswith("\\ufeffCONFIG:")


# -- engines of one answer


@contextmanager
def says(first: bytes, answer: bytes) -> Iterator[str]:
    """An engine that begins with these lines, and sends `answer` as often as it is asked."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                trainer, _ = listener.accept()
            except OSError:
                return
            with trainer, trainer.makefile("rb") as lines:
                trainer.sendall(first)
                for _ in lines:
                    trainer.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


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


def test_rlbase_without_its_first_state() -> None:
    with says(RLBASE, b"1,2;0.5;0\n") as url:
        assert check(url, QUICK).mistakes == ["no-first-state"]


def test_rlbase_with_a_decimal_comma() -> None:
    with says(RLBASE + b"0,5,1,25;-1,5;0\n", b"0,5,1,25;-1,5;0\n") as url:
        assert check(url, QUICK).mistakes == ["decimal-comma"]


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
