"""Why a session over shared memory ended, who holds a segment, and connections that nobody closes."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.support.steps import begin, totals
from tests.support.waiting import eventually
from ue_rl.bridges import ShmHost, ShmUpgrader, VectorAgentsBridge, VectorBridge, run_in_thread, run_shm_in_thread
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.memory.header import (
    ACTION_SEQ,
    CLIENT_PID,
    CLIENT_SINCE,
    CLIENT_STATE,
    HEADER_SIZE,
    MAX_REASON,
    REASON_PID,
)
from ue_rl.protocol.memory.segment import Segment
from ue_rl.protocol.spec import AgentGroup, EnvSpec
from ue_rl.system import errors

N = 2


class Game(VectorBridge):
    """Fails when it is told to."""

    def __init__(self) -> None:
        super().__init__(EnvSpec(1, 1, num_envs=N))
        self.error: Exception | None = None

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.outbox.obs[env_ids] = 0

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        if self.error is not None:
            raise self.error
        self.outbox.obs[env_ids] += 1


class Crew(VectorAgentsBridge):
    """Of two agents one acts: what is asked of the same agents again is written in a shorter way."""

    def __init__(self) -> None:
        super().__init__([AgentGroup("sailor", 2, EnvSpec(1, 1))], N)

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.states.obs[env_ids] = 0
        self.states.present[env_ids, 1] = 0

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.states.obs[env_ids] += 1


@pytest.fixture(params=["by name", "upgraded"])
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """(game, function that connects)."""
    game = Game()
    by_name = request.param == "by name"
    server: Any = run_shm_in_thread(game) if by_name else run_in_thread(game, upgrader=ShmUpgrader())
    address: dict[str, Any] = {"name": server.name} if by_name else {"engine": ("127.0.0.1", server.port)}

    def connect() -> SharedMemoryConnection:
        connection = SharedMemoryConnection(**address, timeout=10)
        begin(connection)
        return connection

    with server:
        yield game, connect


# -- why a session ended


def test_the_trainer_reads_what_the_game_raised(engine: Any, caplog: pytest.LogCaptureFixture) -> None:
    game, connect = engine
    with connect() as connection:
        game.error = RuntimeError("the level was not found: Lëvel 7")
        with pytest.raises(errors.EngineDisconnected, match="the level was not found: Lëvel 7") as caught:
            totals(connection)
        assert (caught.value.field, caught.value.fault) == ("ERROR", "engine")
        assert "the engine ended the session" in str(caught.value)
        assert "Traceback" in caplog.text
        with pytest.raises(errors.ConnectionUnusable, match="ended the session"):
            totals(connection)
    game.error = None
    with connect() as connection:
        assert totals(connection) == [1, 1]


def test_a_long_reason_is_cut_between_two_characters(engine: Any) -> None:
    game, connect = engine
    with connect() as connection:
        game.error = RuntimeError("ä" * 3000)
        with pytest.raises(errors.EngineDisconnected) as caught:
            totals(connection)
        assert "\ufffd" not in str(caught.value)
        sentence = caught.value.message.removeprefix("the engine ended the session: ")
        assert MAX_REASON - 3 <= len(sentence.encode()) < MAX_REASON


def test_a_refused_trainer_reads_why() -> None:
    game = Game()
    with run_shm_in_thread(game) as host:
        game.configure(EnvSpec(1, 2, num_envs=N))
        with SharedMemoryConnection(host.name, timeout=10) as connection:
            connection.reset()
            with pytest.raises(errors.EngineDisconnected, match="the bridge was given other sizes"):
                connection.receive()


def test_a_reason_is_not_another_sessions() -> None:
    """A trainer that is killed with its engine reads nothing about the session before."""
    game = Game()
    with ShmHost(game) as host:
        memory = host.memory
        memory.tell_end(os.getpid(), "old")
        assert memory.end_of(os.getpid()) == "old"
        assert memory.end_of(os.getpid() + 1) == ""
        with SharedMemoryConnection(host.name, timeout=0.2) as connection:
            assert memory.load_u32(REASON_PID) == 0
            connection.reset()
            with pytest.raises(errors.EngineTimeout):
                connection.receive()
        memory.tell_end(1, "zero\0inside" + "x" * 2000)
        assert memory.end_of(1).startswith("zero insidex")
        assert len(memory.end_of(1)) == MAX_REASON - 1


# -- who holds a segment


def test_the_refusal_says_who_holds_the_segment_and_since_when() -> None:
    code = """
import sys
from ue_rl.system import errors
from ue_rl.connections import SharedMemoryConnection
try:
    SharedMemoryConnection.attach(sys.argv[1], timeout=20)
except errors.EngineBusy as error:
    print(error)
