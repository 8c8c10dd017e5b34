"""SharedMemoryConnection attaching by name, and the upgrade from text."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.connections.shm_games import N, ones, summing
from tests.support.full import no_file_beyond
from tests.support.segments import own_segments
from tests.support.steps import begin, totals
from ue_rl.bridges import (
    ShmHost,
    ShmUpgrader,
    run_in_thread,
    run_shm_in_thread,
)
from ue_rl.connections import MultiTcpConnection, SharedMemoryConnection, open_engine
from ue_rl.protocol.memory import segment
from ue_rl.protocol.memory.header import HEADER_SIZE, SERVER_STATE
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.protocol.memory.segment import Segment
from ue_rl.system import errors
from ue_rl.system.errors import ConfigurationError, EngineBusy

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_views_and_copies() -> None:
    """The engine writes into the segment; the connection's numbers are checked copies, good until its next request."""
    with run_shm_in_thread(summing()) as host, SharedMemoryConnection(host.name) as connection:
        begin(connection)
        assert totals(connection, 2.5) == [2.5] * N
        memory = connection.memory
        # the bridge's side has no copy: it writes what the trainer takes
        bridge = host.host.bridge
        assert bridge.outbox.obs is host.host.memory.obs
        bridge.outbox.obs[1, 1] = 77
        assert memory.obs[1, 1] == 77
        assert connection.buffers.obs[1, 1] != 77, "what was checked does not change afterwards"
        memory.actions[2, 0] = 0.5
        assert bridge.inbox.actions[2, 0] == 0.5
    assert not np.shares_memory(bridge.outbox.obs, memory.obs)
    assert memory.obs[1, 1] == 77, "arrays stay readable after the end"


@pytest.mark.parametrize("copy", [True, False])
def test_copy_false_gives_the_segments_arrays(copy: bool) -> None:
    with run_shm_in_thread(summing()) as host, contextlib.closing(ue_rl.connect(host.url, copy=copy)) as env:
        env.reset()
        first = env.step(ones())[0]
        kept = first.copy()
        second = env.step(ones())[0]
        assert np.shares_memory(first, second) is not copy
        assert (first == kept).all() == copy


def test_two_engines_without_tokens_are_two_engines() -> None:
    """By name the token is unused, and may be zero in every segment (samples/c/README.md)."""
    with run_shm_in_thread(summing()) as one, run_shm_in_thread(summing()) as other:
        for host in (one, other):
            with contextlib.closing(Segment.open(host.name)) as mapped:
                mapped.memory[224:240] = bytes(16)
        with (
            SharedMemoryConnection(one.name, timeout=20) as first,
            SharedMemoryConnection(other.name, timeout=20) as second,
        ):
            assert first.memory.header.token == second.memory.header.token == bytes(16)
            for connection in (first, second, first):
                begin(connection)
                assert totals(connection) == [1] * N


