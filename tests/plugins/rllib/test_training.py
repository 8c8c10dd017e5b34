"""`ue-rl train --backend rllib`: the run directory, its resumption, and every end of a run. All in one Ray cluster."""

from __future__ import annotations

import csv
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")
pytest.importorskip("stable_baselines3", reason="training needs ue_rl[train]")

import psutil

from ue_rl.devtools.testing import chaos_command
from ue_rl.inference import OnnxInference
from ue_rl.plugins.rllib.inbox import in_order
from ue_rl.plugins.rllib.news import EpisodeSummary, RunnerProgress
from ue_rl.system.errors import ConfigurationError, EngineNotStarted, RestartsSpent
from ue_rl.training import RunDirectory, RunResult, TrainingReport, TrainOptions, train
from ue_rl.training.fleet import Fleet
from ue_rl.training.saving.checkpoints import CheckpointStore
from ue_rl.training.saving.stopping import RunStopped

pytestmark = pytest.mark.usefixtures("cluster")
SMALL = {
    "train_batch_size_per_learner": 128, "minibatch_size": 64, "num_epochs": 1, "lr": 1e-3,
    "model_config": {"fcnet_hiddens": [16]},
}  # fmt: skip


def options(folder: Path, **more: Any) -> TrainOptions:
    given: dict[str, Any] = {
        "backend": "rllib", "timesteps": 400, "num_envs": 2, "num_env_runners": 2, "seed": 1, "log_dir": str(folder),
        "run_id": "r", "export": False, "eval_episodes": 0, "hyperparameters": SMALL,
    }  # fmt: skip
    return TrainOptions(**{**given, **more})


class Noted(TrainingReport):
    """Notes what is told, and does something as soon as steps were taken."""

    def __init__(self, act: Any = None) -> None:
        self.told: list[str] = []
        self.facts: dict[str, str] = {}
        self.steps = 0
        self._act = act

    def connected(self, num_envs: int, facts: Mapping[str, str]) -> None:
        self.facts = {"num_envs": str(num_envs), **facts}

    def engines(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def said(self, text: str) -> None:
        self.told.append(text)

    def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:
        self.steps = env_steps
        if env_steps and self._act is not None:
            act, self._act = self._act, None
            act()


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("drawn")
def test_a_run_and_its_resumption(tmp_path: Path) -> None:
    report = Noted()
    first = train(options(tmp_path, export=True, eval_episodes=3, time_scale=2.0), report=report)
    run = first.run
    assert first.stopped_by is None
    assert 400 <= first.env_steps < 400 + 128 + 4
    assert report.facts["num_envs"] == "4"
    assert report.facts["engines"] == "2"
    assert [status.num_envs for status in report.fleet.statuses()] == [2, 2]
    assert first.evaluation is not None
    assert first.exported is not None
    assert "equal to forward_inference()" in first.exported
    assert OnnxInference(run.onnx).metadata.algorithm == "PPO"
    assert any("does not change its speed" in text for text in report.told)
    found = {path.name for path in run.path.iterdir()}
    assert {"config.yaml", "handshake.txt", "checkpoints", "engines", "episodes.csv", "progress.csv"} <= found
    assert {"run.log", "curves.png", "model.onnx"} <= found
    assert len(list(run.engines.rglob("engine-0.log"))) == 2
    episodes = rows_of(run.episodes)
    assert len(episodes) == first.episodes > 5
    assert all(float(row["return"]) == float(row["length"]) > 0 for row in episodes)  # CartPole: 1 for each step
    steps = [int(row["env_steps"]) for row in episodes]
    assert steps == sorted(steps)
    assert steps[-1] <= first.env_steps
    # Episodes that have ended, and at most the longest under way in each env.
    assert 0 <= first.env_steps - sum(int(row["length"]) for row in episodes) < 4 * 200
    progress = rows_of(run.path / "progress.csv")
    assert int(progress[-1]["time/total_timesteps"]) == first.env_steps
    assert "train/total_loss" in progress[0]

    report = Noted()
    more = options(tmp_path, timesteps=first.env_steps + 100, time_scale=2.0, hyperparameters={**SMALL, "lr": 5e-4})
    second = train(more, resume=RunDirectory.existing(tmp_path, "r", ""), report=report)
    assert (second.before, second.stopped_by) == (first.env_steps, None)
    assert "lr: 0.001 before, 0.0005 now" in report.told
    assert any(text.startswith("going on from checkpoint") for text in report.told)
    last = CheckpointStore(run.checkpoints).last
    assert last is not None
    assert second.model == last.path
    assert (last.env_steps, last.facts["backend"], last.facts["algorithm"]) == (second.env_steps, "rllib", "PPO")
    assert last.facts["episodes"] == second.episodes == len(rows_of(run.episodes))
    assert last.facts["iterations"] == len(rows_of(run.path / "progress.csv"))
    assert float(rows_of(run.path / "progress.csv")[-1]["train/default_optimizer_learning_rate"]) == 5e-4
    with pytest.raises(ConfigurationError, match="reached its timesteps already"):
        train(options(tmp_path, timesteps=300), resume=RunDirectory.existing(tmp_path, "r", ""))


@pytest.mark.exhaustive
def test_an_engine_that_is_lost_too_often_ends_the_run(tmp_path: Path) -> None:
    engine = chaos_command(fault="crash", after=150)
    outcome = train(options(tmp_path, engine=engine, restarts="1/60s", timesteps=100_000, num_env_runners=1))
    assert isinstance(outcome.stopped_by, RestartsSpent)
    assert outcome.crash is None
    assert outcome.restarts >= 1
    assert outcome.saved == outcome.env_steps > 0


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive), signal.SIGTERM])
def test_a_signal_ends_and_saves(tmp_path: Path, number: int) -> None:
    report = Noted(lambda: os.kill(os.getpid(), number))
    report.signalled = report.told.append  # type: ignore[method-assign]
    outcome = train(options(tmp_path, timesteps=1_000_000, num_env_runners=0), report=report)
    assert isinstance(outcome.stopped_by, RunStopped)
    assert outcome.stopped_by.signal == number
    assert outcome.saved == outcome.env_steps > 0
    assert any("stopping" in text for text in report.told)


