"""The ends of sessions, and the next one. Engines that do not stand them: test_mistakes.py."""

from __future__ import annotations

import socket
from functools import partial

import pytest

from tests.devtools.check.reports import SESSIONS, check, of_engine
from tests.harness.engines.mistaken import MistakenEngine
from tests.support.listening import serving
from ue_rl.devtools.check import CheckReport, Options, Verdict
from ue_rl.devtools.testing import PluginStandIn


@pytest.mark.ahead(job=partial(of_engine, "serves-once:silent", SESSIONS, Options(timeout=1.5), channel="ANY"))
def test_what_is_left_of_an_engine_that_is_gone_costs_no_further_deadlines(result: CheckReport) -> None:
    assert result.count(Verdict.FAIL) == 1
    assert "further session" in result.findings[-1].text, result.findings[-1]


def test_the_plugin_serves_once_and_nothing_else_is_tried() -> None:
    with PluginStandIn(num_envs=2) as game:
        report = check(game.url, Options(timeout=1.5, base=True), only=SESSIONS)
    assert report.mistakes == ["serves-once"]
    assert report.exit_code == 0
    assert game.aborted is None


def _game(sock: socket.socket) -> None:
    with sock.makefile("rw", newline="\n") as stream:
        config = "CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;CHANNEL=SHARED;FEATURES=ERROR"
        print(config, file=stream, flush=True)
        x = 0.0
        for line in filter(str.strip, stream):
            action = line.split(";")[0].removeprefix("ACT=")
            x = 0.0 if action == "RESET" else x + float(action)
            print(f"OBS={x};REW=0;DONE=0;ENV=0", file=stream, flush=True)


def test_two_trainers_at_once() -> None:
    """Each connection has a game of its own, so a second trainer is served at once."""
    with serving(_game) as (host, port):
        lenient, strict = (
            check(f"tcp://{host}:{port}", Options(timeout=1.5, strict=strict), only=["a second trainer"])
            for strict in (False, True)
        )
    assert lenient.mistakes == strict.mistakes == ["two-at-once"]
    assert (lenient.exit_code, strict.exit_code) == (0, 1)


def test_an_engine_that_says_busy_and_closes_is_busy() -> None:
    with serving(lambda sock: sock.sendall(b"BUSY\n")) as (host, port):
        report = check(f"tcp://{host}:{port}", Options(timeout=1.5))
    assert report.mistakes == ["busy"]


def test_a_call_of_an_env_that_is_none_does_not_end_the_right_engine() -> None:
    """The garbage of the check may hold one."""
    with MistakenEngine(parameters=True, channel="SHARED") as engine:
        for line in (b"GET;ENV=1e-T\n", b"GET;ENV=9\n", b"SET=push:1;ENV=-1\n"):
            with socket.create_connection(engine.address) as sock:
                sock.sendall(line)
                assert b"ERROR=" in b"".join(iter(lambda: sock.recv(4096), b""))
