"""The trainer is stopped, killed, or cannot write: what it has learnt stays, and it goes on with one word."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.conftest import over_tcp, shm_in_each_run
from tests.support.waiting import eventually
from ue_rl.devtools.testing import ChaosEngine

KILL = Path(__file__).parents[2] / "benchmarks" / "chaos_kill.py"
STOPS = {
    "SIGTERM": ((signal.SIGTERM,), 143),
    "SIGHUP": ((signal.SIGHUP,), 129),
    "Ctrl-C": ((signal.SIGINT,), 130),
    "Ctrl-C twice": ((signal.SIGINT, signal.SIGINT), 130),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "stop"),
    [
        ("tcp", "SIGTERM"),
        ("shm", "SIGHUP"),
        ("shm", "Ctrl-C twice"),
        *(pytest.param("shm", stop, marks=pytest.mark.exhaustive) for stop in ("SIGTERM", "Ctrl-C")),
    ],
    indirect=["stage"],
)
def test_a_signal_saves_and_resumes(stage: Any, stop: str) -> None:
    signals, code = STOPS[stop]
    run = stage.launch("--timesteps", 1_000_000)
    stage.wait_for_steps(200)
    for number in signals:  # a terminal sends them to the whole group
        run.signal(number, group=number != signal.SIGTERM)
        time.sleep(0.001)
    assert run.wait(60) == code, run.text
    run.wait_for(r"stopped by", 0)
    run.wait_for(r"--resume", 0)
    log = (stage.run / "run.log").read_text("utf-8")
    assert re.search(r"WARNING .*stopped by .* after \d+ env-steps", log), log
    assert "ERROR" not in log
    assert "KeyboardInterrupt" not in log
    steps = stage.newest_checkpoint().env_steps
    assert steps >= stage.saved_steps() > 0
    if stop == "SIGTERM":
        stage.resume(timesteps=steps + 256)


@pytest.mark.slow
@shm_in_each_run
def test_a_kill_leaves_nothing_and_resumes(stage: Any, ue_rl_leftovers: Any) -> None:
    deaf = stage.carrier == "tcp"  # an engine that ignores SIGTERM is given three seconds
    run = stage.launch("--timesteps", 1_000_000, "--save-freq", 256, children=1, ignore_sigterm=deaf)
    stage.wait_for_steps(400)
    run.signal(signal.SIGKILL)
    assert run.wait(60) == -9
    ue_rl_leftovers.check()
    steps = stage.newest_checkpoint(running=True).env_steps
    assert steps >= 256
    again = stage.resume(timesteps=steps + 256)
    again.wait_for(rf"{steps:,}|{steps}", 0)


@pytest.mark.exhaustive
def test_kills_while_it_saves(warm_cli: Any, ue_rl_leftovers: Any, tmp_path: Path, load_script: Any) -> None:
    """benchmarks/chaos_kill.py does it a hundred times. What is saved does not depend on the carrier."""
    with ChaosEngine(shm=True) as engine:
        killer = load_script(KILL).Killer(warm_cli, tmp_path, port=engine.port)
        for _ in range(4):
            killer.kill_once()
        killer.finish()


@over_tcp
def test_two_trainers_on_one_run(stage: Any) -> None:
    first = stage.launch("--timesteps", 1_000_000, "--save-freq", 128, engines=1)
    stage.wait_for_steps(300)
    second = stage.launch("--resume", "--timesteps", 1_000_000, engines=1, record=None)
    assert second.wait(60) == 1
    second.wait_for(rf"{first.pid}", 0)
    first.signal(signal.SIGTERM)
    assert first.wait(60) == 143, first.text
    stage.trainer = first


@pytest.fixture
def small_disk(stage: Any) -> Any:
    """The folder of runs is a disk of 600 kB."""
    stage.runs.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(stage.runs)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("a disk of its own needs root")
    yield stage.runs
    subprocess.run(["umount", "-l", str(stage.runs)], check=True)


@over_tcp
def test_a_full_disk_while_it_saves(stage: Any, small_disk: Path) -> None:
    from ue_rl.training.saving.checkpoints import CheckpointStore

    run = stage.launch("--timesteps", 1_000_000, "--save-freq", 128, engines=1)
    stage.wait_for_steps(300)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    run.wait_for(r"No space left")
    before = stage.newest_checkpoint(running=True)
    done = stage.record(0).total
    stage.wait_for_steps(done + 200)  # the run goes on
    assert run.code is None
    filler.unlink()
    store = CheckpointStore(stage.run / "checkpoints")  # it is not loaded yet: the run deletes old ones meanwhile
    eventually(lambda: store.env_steps > before.env_steps, 60, "no newer checkpoint")
    run.signal(signal.SIGTERM)
    assert run.wait(60) == 143, run.text
    assert stage.newest_checkpoint().number > before.number
    assert "Traceback" not in run.text


@over_tcp
def test_a_file_limit_while_it_saves(stage: Any) -> None:
    """ulimit -f: what cannot be written is told, and the exit code says so."""
    run = stage.start("--env", "CartPole-v1", "--num-envs", 2, file_limit=20_000)
    assert run.wait(60) == 1, run.text
    run.wait_for(r"File too large", 0)
    assert "Traceback" not in run.text