@pytest.mark.exhaustive
@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_an_env_runner_that_is_killed_comes_back(tmp_path: Path) -> None:
    def kill() -> None:
        ours = psutil.Process().children(recursive=True)
        next(process for process in ours if "ray::UnrealEnvRunner" in " ".join(process.cmdline())).kill()

    outcome = train(options(tmp_path, timesteps=2500), report=Noted(kill))
    assert outcome.stopped_by is None
    assert outcome.env_steps >= 2500


@pytest.mark.parametrize(
    ("more", "kind", "text"),
    [
        ({"engine": "false --port {port}", "start_timeout": 10}, EngineNotStarted, "exit code 1"),
        ({"hyperparameters": {"num_epoch": 3}}, ConfigurationError, "Did you mean 'num_epochs'"),
        ({"hyperparameters": {"model_config": {"hiddens": [3]}}}, ConfigurationError, "no such setting"),
        ({"hyperparameters": {"minibatch_size": 9999}}, ConfigurationError, "minibatch_size"),
        ({"url": "127.0.0.1:1"}, ConfigurationError, "an engine serves one env runner"),
        (
            {"algo": "dqn", "env": "Pendulum-v1", "hyperparameters": {}, "num_env_runners": 0},
            ConfigurationError,
            "dqn does not learn with the actions",
        ),
        ({"num_env_runners": 0, "num_gpus_per_learner": 1}, ConfigurationError, "this process learns, and has no GPU"),
        ({"env": "CartPole-v9"}, ConfigurationError, "Gymnasium cannot make"),
        ({"num_env_runners": 9, "start_timeout": 0.1}, ConfigurationError, "expected 9 CPUs.* of 2 CPUs are free"),
    ],
)  # fmt: skip
def test_what_cannot_be_leaves_nothing_behind(tmp_path: Path, more: dict[str, Any], kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        train(options(tmp_path, **more))
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("algo", ["sac", "impala"])
def test_other_algorithms(tmp_path: Path, algo: str) -> None:
    given: dict[str, Any] = {"train_batch_size_per_learner": 64, "model_config": {"fcnet_hiddens": [16]}}
    if algo == "sac":
        given["num_steps_sampled_before_learning_starts"] = 250
        given["replay_buffer_config"] = {"type": "EpisodeReplayBuffer", "capacity": 1000}
    env = "Pendulum-v1" if algo == "sac" else None
    more: dict[str, Any] = {"num_env_runners": 0, "eval_episodes": 2, "export": True} if algo == "sac" else {}
    outcome: RunResult = train(options(tmp_path, algo=algo, env=env, timesteps=300, hyperparameters=given, **more))
    assert outcome.stopped_by is None
    assert outcome.saved == outcome.env_steps >= 300
    assert outcome.model is not None
    facts = json.loads((outcome.model / "manifest.json").read_text())
    assert facts["algorithm"] == algo.upper()
    if algo != "sac":
        return
    assert (outcome.model / "replay_buffer.pkl").exists()
    assert outcome.evaluation is not None
    assert outcome.evaluation[0] == pytest.approx(np.mean(pendulums(outcome.run.onnx, 500_000_001, 2)), abs=0.5)


def pendulums(model: Path, seed: int, count: int) -> list[float]:
    """Returns of the policy in the file, in envs that were reset with seed, seed + 1 and so on."""
    import gymnasium as gym

    policy, returns = OnnxInference(model), []
    for number in range(count):
        env = gym.make("Pendulum-v1")
        obs, over, total = env.reset(seed=seed + number)[0], False, 0.0
        while not over:
            obs, reward, terminated, truncated, _ = env.step(policy.run_inference(obs[None])[0])
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def test_episodes_of_runners_that_play_at_once_are_in_the_order_of_their_ends() -> None:
    def episode(at: int, value: float) -> EpisodeSummary:
        return EpisodeSummary(at, value, 1, 0.0)

    played = {
        1: [RunnerProgress(10, [episode(5, 1)], []), RunnerProgress(10, [episode(10, 2)], [])],
        2: [RunnerProgress(20, [episode(2, 3), episode(16, 4)], [])],
    }
    found = [(at, each.value) for at, each in in_order(played, 100)]
    assert found == [(104, 3), (110, 1), (132, 4), (140, 2)]
