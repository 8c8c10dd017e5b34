"""The engine of the chaos suite: its task, its faults, and what it leaves."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import ue_rl
from tests.support.waiting import eventually
from ue_rl.devtools.testing import ChaosEngine, Record, chaos_command
from ue_rl.devtools.testing.engines.chaos import ChaosBridge
from ue_rl.system.errors import UeRlError

Chaos = Callable[..., ChaosEngine]
ONES = np.ones((2, 1), np.float32)


def rollout(url: str, steps: int = 60, **options: object) -> list[bytes]:
    """Seeded observations and rewards, as bytes."""
    env = ue_rl.connect(url, **options)  # type: ignore[arg-type]
    try:
        env.seed(3)
        rows = [env.reset().tobytes()]  # type: ignore[union-attr]
        for step in range(steps):
            obs, rewards, dones, _ = env.step(np.sin(ONES * step))
            rows += [obs.tobytes(), rewards.tobytes(), dones.tobytes()]  # type: ignore[union-attr]
        return rows
    finally:
        env.close()


def test_the_same_seeds_give_the_same_rows_over_every_carrier_and_in_every_life(ue_rl_chaos_engine: Chaos) -> None:
    one = ue_rl_chaos_engine(shm=True)
    text = rollout(one.url, transport="tcp", channel="shared")
    assert rollout(one.url, transport="tcp", channel="per_env") == text
    assert rollout(one.url, transport="shm") == text
    assert rollout(ue_rl_chaos_engine(seed=9, wiring="per_env").url) == text


def test_an_engine_without_seeds_from_the_trainer_still_repeats_itself(ue_rl_chaos_engine: Chaos) -> None:
    begun = []
    for seed in (1, 1, 2):
        env = ue_rl.connect(ue_rl_chaos_engine(seed=seed).url)
        begun.append(env.reset().tobytes())  # type: ignore[union-attr]
        env.close()
    assert begun[0] == begun[1] != begun[2]


@pytest.mark.parametrize(("fault", "code"), [("crash", -9), ("exit", 3)])
def test_it_dies_at_its_step_in_its_first_life_only(
    fault: str, code: int, ue_rl_chaos_engine: Chaos, tmp_path: Path
) -> None:
    options = {"fault": fault, "after": 40, "lives": 1, "record": tmp_path / "record", "exit_code": 3}
    engine = ue_rl_chaos_engine(**options)
    env = ue_rl.connect(engine.url, timeout=20)
    env.reset()
    for _ in range(20):
        env.step(ONES)
    with pytest.raises(UeRlError):
        env.step(ONES)
    env.close()
    assert engine.process.wait(30) == code
    record = Record(tmp_path / "record", 2)
    assert (record.lives[0], record.pid[0], record.total) == (1, engine.pid, 40)
    assert (record.resets >= 2).all()
    rollout(ue_rl_chaos_engine(**options).url)
    assert (record.lives[0], record.total) == (2, 160)


def test_a_hang_and_a_stop_are_silence(ue_rl_chaos_engine: Chaos) -> None:
    for fault in ("hang", "stop"):
        engine = ue_rl_chaos_engine(fault=fault, after=4)
        env: Any = ue_rl.connect(engine.url)
        env.reset()
        env.step(ONES)
        env.step(ONES)
        env.transport.timeout = 0.2
        with pytest.raises(ue_rl.system.errors.EngineTimeout):
            env.step(ONES)
        env.close()
        process = psutil.Process(engine.pid)
        if fault == "stop":  # it may not have come to that yet
            eventually(lambda process=process: process.status() == psutil.STATUS_STOPPED)
        else:
            assert process.status() != psutil.STATUS_STOPPED
    engine.thaw()
    rollout(engine.url)  # it goes on, and serves the next trainer


def test_starts_that_fail_and_one_that_is_slow(ue_rl_chaos_engine: Chaos, tmp_path: Path) -> None:
    options = {"fault": "exit", "exit_code": 5, "lives": 2, "record": tmp_path / "record"}
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"ended with 5.*could not be loaded"):
            ue_rl_chaos_engine(**options)
    begun = time.monotonic()
    assert ue_rl_chaos_engine(listen_after=0.3, **options).url.startswith("tcp://127.0.0.1:")
    assert time.monotonic() - begun >= 0.3


def test_its_children_and_its_deafness_to_sigterm() -> None:
    with ChaosEngine(children=2, ignore_sigterm=True) as engine:
        children = psutil.Process(engine.pid).children()
        assert len(children) == 2
        engine.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            engine.process.wait(0.1)
        engine.kill()
        for child in children:  # orphans: whoever kills an engine must see to them
            assert child.is_running()
            child.kill()
    with ChaosEngine(children=1) as engine:
        (child,) = psutil.Process(engine.pid).children()
        engine.process.terminate()
        assert engine.process.wait(30) == 0
        psutil.wait_procs([child], 30)
        assert not child.is_running()


def test_the_command_line_keeps_the_placeholders() -> None:
    words = shlex.split(chaos_command(shm=True, fault=None, record="/tmp/a b/{engine}", seed=7))
    assert words[3:9] == ["--port", "{port}", "--num-envs", "{num_envs}", "--seed", "7"]
    assert words[9:] == ["--shm", "--record", "/tmp/a b/{engine}"]
    assert words[1:3] == ["-m", "ue_rl.devtools.testing.engines.chaos"]


def test_the_bridge_alone(ue_rl_memory_transport: Callable[..., object]) -> None:
    env = ue_rl.UnrealVecEnv(ue_rl_memory_transport(ChaosBridge(2)))  # type: ignore[arg-type]
    env.reset()
    ends = [env.step(ONES)[2] for _ in range(25)]
    assert np.array(ends).any(axis=0).all()
    env.close()


def test_a_frozen_engine_leaves_no_segment(ue_rl_leftovers: object, ue_rl_chaos_engine: Chaos) -> None:
    engine = ue_rl_chaos_engine(shm=True)
    env = ue_rl.connect(engine.url, transport="shm")
    env.reset()
    engine.freeze()
    env.close()
