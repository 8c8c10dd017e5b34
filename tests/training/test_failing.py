"""`ue-rl train` where something fails: what is kept, what is as it was before, and what is said."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO

from tests.support.command_line import ok, refused, run
from tests.training.conftest import DIALLED, SMALL
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.devtools.testing import Fault, FaultKind, FaultyEngine
from ue_rl.system import errors
from ue_rl.training.directory import RunDirectory
from ue_rl.training.evaluation import HELD_OUT
from ue_rl.training.learner import Learner


def test_an_engine_that_dies_saves_the_model_and_says_so(tmp_path: Path) -> None:
    with FaultyEngine(Fault(FaultKind.DROP, step=40), num_envs=2) as engine:
        result = run(f"{DIALLED} --no-export --timesteps 5000 --port {engine.port} --log-dir", tmp_path)
    assert result.exit_code == 1
    assert "EngineDisconnected" in result.output
    (folder,) = tmp_path.iterdir()
    assert f"ue-rl train --resume --log-dir {tmp_path} --run-id {folder.name}\n" in result.output
    assert 0 < PPO.load(folder / "model.zip").num_timesteps < 5000
    assert "EngineDisconnected" in (folder / "run.log").read_text()
    assert not list(folder.glob("crash-*")), "an error that is expected leaves no traceback"


def test_an_engine_that_dies_before_the_first_step_leaves_everything_as_it_was(tmp_path: Path) -> None:
    command = f"{SMALL} --net-arch 8 --no-export --eval-episodes 0 --run-id a --log-dir '{tmp_path}' --port"
    for step in (0, 1):
        with FaultyEngine(Fault(FaultKind.DROP, step=step)) as engine:
            result = run(command, engine.port)
        assert isinstance(result.exception, errors.EngineDisconnected)
        assert "--resume" not in result.output
        assert list(tmp_path.iterdir()) == []
    with FaultyEngine() as engine:
        ok(command, engine.port, "--timesteps", 128)
    names = ("model.zip", "progress.csv")
    kept = {path: path.stat().st_mtime_ns for path in map((tmp_path / "a").joinpath, names)}
    with FaultyEngine(Fault(FaultKind.DROP)) as engine:
        refused(command, engine.port, "--resume", "--timesteps", 256, by=errors.EngineDisconnected)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_an_overwritten_run_is_as_it_was_if_the_new_one_saves_no_model(
    tmp_path: Path, finished: Callable[[str], RunDirectory], cartpole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"{DIALLED} --timesteps 64 --run-id x --no-export --force --log-dir '{tmp_path}'"
    finished("x")
    before = {path: path.read_bytes() for path in sorted((tmp_path / "x").rglob("*")) if path.is_file()}
    refused(f"{command} --port 1", by=errors.EngineUnreachable)

    def broken(self: PPO, path: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PPO, "save", broken)
    refused(command, cartpole, by=errors.SaveFailed)
    assert {path: path.read_bytes() for path in sorted((tmp_path / "x").rglob("*")) if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_run_with_a_checkpoint_is_kept_whatever_fails_at_its_end(
    tmp_path: Path, finished: Callable[[str], RunDirectory], cartpole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished("x")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    def late(*_: Any) -> None:
        raise errors.ExportError("not today")

    monkeypatch.setattr(shutil, "copyfile", full)  # so that the run before is not deleted yet
    monkeypatch.setattr(Learner, "_evaluate", late)
    words = f"{DIALLED} --timesteps 64 --run-id x --no-export --force --log-dir"
    refused(words, tmp_path, cartpole, by=errors.ExportError)
    assert RunDirectory(tmp_path / "x").store().env_steps == 64
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "x.1"]


def test_a_save_that_fails_leaves_the_last_good_model(
    tmp_path: Path, finished: Callable[[str], RunDirectory], cartpole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished("r")
    good = (tmp_path / "r" / "model.zip").read_bytes()

    def broken(self: PPO, path: Any) -> None:
        Path(path).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PPO, "save", broken)
    words = "train --resume --run-id r --no-export --save-freq 100000 --timesteps 256 --log-dir"
    result = run(words, tmp_path, cartpole)
    assert result.exit_code == 1
    assert "SaveFailed: the model of 256 env-steps could not be saved" in result.output
    assert (tmp_path / "r" / "model.zip").read_bytes() == good
    assert not list((tmp_path / "r").rglob("*half-*"))
    assert RunDirectory(tmp_path / "r").store().last is not None


class Interrupted(CartPoleEnv):
    """Ctrl-C is pressed when the evaluation of a run with seed 1 begins."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed == HELD_OUT + 1:
            os.kill(os.getpid(), signal.SIGINT)
        return super().reset(seed=seed, options=options)


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent by kill")
def test_ctrl_c_in_the_evaluation_ends_the_evaluation_alone(tmp_path: Path) -> None:
    with run_in_thread(GymnasiumBridge(lambda: TimeLimit(Interrupted(), 100), 1)) as engine:
        words = f"{DIALLED} --timesteps 64 --seed 1 --no-export --run-id r --log-dir"
        output = ok(words, tmp_path, engine.url)
    assert "done" in output
    assert "without exploration" not in output
    assert (tmp_path / "r" / "model.zip").exists()
    assert "not evaluated: stopped by Ctrl-C" in (tmp_path / "r" / "run.log").read_text()