def test_names_urls_and_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with run_shm_in_thread(summing()) as host:
        monkeypatch.setenv("LUCKY_SHM_NAME", host.name)
        for url in (host.url, "shm://"):
            with contextlib.closing(ue_rl.connect(url, "shm")) as env:
                assert env.reset().shape == (N, 2)
                assert env.transport.describe()["address"] == host.url
    path = tmp_path / "engine.shm"
    with run_shm_in_thread(summing(), name=str(path)) as host:
        assert host.url == f"shm://{path}"
        with contextlib.closing(ue_rl.connect(host.url)) as env:
            assert env.num_envs == N
    assert not path.exists()
    with pytest.raises(errors.EngineUnreachable, match=r"no shared memory named 'nobody'.*running"):
        ue_rl.connect("shm://nobody")
    for options in ({"transport": "tcp"}, {"channel": "shared"}):
        with pytest.raises(ConfigurationError, match="this address is shared memory"):
            ue_rl.connect("shm://nobody", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no such transport"):
        ue_rl.connect("tcp://127.0.0.1:7", "carrier-pigeon")
    with pytest.raises(ConfigurationError, match="channel is a wiring of TCP"):
        ue_rl.connect("tcp://127.0.0.1:7", "shm", channel="shared")


def test_the_trainer_may_start_first(tmp_path: Path) -> None:
    path = str(tmp_path / "late.shm")
    connection = SharedMemoryConnection(path, wait=20)
    thread = threading.Thread(target=connection.connect)
    thread.start()
    with run_shm_in_thread(summing(), name=path):
        thread.join()
        begin(connection)
        assert totals(connection) == [1.0] * N
        connection.close()


def test_one_trainer_at_a_time_and_the_next_is_served() -> None:
    bridge = summing()
    with run_shm_in_thread(bridge) as host:
        for turn in range(3):
            with SharedMemoryConnection(host.name, connect_timeout=20) as connection:
                begin(connection)
                assert totals(connection) == [1.0] * N
                with pytest.raises(EngineBusy, match=rf"another trainer.*process {os.getpid()}"):
                    SharedMemoryConnection(host.name).connect()
                if turn == 1:  # leaves in the middle of a request: its answer must not reach the next one
                    connection.send_actions(ones(1000))
        assert host.host.sessions == 3


def test_an_engine_with_a_loop_of_its_own_ticks_the_host() -> None:
    with ShmHost(summing()) as host:
        stop = threading.Event()

        def game() -> None:
            while not stop.is_set():
                host.tick(0.01)
                stop.wait(0.0005)

        thread = threading.Thread(target=game)
        thread.start()
        with SharedMemoryConnection(host.name) as connection:
            begin(connection)
            assert [totals(connection)[0] for _ in range(5)] == [1, 2, 3, 4, 5]
        stop.set()
        thread.join()


def test_a_bridge_has_one_host_at_a_time() -> None:
    bridge = summing()
    with run_shm_in_thread(bridge), pytest.raises(ConfigurationError, match="hosted already"):
        ShmHost(bridge)
    with run_in_thread(bridge), pytest.raises(ConfigurationError, match="hosted already"):
        ShmHost(bridge)
    with run_shm_in_thread(bridge) as host, SharedMemoryConnection(host.name) as connection:
        begin(connection)


# -- the upgrade


@pytest.mark.parametrize("transport", ["auto", "shm"])
def test_the_offer_is_taken(transport: str, caplog: pytest.LogCaptureFixture) -> None:
    with run_in_thread(summing(), upgrader=ShmUpgrader()) as server:
        for _ in range(3):  # one trainer after the other, each with a segment of its own
            with contextlib.closing(ue_rl.connect(server.url, transport)) as env:
                assert isinstance(env.transport, SharedMemoryConnection)
                env.reset()
                assert env.step(ones(3))[0][:, 0].tolist() == [3.0] * N
                assert env.transport.describe()["wiring"] == "shared memory, socket doorbell"
        assert server.server.sessions == 3


def test_no_offer_no_wish_or_a_named_channel_is_text() -> None:
    with run_in_thread(summing(), upgrader=ShmUpgrader()) as server:
        for options in ({"transport": "tcp"}, {"channel": "shared"}, {"channel": "per_env"}):
            with contextlib.closing(open_engine("127.0.0.1", server.port, **options)) as connection:  # type: ignore[arg-type]
                assert isinstance(connection, MultiTcpConnection)
                begin(connection)
                assert totals(connection) == [1.0] * N
    with run_in_thread(summing()) as server:
        with contextlib.closing(open_engine("127.0.0.1", server.port)) as connection:
            assert isinstance(connection, MultiTcpConnection)
        with pytest.raises(errors.UnsupportedByEngine, match=r"does not offer it.*ue-rl serve --shm"):
            ue_rl.connect(server.url, "shm")


class Elsewhere(ShmUpgrader):
    """Offers what the trainer cannot map, or should not."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self._how = how

    def offer(self, bridge: Any) -> str | None:
        text = super().offer(bridge)
        assert text is not None
        if self._how == "another machine":
            return text.replace(segment.PREFIX, "not_here_")
        if self._how == "another token":
            return text[:-4] + ("0000" if text[-4:] != "0000" else "1111")
        with Segment.open(text.partition(":")[0]) as opened:
            memory = StepMemory(opened.memory)
            if self._how == "another size":
                memory.buffer[28] = 9
            elif self._how == "no proof":
                memory.buffer[:HEADER_SIZE] = replace(memory.header, proof=bytes(16)).pack()
            elif self._how == "not serving":
                memory.store_u32(SERVER_STATE, 2)
            memory.release()
        return text if self._how != "unreadable" else "nonsense"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("another machine", "no shared memory named"),
        ("another token", "another segment has the offered name"),
        ("another size", "leaves the segment|overlap|disagree"),
        ("no proof", "proof is not this segment's"),
        ("not serving", "has closed the segment"),
        ("unreadable", "malformed offer of shared memory"),
    ],
)
def test_what_cannot_be_taken_goes_on_in_text_and_says_why(
    how: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ue_rl.connections")
    with run_in_thread(summing(), upgrader=Elsewhere(how)) as server:
        with contextlib.closing(open_engine("127.0.0.1", server.port, timeout=20)) as connection:
            assert isinstance(connection, MultiTcpConnection)
            begin(connection)
            assert totals(connection) == [1.0] * N
        told = [r.getMessage() for r in caplog.records if "goes on over TCP" in r.getMessage()]
        assert len([line for line in told if line.startswith("no shared memory, the run")]) == 1
        assert any(re.search(why, line) for line in told), told
        with pytest.raises(errors.UnsupportedByEngine, match=why):
            ue_rl.connect(server.url, "shm", timeout=20)


def test_where_there_is_no_memory_to_offer_the_server_serves_text(caplog: pytest.LogCaptureFixture) -> None:
    with no_file_beyond(2**25), run_in_thread(summing(), upgrader=ShmUpgrader(ring_size=2**26)) as server:
        with contextlib.closing(ue_rl.connect(server.url)) as env:
            assert isinstance(env.transport, MultiTcpConnection)
            env.reset()
    assert "no shared memory to offer" in caplog.text


def test_a_segment_goes_as_soon_as_the_trainer_has_spoken_text() -> None:
    before = own_segments()  # of a test before this one
    with run_in_thread(summing(), upgrader=ShmUpgrader()) as server:
        with contextlib.closing(open_engine("127.0.0.1", server.port, transport="tcp")) as connection:
            begin(connection)
            assert own_segments() <= before


def test_at_a_tick_rate_the_upgraded_session_keeps_it() -> None:
    with run_in_thread(summing(), upgrader=ShmUpgrader(), tick_rate=100) as server:
        with contextlib.closing(ue_rl.connect(server.url, "shm")) as env:
            env.reset()
            begun = time.perf_counter()
            for _ in range(10):
                env.step(ones())
            assert time.perf_counter() - begun >= 0.09
