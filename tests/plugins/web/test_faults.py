"""What goes wrong with a page is named, nothing is made up, and who has no business here is not let in."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from tests.plugins.web.pages import CONFIG, Page, Play, dial, knock, well_behaved
from tests.support.listening import free_port
from tests.support.waiting import eventually
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.dialling import open_transport
from ue_rl.plugins.web.page_port import NO_SUCH_PLACE, TAKEN, PagePort
from ue_rl.system import errors

ACTION = np.zeros((1, 1), np.float32)


@pytest.fixture
def port() -> Iterator[int]:
    """A free port, on which nobody listens at the end either."""
    number = free_port()
    yield number
    assert not PagePort._all


def opened(port: int, **options: Any) -> BaseTransport:
    return open_transport(f"page://127.0.0.1:{port}", **{"timeout": 10.0, "wait": 10.0, **options})


def a_step(transport: BaseTransport) -> None:
    transport.send_actions(ACTION)
    transport.receive()


def after_one_answer(rest: Play) -> Play:
    def play(page: ClientConnection) -> None:
        page.send(CONFIG)
        page.recv()
        page.send("OBS=0;REW=0;DONE=0;ENV=0")
        page.recv()
        rest(page)

    return play


def test_nobody_dials(port: int) -> None:
    with pytest.raises(errors.EngineUnreachable, match=f"no page has dialled ws://127.0.0.1:{port}/"):
        opened(port, wait=0.3)


def test_somebody_else_listens_there(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)), pytest.raises(errors.EngineUnreachable, match="nobody can listen"):
        opened(port)


def test_one_process_waits_once_at_one_place(port: int) -> None:
    with Page(port), opened(port), pytest.raises(errors.EngineBusy, match="give each page a name"):
        opened(port)


def test_the_next_trainer_gets_the_page_again(port: int) -> None:
    with Page(port, again=True):
        for _ in range(3):
            with opened(port) as transport:
                transport.reset()
                transport.receive()
                a_step(transport)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("play", "error", "words"),
    [
        (lambda page: page.close(1001), errors.EngineDisconnected, "closed, reloaded or frozen .WebSocket code 1001."),
        (lambda page: page.close(1000), errors.EngineDisconnected, "closed its connection .WebSocket code 1000."),
        (lambda page: page.socket.shutdown(socket.SHUT_RDWR), errors.EngineDisconnected, "was cut"),
        (lambda page: page.send("ERROR=out%20of%20cake"), errors.EngineDisconnected, "out of cake"),
        (lambda page: page.send(b"\x01\x02"), errors.MalformedMessage, "binary message"),
        (lambda page: page.send("PROBLEM IS HERE"), errors.MalformedMessage, "PROBLEM"),
        (lambda page: page.send("OBS=0;REW=0;DONE=0;ENV=0\u2028"), errors.MalformedMessage, "DONE|ENV|key"),
        (lambda page: page.send("OBS=nan;REW=0;DONE=0;ENV=0"), errors.NonFiniteValue, "NaN"),
        (lambda page: page.send(2_000 * "OBS="), errors.LineTooLong, "longer"),
        (lambda page: page.socket.sendall(b"\x81\x05hello"), errors.MalformedMessage, "no WebSocket's"),
        (lambda page: page.socket.sendall(b"\x81\xff" + bytes([0, 0, 1]) + bytes(9)), errors.LineTooLong, "too long"),
        (lambda page: time.sleep(1.5), errors.EngineTimeout, "within 0.5 s"),
    ],
    ids=[
        "reloaded", "closed", "cut", "error", "binary", "rubbish", "not ascii", "nan", "long line", "no mask",
        "long message", "late",
    ],
)  # fmt: skip
def test_in_a_run(port: int, play: Play, error: type[errors.UeRlError], words: str) -> None:
    with Page(port, after_one_answer(play)), opened(port, timeout=20) as transport:
        transport.reset()
        transport.receive()
        if error is errors.EngineTimeout:
            transport.timeout = 0.5
        with pytest.raises(error, match=words):
            a_step(transport)


@pytest.mark.parametrize(
    ("hello", "error", "words"),
    [
        ("hello", errors.HandshakeError, "CONFIG"),
        ("CONFIG:OBS=x", errors.HandshakeError, "OBS"),
        (CONFIG.replace("MULTI", "RLBASE"), errors.HandshakeError, "ENV_TYPE"),
        ("", errors.HandshakeError, "sent no handshake"),
        ("AUTH=" + 64 * "a", errors.AccessRefused, "asks for a token"),
    ],
)
def test_in_a_handshake(port: int, hello: str, error: type[errors.UeRlError], words: str) -> None:
    def play(page: ClientConnection) -> None:
        page.send(hello)
        page.recv()

    with Page(port, play), pytest.raises(error, match=words):
        opened(port, connect_timeout=20 if hello else 0.5)


def test_a_page_that_goes_before_it_says_a_word_makes_room(port: int) -> None:
    visits = []

    def play(page: ClientConnection) -> None:
        visits.append(1)
        if len(visits) == 2:
            well_behaved(page)

    with Page(port, play, again=True), opened(port) as transport:
        transport.reset()
        transport.receive()
    assert len(visits) >= 2


def test_messages_in_pieces_and_many_in_one_read(port: int) -> None:
    def play(page: ClientConnection) -> None:
        page.send(iter([CONFIG[:5], CONFIG[5:]]))
        for _ in range(3):
            page.recv()
            page.ping()
            page.send(iter("OBS=0.5;REW=2;DONE=0;ENV=0"))

    with Page(port, play), opened(port) as transport:
        transport.reset()
        transport.receive()
        for _ in range(2):
            a_step(transport)
        assert transport.buffers.obs[0, 0] == 0.5


def test_an_answer_too_many_is_not_taken_for_the_next(port: int) -> None:
    both_sent = threading.Event()

    def twice(page: ClientConnection) -> None:
        for _ in range(2):
            page.send("OBS=0;REW=0;DONE=0;ENV=0")
        both_sent.set()
        page.recv()

    with Page(port, after_one_answer(twice)), opened(port) as transport:
        transport.reset()
        transport.receive()
        a_step(transport)
        assert both_sent.wait(20)
        with pytest.raises(errors.UnexpectedMessage, match="nobody asked for"):
            a_step(transport)


def test_a_page_that_is_reloaded_is_a_restarted_engine(port: int) -> None:
    """The run goes on: the episode that was lost ends as truncated."""
    lives = []

    def play(page: ClientConnection) -> None:
        lives.append(page)
        (well_behaved if len(lives) > 1 else after_one_answer(lambda it: it.close(1001)))(page)

    with Page(port, play, again=True), opened(port, reconnect=10.0) as transport:
        transport.reset()
        transport.receive()
        a_step(transport)
        assert transport.buffers.dones[0]
        assert transport.buffers.truncated[0]
        transport.reset()
        transport.receive()
        a_step(transport)
    assert len(lives) == 2


def test_a_second_page_waits_until_the_first_has_gone(port: int) -> None:
    with Page(port), opened(port) as transport:
        transport.reset()
        transport.receive()
        with dial(port) as other, pytest.raises(ConnectionClosed) as closed:
            other.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (TAKEN, "another page is the engine here")
        a_step(transport)


def test_names_tell_pages_apart(port: int) -> None:
    def sees(x: int) -> Play:
        def play(page: ClientConnection) -> None:
            page.send(CONFIG)
            for line in page:
                if line:
                    page.send(f"OBS={x};REW=0;DONE=0;ENV=0")

        return play

    urls = [f"page://127.0.0.1:{port}/{name}" for name in ("left", "right")]
    with Page(port, sees(2), "right", again=True), Page(port, sees(1), "left", again=True):
        with open_transport(urls, wait=10.0) as transport:
            transport.reset()
            assert transport.receive().obs.ravel().tolist() == [1, 2]
            with dial(port, "middle") as other, pytest.raises(ConnectionClosed) as closed:
                other.recv(timeout=10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == NO_SUCH_PLACE
            assert "left, right" in closed.value.rcvd.reason


@pytest.fixture
def door(port: int) -> Iterator[PagePort]:
    """An open port with a place for a page, where nobody waits for one."""
    opened_port = PagePort.at("127.0.0.1", port, "")
    yield opened_port
    opened_port.leave("")


@pytest.mark.parametrize(
    ("origin", "named", "let_in"),
    [
        (None, "", True),
        ("http://127.0.0.1:PORT", "", True),
        ("http://localhost:PORT", "", True),
        ("http://localhost:5173", "", False),
        ("http://localhost:5173", "https://game.example http://localhost:5173", True),
        ("http://game.example:PORT", "", False),
        ("https://127.0.0.1:PORT", "", False),
        ("null", "", False),
        ("null", "null", True),
    ],
)
def test_whose_pages_are_let_in(
    door: PagePort, origin: str | None, named: str, let_in: bool, caplog: pytest.LogCaptureFixture
) -> None:
    said: Any = None if origin is None else origin.replace("PORT", str(door.port))
    door.origins = frozenset(named.split())
    with caplog.at_level(logging.WARNING, "ue_rl.connections"):
        if let_in:
            knock(door.port, origin=said)
        else:
            with pytest.raises(InvalidStatus, match="403"):
                dial(door.port, origin=said)
            assert f"page://127.0.0.1:{door.port}?origin={said}" in caplog.text


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01" + 64 * b"a",
        b"ACT=RESET;ENV=0\n",
        70_000 * b"a",
        random.Random(0).randbytes(4096),
    ],
    ids=["nothing", "half a request", "TLS", "a line", "a long line", "random bytes"],
)
def test_who_speaks_no_http_is_dropped(door: PagePort, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", door.port), timeout=10) as visitor:
        with contextlib.suppress(OSError):  # it may be dropped before it has said all
            visitor.sendall(said)
            visitor.shutdown(socket.SHUT_WR)
            while visitor.recv(4096):
                pass
    knock(door.port)


def test_no_visitor_stays(door: PagePort) -> None:
    """Their threads and sockets end with them."""

    def visitors() -> int:
        return sum(thread.name == "ue_rl-page-visitor" for thread in threading.enumerate())

    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(40):
        socket.create_connection(("127.0.0.1", door.port), timeout=10).close()
    eventually(lambda: visitors() == 0)
    if before:
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
