"""What an engine's author gets wrong, and what the trainer says of it: soon, once, and with the text that came."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.steps import advance, begin
from ue_rl.connections import open_engine
from ue_rl.connections.tcp import link, wirings
from ue_rl.system import errors

GREETING = b"CONFIG:OBS=2;ACT=1;ENV_TYPE=SINGLE"
ROW = b"OBS=0.5,1.5;REW=1;DONE=0"
CHANNELS = pytest.mark.parametrize("channel", ["shared", "per_env"])
KERNELS = pytest.mark.parametrize("compiled", [None, False], ids=["compiled", "pure"])


class Clock:
    """Time that stands still until an engine here has sent what has no end: a busy machine must not hint before."""

    def __init__(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Until the next `go`."""
        self._from, self._since = time.monotonic(), 0.0

    def go(self) -> None:
        """It is sent."""
        self._since = self._since or time.monotonic()

    def monotonic(self) -> float:
        """Seconds."""
        return self._from + (time.monotonic() - self._since if self._since else 0.0)

    sleep = staticmethod(time.sleep)


CLOCK = Clock()


@contextlib.contextmanager
def game(greeting: bytes, answer: Callable[[int], bytes] = lambda n: ROW + b"\n") -> Iterator[int]:
    """The port of an engine that sends `greeting`, and answer(n) to the nth line on whichever socket it comes."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    count = 0

    def talk(sock: socket.socket, first: bool) -> None:
        nonlocal count
        with sock, contextlib.suppress(OSError):
            if first:
                send(sock, greeting)
            for _ in sock.makefile("rb"):
                send(sock, answer(count))
                count += 1

    def send(sock: socket.socket, data: bytes) -> None:
        sock.sendall(data)
        if not data.endswith(b"\n"):
            CLOCK.go()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threads.append(threading.Thread(target=talk, args=(listener.accept()[0], not threads), daemon=True))
                threads[-1].start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
        for one in threads:
            one.join(5)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints come as soon as nothing has come for one slice, of the time since what has no end was sent."""
    CLOCK.stop()
    for module in (link, wirings):
        monkeypatch.setattr(module, "HINT_AFTER", 0.05)
        monkeypatch.setattr(module, "time", CLOCK)


def play(port: int, steps: int = 0, **options: object) -> None:
    with open_engine("127.0.0.1", port, **{"timeout": 5.0, **options}) as connection:
        begin(connection)
        for _ in range(steps):
            advance(connection, 0)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_the_hint_comes_while_a_person_still_looks() -> None:
    assert 1 < link.HINT_AFTER <= 3


@pytest.mark.usefixtures("soon")
def test_a_handshake_without_a_line_feed(caplog: pytest.LogCaptureFixture) -> None:
    with game(GREETING) as port, pytest.raises(errors.HandshakeError, match="end each message with a line feed"):
        play(port, timeout=0.8)
    assert said(caplog) == [f"the line is not finished: end each message with a line feed; got {GREETING.decode()}"]


@CHANNELS
@KERNELS
@pytest.mark.usefixtures("soon")
def test_an_answer_without_a_line_feed(channel: str, compiled: bool | None, caplog: pytest.LogCaptureFixture) -> None:
    with game(GREETING + b"\n", lambda n: ROW) as port, pytest.raises(errors.EngineTimeout) as caught:
        play(port, timeout=0.8, channel=channel, compiled=compiled)
    for text in ("end each message with a line feed", ROW.decode(), f"{len(ROW)} bytes of an unfinished line"):
        assert text in str(caught.value)
    assert "is the game paused" not in str(caught.value)
    assert said(caplog) == [f"the line is not finished: end each message with a line feed; got {ROW.decode()}"]


@pytest.mark.usefixtures("soon")
def test_an_engine_that_does_not_greet(caplog: pytest.LogCaptureFixture) -> None:
    with game(b"") as port, pytest.raises(errors.HandshakeError, match="sent no handshake"):
        play(port, timeout=0.8)
    (sentence,) = said(caplog)
    assert "a game greets within 0.1 s: does the port speak TLS (then dial tls://)" in sentence
    assert "press Play again" in sentence


@CHANNELS
@KERNELS
@pytest.mark.parametrize(
    "row", [b"OBS=0,5,1,5;REW=1;DONE=0\n", b"OBS=0.5,1.5;REW=1,25;DONE=0\n"], ids=["observation", "reward"]
)
def test_decimal_commas(channel: str, compiled: bool | None, row: bytes) -> None:
    with game(GREETING + b"\n", lambda n: row) as port, pytest.raises(errors.ProtocolError) as caught:
        play(port, channel=channel, compiled=compiled)
    assert "Decimal comma? set the C locale" in str(caught.value)


@pytest.mark.parametrize("row", [b"OBS=0.5,1.5,1,2;REW=1;DONE=0\n", b"OBS=1,2,3;REW=1;DONE=0\n"])
def test_other_wrong_counts_are_no_decimal_commas(row: bytes) -> None:
    with game(GREETING + b"\n", lambda n: row) as port, pytest.raises(errors.WrongCount, match="OBS and ACT must be"):
        play(port)


@CHANNELS
@KERNELS
def test_a_mistyped_field_of_a_row_is_told_once(
    channel: str, compiled: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    ends = ROW.replace(b"DONE=0", b"DONE=1") + b";TRUNCATED=1\n"
    with game(GREETING + b"\n", lambda n: ends if n in (20, 21) else ROW + b";note=3\n") as port:
        play(port, steps=30, channel=channel, compiled=compiled)
    assert said(caplog) == [
        "the engine's rows have an unknown field, which is ignored: NOTE",
        "the engine's rows have an unknown field, which is ignored: TRUNCATED: did you mean TRUNC?",
    ]


def test_nothing_is_said_of_an_engine_that_is_right(caplog: pytest.LogCaptureFixture) -> None:
    with game(GREETING + b";VERSION=1\n", lambda n: ROW + b";TRUNC=0;ENV=0;INFO=%7B%22a%3D%22%3A1%7D\n") as port:
        play(port, steps=10)
    assert not said(caplog)