"""
    with run_shm_in_thread(Game()) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        memory = connection.memory
        assert abs(memory.load_u64(CLIENT_SINCE) - time.time()) < 5
        since = int(time.time()) - 100
        memory.store_u64(CLIENT_SINCE, since)
        done = subprocess.run(
            [sys.executable, "-c", code, host.name], capture_output=True, text=True, timeout=60, check=True
        )
        assert "another trainer is attached to this segment" in done.stdout
        held = re.search(rf"got process {os.getpid()}, for (\d+) s", done.stdout)
        assert held is not None, done.stdout
        assert 100 <= int(held[1]) <= time.time() - since + 1
        memory.store_u64(CLIENT_SINCE, 0)
        with pytest.raises(errors.EngineBusy, match=rf"got process {os.getpid()}, which is this one \["):
            SharedMemoryConnection.attach(host.name, timeout=20)
        connection.close()
        eventually(lambda: not host.host.memory.load_u32(CLIENT_PID))
        assert host.host.memory.load_u64(CLIENT_SINCE) == 0


# -- connections that nobody closes


def test_a_collected_connection_leaves_its_segment() -> None:
    with run_shm_in_thread(Game()) as host:
        connection = SharedMemoryConnection.attach(host.name, timeout=20)
        kept = begin(connection).obs
        del connection
        gc.collect()
        memory = host.host.memory
        eventually(lambda: not memory.load_u32(CLIENT_PID))
        assert memory.load_u32(CLIENT_PID) == memory.load_u32(CLIENT_STATE) == 0
        assert kept.tolist() == [[0], [0]], "arrays that were given out stay"
        with SharedMemoryConnection(host.name, timeout=20) as following:
            begin(following)


def test_a_cell_that_raised_may_be_run_again() -> None:
    """Nobody calls gc.collect(): the next connection looks for what is lost before it refuses."""

    def cell(name: str) -> None:
        env = ue_rl.connect(f"shm://{name}", timeout=20)
        env.reset()
        env.step(np.ones((N, 1), np.float32))
        raise RuntimeError("a mistake in the cell")

    with run_shm_in_thread(Game()) as host:
        gc.disable()
        try:
            for _ in range(3):
                with pytest.raises(RuntimeError, match="a mistake"):
                    cell(host.name)
        finally:
            gc.enable()
        with contextlib.closing(ue_rl.connect(f"shm://{host.name}", timeout=20)) as env:
            env.reset()


def test_a_collected_connection_does_not_leave_in_the_name_of_the_next() -> None:
    """Its session was ended by the engine, it never noticed, and the next one of this process has the segment."""
    game = Game()
    with run_shm_in_thread(game) as host:
        first = SharedMemoryConnection.attach(host.name, timeout=20)
        begin(first)
        game.disconnect()
        eventually(lambda: host.host.memory.load_u32(CLIENT_PID) == 0)
        with SharedMemoryConnection(host.name, timeout=20) as second:
            with pytest.raises(errors.ConnectionUnusable, match=r"ended the session.*the game left training mode"):
                first.reset()
            begin(second)
            del first
            gc.collect()
            assert totals(second) == [1, 1]
            assert second.memory.load_u32(CLIENT_PID) == os.getpid()


def test_a_closed_connection_has_nothing_left_to_let_go_of() -> None:
    with run_shm_in_thread(Game()) as host:
        first = SharedMemoryConnection.attach(host.name, timeout=20)
        first.close()
        with SharedMemoryConnection(host.name, timeout=20) as second:
            begin(second)
            del first
            gc.collect()
            assert totals(second) == [1, 1]


def test_a_collected_upgraded_connection_ends_its_session() -> None:
    before = threading.active_count()  # other tests leave some that sleep
    with run_in_thread(Game(), upgrader=ShmUpgrader()) as server:
        connection = SharedMemoryConnection(engine=("127.0.0.1", server.port), timeout=20)
        connection.connect()
        name = connection.name
        del connection
        gc.collect()
        with SharedMemoryConnection(engine=("127.0.0.1", server.port), timeout=20) as following:
            begin(following)
            assert following.name != name
        assert threading.active_count() < before + 20


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="fork and /dev/shm")
def test_a_forked_child_does_not_leave_in_its_parents_name() -> None:
    with run_shm_in_thread(Game()) as host, SharedMemoryConnection(host.name, timeout=20) as connection:
        begin(connection)
        child = os.fork()
        if child == 0:
            connection.close()
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.1)
        assert totals(connection) == [1, 1]


def actions(connection: SharedMemoryConnection, value: float) -> np.ndarray:
    return np.full((connection.spec.num_rows, 1), value, np.float32)


@pytest.mark.parametrize(
    "ask",
    [
        lambda connection: connection.reset(),
        lambda connection: connection.reset([0], [7], [{"a": 1}]),
        lambda connection: connection.send_actions(actions(connection, 9), [1]),
        lambda connection: connection.send_actions(actions(connection, 9)),
    ],
)
@pytest.mark.parametrize("stepped", [True, False])
@pytest.mark.parametrize("make", [Game, Crew])
def test_a_trainer_whose_session_was_ended_writes_nothing_into_the_next_ones(
    ask: Callable[[Any], None], stepped: bool, make: type[Game | Crew]
) -> None:
    game = make()
    game.configure(replace(game.spec, features=frozenset({"SEED", "OPTIONS"})))
    with ShmHost(game) as host, SharedMemoryConnection(host.name, timeout=20) as connection:

        def answered() -> None:
            host.tick(0.01)
            connection.receive()

        connection.reset()
        answered()
        if stepped:
            connection.send_actions(actions(connection, 1))
            answered()
        with contextlib.closing(Segment.open(host.name)) as segment:
            connection.memory.store_u32(CLIENT_PID, os.getppid())  # it is another process's by now
            before = bytes(segment.memory[HEADER_SIZE:]), connection.memory.load_u64(ACTION_SEQ)
            with pytest.raises(errors.EngineDisconnected, match="ended this session"):
                ask(connection)
            assert (bytes(segment.memory[HEADER_SIZE:]), host.memory.load_u64(ACTION_SEQ)) == before
