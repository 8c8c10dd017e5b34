"""The ends of sessions, and the next one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from tests.harness.engines.mistaken import MistakenEngine
from ue_rl import compliance
from ue_rl.compliance import Options, Outcome, Report
from ue_rl.testing import PluginStandIn

SESSIONS = (
    "next trainer", "trainers that break off", "connections that say nothing", "a second trainer", "garbage",
    "pause", "requests in two pieces",
)  # fmt: skip
NAMED = {
    "serves-once:listener": "serves-once",
    "serves-once:silent": "serves-once",
    "session-leaks:partial": "session-leaks",
    "session-leaks:answer": "session-leaks",
    "dies-of-garbage:dies": "dies-of-garbage",
    "dies-of-garbage:hangs": "dies-of-garbage",
    "dies-of-disconnect:reset": "dies-of-disconnect",
    "dies-of-disconnect:mid-request": "dies-of-disconnect",
    "dies-of-disconnect:early": "dies-of-disconnect",
    "no-busy:silent": "no-busy",
}


def checked(url: str, **options: bool) -> Report:
    return compliance.check(url, Options(timeout=1.5, **options), only=SESSIONS)  # type: ignore[arg-type]


def of_an_engine(way: str | None = None, channel: str = "SHARED") -> Report:
    with MistakenEngine(way, channel=channel) as engine:
        return checked(engine.url)


@pytest.mark.ahead(job=of_an_engine)
@pytest.mark.parametrize("way", NAMED)
def test_a_mistake_is_named(way: str, result: Report) -> None:
    assert result.mistakes == [NAMED[way]], result
    assert result.exit_code == (NAMED[way] != "no-busy")
    assert result.seconds < 5


@pytest.mark.ahead(job=partial(of_an_engine, "serves-once:silent", "ANY"))
def test_what_is_left_of_an_engine_that_is_gone_costs_no_further_deadlines(result: Report) -> None:
    assert result.count(Outcome.FAIL) == 1
    assert "further session" in result.findings[-1].text, result.findings[-1]


@pytest.mark.ahead(job=of_an_engine)
@pytest.mark.parametrize("channel", ["SHARED", "PER_ENV"])
def test_a_right_engine(channel: str, result: Report) -> None:
    assert result.mistakes == [], result
    assert result.count(Outcome.SKIP) == 1  # PAUSE is not announced


def test_the_plugin_serves_once_and_nothing_else_is_tried() -> None:
    with PluginStandIn(num_envs=2) as game:
        report = checked(game.url, base=True)
    assert report.mistakes == ["serves-once"]
    assert report.exit_code == 0
    assert game.aborted is None


# -- an engine with a thread for each connection


@contextmanager
def threaded() -> Iterator[str]:
    """Each connection has a game of its own, so a second trainer is served at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = [threading.Thread(target=_accept, args=(listener,))]
        threads[0].start()
        try:
            yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            threads[0].join(5)


def _accept(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            threading.Thread(target=_serve, args=(listener.accept()[0],), daemon=True).start()


def _serve(sock: socket.socket) -> None:
    with suppress(OSError, ValueError), sock, sock.makefile("rw", newline="\n") as stream:
        print("CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;CHANNEL=SHARED", file=stream, flush=True)
        x = 0.0
        for line in stream:
            action = line.split(";")[0].removeprefix("ACT=")
            x = 0.0 if action == "RESET" else x + float(action)
            print(f"OBS={x};REW=0;DONE=0;ENV=0", file=stream, flush=True)


def test_two_trainers_at_once() -> None:
    with threaded() as url:
        lenient = compliance.check(url, Options(timeout=1.5), only=["a second trainer"])
        strict = compliance.check(url, Options(timeout=1.5, strict=True), only=["a second trainer"])
    assert lenient.mistakes == strict.mistakes == ["two-at-once"]
    assert (lenient.exit_code, strict.exit_code) == (0, 1)


def test_a_call_of_an_env_that_is_none_does_not_end_the_right_engine() -> None:
    """The garbage of the check may hold one."""
    with MistakenEngine(parameters=True, channel="SHARED") as engine:
        for line in (b"GET;ENV=1e-T\n", b"GET;ENV=9\n", b"SET=push:1;ENV=-1\n"):
            with socket.create_connection(engine.address) as sock:
                sock.sendall(line)
                assert b"ERROR=" in b"".join(iter(lambda: sock.recv(4096), b""))
