"""Segments and peers that break the rules."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.connections.shm_games import summing
from tests.support.steps import begin, totals
from tests.support.waiting import eventually
from ue_rl.bridges import (
    ShmUpgrader,
    run_in_thread,
    run_shm_in_thread,
)
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.memory.header import HEADER_SIZE, NAMES
from ue_rl.protocol.memory.memory import StepMemory, plan
from ue_rl.system import errors

pytestmark = pytest.mark.usefixtures("nothing_left")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.integers(0, 2**64 - 1) | st.integers(0, 8192)), min_size=1, max_size=4
    ),
    st.binary(max_size=40),
    st.integers(0, HEADER_SIZE - 40),
    st.booleans(),
)
def test_attaching_to_anything_is_a_named_error_or_works(
    tmp_path: Path, changes: list[tuple[str, int]], noise: bytes, at: int, plain: bool
) -> None:
    config = None if plain else b"CONFIG:OBS=2;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=3\n"
    header, size = plan(3, 2, 1, ring_size=256, config=config, server_pid=os.getpid())
    path = tmp_path / "hostile.shm"
    memory = bytearray(size)
    StepMemory.create(memory, header, config or b"").release()
    for name, value in changes:
        with contextlib.suppress(struct.error, TypeError):
            header = replace(header, **{name: value})
            memory[:HEADER_SIZE] = header.pack()
    memory[at : at + len(noise)] = noise
    path.write_bytes(memory)
    connection = SharedMemoryConnection(str(path), timeout=0.001, connect_timeout=0.001)
    with contextlib.suppress(errors.UeRlError):
        begin(connection)
    connection.close()


def test_rings_that_turn_hostile_while_running() -> None:
    with run_shm_in_thread(summing(), ring_size=256) as host:
        for position in (8, 3, 2**31, 0xFFFFFFFF):
            with SharedMemoryConnection(host.name, timeout=10, connect_timeout=10) as connection:
                begin(connection)
                start, _ = connection.memory.header.regions["cmd_s2c"]
                connection.memory.store_u32(start, position)
                with pytest.raises((errors.SegmentInvalid, errors.MalformedMessage)):
                    totals(connection)
            host.host.memory.store_u32(start, 0)
            host.host.memory.store_u32(start + 4, 0)


def test_a_trainer_that_counts_wrongly_is_sent_away(caplog: pytest.LogCaptureFixture) -> None:
    with run_shm_in_thread(summing()) as host:
        with SharedMemoryConnection(host.name, timeout=10, connect_timeout=10) as connection:
            begin(connection)
            connection._bell.publish()
            with pytest.raises((errors.EngineDisconnected, errors.UnexpectedMessage)):
                totals(connection)
                totals(connection)
        eventually(lambda: "the trainer broke the protocol: the trainer asked more than once" in caplog.text)
        serves(host.name)


@pytest.mark.parametrize(
    ("row", "action", "why"),
    [(9, 0.0, "invalid command byte"), (1, np.nan, "the trainer sent an action that is not a finite number")],
)
def test_a_trainer_that_breaks_the_rules_is_sent_away(
    row: int, action: float, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with run_shm_in_thread(summing()) as host:
        with SharedMemoryConnection(host.name, timeout=10, connect_timeout=10) as connection:
            begin(connection)
            memory = connection.memory
            assert memory.ask is not None
            memory.ask[:] = 1
            memory.ask[1] = row
            memory.actions[1, 0] = action
            connection._bell.ask(None)
            # before anything else is asked, which would be a mistake of its own
            eventually(lambda: f"the trainer broke the protocol: {why}" in caplog.text)
            with pytest.raises(errors.EngineDisconnected):
                totals(connection)
        serves(host.name)


def serves(name: str) -> None:
    """The next trainer is served."""
    with SharedMemoryConnection(name, connect_timeout=20) as connection:
        begin(connection)
        assert np.isfinite(totals(connection)).all()


def test_a_raw_trainer_that_lies_about_the_proof_stays_in_text() -> None:
    with run_in_thread(summing(), upgrader=ShmUpgrader()) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock, sock.makefile("rb") as lines:
            assert b";SHM=" in lines.readline()
            sock.sendall(b"SHM=ACCEPT;PROOF=" + b"0" * 32 + b"\n")
            assert lines.readline().startswith(b"SHM=REFUSED;WHY=")
            sock.sendall(b"ACT=RESET;ENV=0||ACT=RESET;ENV=1||ACT=RESET;ENV=2\n")
            assert lines.readline().startswith(b"OBS=")


def test_a_process_that_writes_at_any_time_never_gets_a_nan_through() -> None:
    """What is checked is what is given out: a game's late thread, or a hostile process, costs the session at most."""
    with run_shm_in_thread(summing()) as host:
        memory, stop = host.host.memory, threading.Event()
        spoilt = memory.obs, memory.rewards

        def spoil() -> None:
            while not stop.is_set():
                for array in spoilt:
                    array.reshape(-1)[-1] = np.nan
                for array in spoilt:
                    array.reshape(-1)[-1] = 1.0

        thread = threading.Thread(target=spoil)
        thread.start()
        seen = steps = 0
        try:
            deadline = time.monotonic() + 0.7
            while time.monotonic() < deadline or not steps:  # threads that are kept from running take longer
                with contextlib.suppress(errors.UeRlError), SharedMemoryConnection(host.name, wait=2.0) as connection:
                    begin(connection)
                    while time.monotonic() < deadline or not steps:
                        totals(connection, 0.5)
                        steps += 1
                        out = connection.buffers
                        for array in spoilt:  # later than any check
                            array.reshape(-1)[0] = np.nan
                        seen += not (np.isfinite(out.obs).all() and np.isfinite(out.rewards).all())
                        for array in spoilt:
                            array.reshape(-1)[0] = 1.0
        finally:
            stop.set()
            thread.join()
        assert steps
        assert seen == 0
