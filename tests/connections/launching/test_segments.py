"""What a killed engine leaves in /dev/shm is deleted by the trainer that was attached, or by whoever launched it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.connections.launching.conftest import keepers, processes_with
from tests.connections.launching.standing_in import Listened
from tests.support.waiting import eventually
from ue_rl.connections.dialling import open_transport
from ue_rl.connections.engines.lifecycle import LifeState
from ue_rl.connections.launching.engine import LaunchedEngine
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import EngineDisconnected

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /dev/shm")

HEAD = """
import os, sys
from ue_rl.bridges import ShmHost, ShmUpgrader, serve, serve_shm
from ue_rl.cli.do_nothing import DoNothingBridge
def say(host): print(host.url, flush=True)
"""
OVER_TCP = HEAD + "serve(DoNothingBridge(2), port={port}, ready=say, upgrader=ShmUpgrader())"
BY_NAME = HEAD + "serve_shm(DoNothingBridge(2), ready=say)"


def segment_of(transport: Transport) -> Path:
    path = Path("/dev/shm") / transport.describe()["address"].removeprefix("shm://")
    assert path.exists()
    return path


@contextmanager
def attached(code: str) -> Iterator[tuple[subprocess.Popen[str], Transport]]:
    process = subprocess.Popen([sys.executable, "-c", code.replace("{port}", "0")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        transport = open_transport(process.stdout.readline().strip(), timeout=10)
        transport.connect()
        yield process, transport
        transport.close()
    finally:
        process.kill()
        process.communicate()


def lose(transport: Transport) -> None:
    transport.reset()
    with pytest.raises(EngineDisconnected):
        for _ in range(1000):
            transport.receive()
            transport.reset()


@pytest.mark.parametrize("code", [OVER_TCP, BY_NAME], ids=["over tcp", "by name"])
def test_the_trainer_deletes_a_dead_engines_segment(code: str) -> None:
    with attached(code) as (process, transport):
        segment = segment_of(transport)
        process.kill()
        lose(transport)
        assert not segment.exists()


def test_a_trainer_that_closes_after_the_engine_was_killed() -> None:
    with attached(BY_NAME) as (process, transport):
        segment = segment_of(transport)
        process.kill()
        process.wait()
        transport.close()
        assert not segment.exists()


def test_one_whose_engine_lives_is_left() -> None:
    with attached(BY_NAME) as (_, transport):
        segment = segment_of(transport)
        transport.reset()
        transport.receive()
        transport.close()
        assert segment.exists()


def test_a_name_that_means_another_segment_by_now() -> None:
    """Somebody else has taken the name."""
    with attached(BY_NAME) as (process, transport):
        segment = segment_of(transport)
        process.kill()
        process.wait()
        segment.unlink(missing_ok=True)  # whoever launches an engine meanwhile deletes it, as a test beside this one
        segment.write_bytes(b"x" * 8192)
        try:
            transport.close()
            assert segment.exists()
        finally:
            segment.unlink()


def test_a_launched_engine_leaves_none(make: Callable[..., LaunchedEngine], token: str) -> None:
    """Also one that nobody was attached to."""
    spare = "spare = ShmHost(DoNothingBridge(2)), print('spare', flush=True)\n"
    code = HEAD + spare + OVER_TCP.removeprefix(HEAD).replace("{port}", "int(sys.argv[2])")
    engine, life = make(command=[sys.executable, "-c", code, token, "{port}"], open=open_transport), Listened()
    transport = engine.open(life)
    pids = {str(process.pid) for process in processes_with(token)}
    mine = {name for name in os.listdir("/dev/shm") if name.startswith("ue_rl_") and name.split("_")[2] in pids}
    assert len(mine) >= 2
    watching = [keeper.pid for keeper in keepers(token)]
    os.kill(next(p.pid for p in processes_with(token) if p.pid not in watching), signal.SIGKILL)
    lose(transport)
    life.to(LifeState.CONNECTION_LOST)
    engine.lost(EngineDisconnected("gone"))
    eventually(lambda: not mine & set(os.listdir("/dev/shm")))
