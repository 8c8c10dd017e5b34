"""Requests beside the steps, and parameters of a reset, over shared memory alone: rings, ticks and FlatBuffers.

What every carrier does stands in test_calls.py.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.harness.lab import Lab
from tests.support.steps import begin
from ue_rl.bridges import ShmHost, run_shm_in_thread
from ue_rl.cli.do_nothing import DoNothingBridge
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.commands.entries import text_entries
from ue_rl.system import errors

N = 2


def test_an_engine_without_rings_takes_no_calls() -> None:
    with run_shm_in_thread(Lab(N), ring_size=0) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        with pytest.raises(errors.UnsupportedByEngine, match="no command rings"):
            connection.call("GET")
        connection.draw_parameters = lambda env: {"gravity": 1.0}
        for ask in (connection.reset, lambda: connection.send_actions(np.ones((N, 1), np.float32), [0])):
            with pytest.raises(errors.UnsupportedByEngine, match="no command rings"):
                ask()
        connection.draw_parameters = None
        assert begin(connection).obs.tolist() == [[np.float32(9.8)]] * N


@pytest.mark.parametrize("line", ["JUMP", ""])
def test_what_is_no_call_is_refused(line: str) -> None:
    """In text it would be a request."""
    with run_shm_in_thread(Lab(N)) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        with pytest.raises(errors.CommandFailed, match="not a call"):
            connection.call(line)
        assert connection.call("GET=gravity") == "VALUES=gravity:9.8"


def test_a_call_beside_an_open_request_ends_the_session(caplog: pytest.LogCaptureFixture) -> None:
    with ShmHost(Lab(N)) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        ring = connection.memory.c2s
        assert ring is not None
        connection.reset()
        for entry in text_entries(1, b"GET", 100):
            ring.try_write(entry)
        for _ in range(3):
            host.tick(0.01)
        with pytest.raises(errors.EngineDisconnected):
            connection.receive()
        assert "a call came while a request was open" in caplog.text


def test_an_engine_without_parameters_is_named() -> None:
    with run_shm_in_thread(DoNothingBridge(N)) as host:
        with SharedMemoryConnection(host.name, timeout=10) as connection:
            connection.draw_parameters = lambda env: {"wind": 1.0}
            with pytest.raises(errors.UnsupportedByEngine, match="no parameters") as caught:
                connection.reset()
            assert caught.value.field == "SET"
            connection.draw_parameters = lambda env: None
            begin(connection)


def test_none_of_it_needs_flatbuffers() -> None:
    code = """
import sys
sys.modules["flatbuffers"] = None
from tests.connections import test_calls as t
t.test_all_calls_between_steps("shm")
t.test_parameters_travel_with_resets("shm")
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip().endswith("fine"), done.stderr[-2000:]
