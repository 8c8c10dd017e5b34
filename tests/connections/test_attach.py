"""Who holds a segment: races between two processes, and pids that were given to somebody else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.support.games import Sum
from ue_rl.bridges import ShmHost
from ue_rl.bridges.shm.segment import Trainer
from ue_rl.connections import SharedMemoryConnection
from ue_rl.connections.shm import attach
from ue_rl.connections.shm.upgrade import check_name
from ue_rl.protocol.memory import segment
from ue_rl.protocol.memory.header import ATTACHED, CLIENT_PID, CLIENT_STATE
from ue_rl.protocol.memory.memory import StepMemory, plan
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system import errors, processes
from ue_rl.system.errors import SegmentInvalid

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only /proc tells when a process was started")


@linux
def test_a_dead_trainers_pid_that_was_given_to_another_process_frees_the_segment() -> None:
    """The pid lives, but its process was not started when that of the trainer was which attached."""
    pid = os.getpid()
    with ShmHost(Sum(EnvSpec(1, 1))) as host:
        for started, died in ((processes.start_time, False), (lambda pid: processes.start_time(pid) - 1, True)):
            trainer = Trainer(host.memory, started)
            trainer.begin(pid)
            assert trainer.has_died(pid) is died


@linux
def test_a_dead_engines_pid_that_was_given_to_another_process_is_no_engine(tmp_path: Path) -> None:
    header, size = plan(
        1,
        1,
        1,
        ring_size=256,
        config=b"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1\n",
        server_pid=os.getpid(),
        server_start=processes.start_time() - 1,
    )
    path = tmp_path / "left.shm"
    memory = bytearray(size)
    StepMemory.create(memory, header, b"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1\n").release()
    path.write_bytes(memory)
    with pytest.raises(errors.EngineUnreachable, match="has died"):
        SharedMemoryConnection(str(path), timeout=1).connect()
    assert segment.reclaim(str(path))
    assert not path.exists()


def test_a_segment_that_another_engine_has_put_there_meanwhile_is_not_deleted(tmp_path: Path) -> None:
    """Two engines find the same dead one's segment; the slower one must not delete what the faster one has made."""
    header, size = plan(1, 1, 1, ring_size=256, config=b"CONFIG:OBS=1;ACT=1\n", server_pid=2**22 + 1)
    path = tmp_path / "left.shm"
    memory = bytearray(size)
    StepMemory.create(memory, header, b"CONFIG:OBS=1;ACT=1\n").release()
    path.write_bytes(memory)

    def meanwhile(_: Any) -> bool:
        other = tmp_path / "other"
        other.write_bytes(b"made by the faster engine")
        other.replace(path)
        return False

    assert not segment.reclaim(str(path), meanwhile)
    assert path.read_bytes() == b"made by the faster engine"


class TakenMeanwhile:
    """A segment whose client_pid is another trainer's as soon as somebody has seen it free."""

    def __init__(self, memory: StepMemory, other: int) -> None:
        self._memory = memory
        self._other = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def load_u32(self, offset: int) -> int:
        value = self._memory.load_u32(offset)
        if offset == CLIENT_PID and value == 0:
            self._memory.store_u32(CLIENT_PID, self._other)
            self._memory.store_u32(CLIENT_STATE, ATTACHED)
        return value


def test_two_trainers_never_both_take_a_free_segment() -> None:
    """Another trainer comes between the look at client_pid and the claim."""
    other = os.getppid()
    with ShmHost(Sum(EnvSpec(1, 1))) as host:
        memory = host.memory
        with pytest.raises(errors.EngineBusy, match=f"another trainer.*process {other}"):
            attach.claim(cast(StepMemory, TakenMeanwhile(memory, other)), 1)
        assert memory.load_u32(CLIENT_PID) == other
        memory.store_u32(CLIENT_PID, 0)
        memory.store_u32(CLIENT_STATE, 0)
        assert np.isfinite(memory.obs).all()


@pytest.mark.parametrize("host", ["10.1.2.3", "fe80::1%eth0", "2001:db8::1", "no address", "::ffff:10.1.2.3"])
def test_an_engine_on_another_machine_names_no_files(host: str) -> None:
    check_name("ue_rl_1_ab", host)
    for path in ("/etc/passwd", "../x", "C:\\x"):
        with pytest.raises(SegmentInvalid, match="names a file of this one"):
            check_name(path, host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"])
def test_an_engine_at_a_loopback_address_may_name_a_file(host: str) -> None:
    check_name("/tmp/segment", host)
