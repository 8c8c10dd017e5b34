"""samples/c/engine.c, of docs/shared-memory.md: it compiles without a warning, and trainers step it."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ue_rl
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.memory.header import ENGINE_FLAG, FRAME_SEQ, Header, plan
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.system import compiled
from ue_rl.system.errors import ConfigurationError, EngineBusy, EngineDisconnected

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "shared-memory.md"
ENGINE = ROOT / "samples" / "c" / "engine.c"
COMPILER = shutil.which(os.environ.get("CC", "cc"))
ENVS = 4

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler (cc) here")


def refused() -> str:
    """Why this installation refuses shared memory; empty where it does not."""
    try:
        compiled.load("sync")
    except ConfigurationError as error:
        return str(error)
    return ""


needs_sync = pytest.mark.skipif(bool(refused()), reason=refused() or "it is there")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="this engine uses futexes and shm_open of Linux")


def offsets() -> dict[str, int]:
    """Of every field, by the first byte that changes with it."""
    plain, found = Header().pack(), {}
    for field in fields(Header):
        if field.name != "regions":
            value: Any = field.default
            changed = b"\1" + value[1:] if isinstance(value, bytes) else value ^ 1
            packed = Header(**{field.name: changed}).pack()
            found[field.name] = next(at for at, byte in enumerate(packed) if byte != plain[at])
    return found


def test_the_struct_asserts_the_offset_of_every_field() -> None:
    asserted = {name: int(at) for name, at in re.findall(r"\bAT\((\w+), (\d+)\);", ENGINE.read_text("utf-8"))}
    assert asserted == offsets()


def test_the_page_has_the_offset_of_every_field() -> None:
    section = PAGE.read_text("utf-8").partition("## 2. Layout")[2].partition("Regions lie")[0]
    assert {name: int(at) for at, name in re.findall(r"\b(\d+) u\d+(?:\[\d+\])? +(\w+)", section)} == offsets()


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine")
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([str(COMPILER), *flags, "-o", "engine", str(ENGINE), "-lrt"], cwd=folder, check=True)
    return folder / "engine"


@pytest.fixture
def engine(binary: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    name = f"doc_{os.getpid()}_{secrets.token_hex(3)}"
    with subprocess.Popen([str(binary), name]) as process:
        try:
            yield name, process
        finally:
            process.terminate()
        assert process.wait(60) == 0
    assert not Path("/dev/shm", name).exists()


def attach(name: str) -> SharedMemoryConnection:
    return SharedMemoryConnection.attach(name, wait=10, timeout=20)


def step(connection: SharedMemoryConnection, *actions: float) -> Any:
    connection.send_actions(np.array(actions, np.float32).reshape(ENVS, 1))
    return connection.receive()


@needs_compiler
@needs_sync
@linux_only
def test_steps_resets_and_seeds(engine: tuple[str, subprocess.Popen[bytes]]) -> None:
    connection = attach(engine[0])
    assert connection.spec.features == {"SEED", "TRUNC"}
    connection.reset(seeds=[None, 1, 2, 3])
    np.testing.assert_array_equal(connection.receive().obs[:, 0], [0, 0.25, 0.5, 0])
    connection.reset()
    connection.receive()
    answer = step(connection, 0.5, -1, 2, -3)
    np.testing.assert_array_equal(answer.obs, [[0.5, 1], [-1, 1], [2, 1], [-3, 1]])
    np.testing.assert_array_equal(answer.rewards, [-0.5, -1, -2, -3])
    np.testing.assert_array_equal(answer.dones, [0, 0, 0, 1])
    connection.reset([3])
    np.testing.assert_array_equal(connection.receive().obs, [[0.5, 1], [-1, 1], [2, 1], [0, 0]])
    for _ in range(99):
        time.sleep(0.0005)  # both sides block now and then
        answer = step(connection, 0, 0, 0, 0)
    np.testing.assert_array_equal(answer.dones, [1, 1, 1, 0])
    np.testing.assert_array_equal(answer.truncated, [1, 1, 1, 0])
    connection.close()


@needs_compiler
@needs_sync
@linux_only
def test_one_trainer_after_the_other(engine: tuple[str, subprocess.Popen[bytes]]) -> None:
    name, _ = engine
    for _ in range(3):
        connection = attach(name)
        with pytest.raises(EngineBusy, match="another trainer"):
            SharedMemoryConnection.attach(name, timeout=20)
        connection.reset()
        np.testing.assert_array_equal(connection.receive().obs, np.zeros((ENVS, 2)))
        connection.close()


@needs_compiler
@needs_sync
@linux_only
def test_a_trainer_that_died_is_replaced(engine: tuple[str, subprocess.Popen[bytes]]) -> None:
    dies = (
        "import os, sys; from ue_rl.connections import SharedMemoryConnection as C; "
        "c = C.attach(sys.argv[1], wait=10); c.reset(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", dies, engine[0]], check=True)
    env = ue_rl.connect(f"shm://{engine[0]}", wait=10, timeout=20)
    env.reset()
    obs, *_ = env.step(np.full((ENVS, 1), 0.5, np.float32))
    np.testing.assert_array_equal(obs, [[0.5, 1]] * ENVS)
    env.close()


@needs_compiler
@needs_sync
@linux_only
def test_an_engine_that_ends_says_so(binary: Path) -> None:
    name = f"doc_{os.getpid()}_{secrets.token_hex(3)}"
    with subprocess.Popen([str(binary), name]) as process:
        try:
            connection = attach(name)
        finally:
            process.terminate()
        process.wait(60)
        with pytest.raises(EngineDisconnected):
            connection.reset()
            connection.receive()
        connection.close()


@pytest.mark.slow
@needs_sync
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody blocks on a futex")
@pytest.mark.parametrize("flag", [0, 3])
def test_a_trainer_never_blocks_on_a_futex_where_the_engine_cannot_wake_one(flag: int) -> None:
    header, size = plan(2, 2, 2, ring_size=0, config=b"CONFIG:OBS=2;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1")
    memory = StepMemory.create(bytearray(size), header, b"x" * header.config_size)
    memory.store_u32(ENGINE_FLAG, flag)
    bell = memory.bell(engine=False, spin_us=0)
    answer = threading.Timer(0.2, lambda: memory.words.increment_u64(memory.buffer, FRAME_SEQ))
    answer.start()  # counts, and wakes nobody
    begun = time.monotonic()
    if flag == 3:  # it naps, and sees the answer at the next look
        bell.wait(0, 0, 20_000)
        assert time.monotonic() - begun < 18
    else:
        bell.wait(0, 0, 2000)
        assert time.monotonic() - begun > 1.8
    answer.join()
    bell.release()
    memory.release()
