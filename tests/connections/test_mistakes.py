"""What an engine's author gets wrong, and what the trainer says of it: soon, once, and with the text that came."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.engines.saying import Saying
from tests.support.clocks import EngineClock
from tests.support.steps import advance, begin
from ue_rl.connections import open_engine
from ue_rl.connections.tcp import link
from ue_rl.system import errors

GREETING = b"CONFIG:OBS=2;ACT=1;ENV_TYPE=SINGLE"
ROW = b"OBS=0.5,1.5;REW=1;DONE=0"
CHANNELS = pytest.mark.parametrize("channel", ["shared", "per_env"])
KERNELS = pytest.mark.parametrize("compiled", [None, False], ids=["compiled", "pure"])


def plays(
    greeting: bytes, answer: Callable[[int], bytes] = lambda n: ROW + b"\n", steps: int = 0, **options: Any
) -> None:
    """Plays with a game that acts when the trainer looks at the clock."""
    with Saying(greeting, answer) as game:
        play(game, steps, timing=EngineClock(game.turn, 0.5).timing, **options)


def play(game: Saying, steps: int, **options: Any) -> None:
    with open_engine("127.0.0.1", game.port, **{"timeout": 5.0, **options}) as connection:
        begin(connection)
        for _ in range(steps):
            advance(connection, 0)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_the_hint_comes_while_a_person_still_looks() -> None:
    assert 1 < link.HINT_AFTER <= 3


def test_a_handshake_without_a_line_feed(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(errors.HandshakeError, match="end each message with a line feed"):
        plays(GREETING)
    assert said(caplog) == [f"the line is not finished: end each message with a line feed; got {GREETING.decode()}"]


def test_a_handshake_without_a_line_feed_within_the_systems_own_time() -> None:
    with Saying(GREETING, lambda n: ROW, threaded=True) as game:
        with pytest.raises(errors.HandshakeError, match="end each message with a line feed"):
            play(game, 0, timeout=0.2)


@CHANNELS
@KERNELS
def test_an_answer_without_a_line_feed(channel: str, compiled: bool | None, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(errors.EngineTimeout) as caught:
        plays(GREETING + b"\n", lambda n: ROW, channel=channel, compiled=compiled)
    for text in ("end each message with a line feed", ROW.decode(), f"{len(ROW)} bytes of an unfinished line"):
        assert text in str(caught.value)
    assert "is the game paused" not in str(caught.value)
    assert said(caplog) == [f"the line is not finished: end each message with a line feed; got {ROW.decode()}"]


def test_no_hint_before_its_time(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(errors.EngineTimeout):
        plays(GREETING + b"\n", lambda n: ROW, timeout=link.HINT_AFTER - 0.5)
    assert not said(caplog)


def test_an_engine_that_does_not_greet(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(errors.HandshakeError, match="sent no handshake"):
        plays(b"")
    (sentence,) = said(caplog)
    assert "a game greets within 0.1 s: does the port speak TLS (then dial tls://)" in sentence
    assert "press Play again" in sentence


@CHANNELS
@KERNELS
@pytest.mark.parametrize(
    "row", [b"OBS=0,5,1,5;REW=1;DONE=0\n", b"OBS=0.5,1.5;REW=1,25;DONE=0\n"], ids=["observation", "reward"]
)
def test_decimal_commas(channel: str, compiled: bool | None, row: bytes) -> None:
    with pytest.raises(errors.ProtocolError) as caught:
        plays(GREETING + b"\n", lambda n: row, channel=channel, compiled=compiled)
    assert "Decimal comma? set the C locale" in str(caught.value)


@pytest.mark.parametrize("row", [b"OBS=0.5,1.5,1,2;REW=1;DONE=0\n", b"OBS=1,2,3;REW=1;DONE=0\n"])
def test_other_wrong_counts_are_no_decimal_commas(row: bytes) -> None:
    with pytest.raises(errors.WrongCount, match="OBS and ACT must be"):
        plays(GREETING + b"\n", lambda n: row)


@CHANNELS
@KERNELS
def test_a_mistyped_field_of_a_row_is_told_once(
    channel: str, compiled: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    ends = ROW.replace(b"DONE=0", b"DONE=1") + b";TRUNCATED=1\n"
    greeting = GREETING + b"\n"
    plays(greeting, lambda n: ends if n in (20, 21) else ROW + b";note=3\n", 30, channel=channel, compiled=compiled)
    assert said(caplog) == [
        "the engine's rows have an unknown field, which is ignored: NOTE",
        "the engine's rows have an unknown field, which is ignored: TRUNCATED: did you mean TRUNC?",
    ]


def test_nothing_is_said_of_an_engine_that_is_right(caplog: pytest.LogCaptureFixture) -> None:
    plays(GREETING + b";VERSION=1\n", lambda n: ROW + b";TRUNC=0;ENV=0;INFO=%7B%22a%3D%22%3A1%7D\n", 10)
    assert not said(caplog)
