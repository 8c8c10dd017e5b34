"""The random numbers of a run: none of the env's are drawn twice, and threads change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO, SAC

from tests.support.command_line import ok
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.agents.players import RandomPlayer
from ue_rl.envs.spaces import action_space
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.seeds import own_seed, own_stream
from ue_rl.training import train
from ue_rl.training.config import resolve


class Windy(gym.Env[Any, Any]):
    """An observation is the wind of the step, drawn as the actions are; `seen` has the pairs of all steps."""

    observation_space: Any = spaces.Box(-1, 1, (1,), np.float32)
    action_space: Any = spaces.Box(-1, 1, (1,), np.float32)
    seen: ClassVar[list[tuple[float, float]]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        self._wind = self._drawn()
        return np.array([self._wind], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Windy.seen.append((self._wind, float(action[0])))
        self._steps += 1
        self._wind = self._drawn()
        return np.array([self._wind], np.float32), 0.0, self._steps >= 10, False, {}

    def _drawn(self) -> float:
        return float(self.np_random.uniform(-1, 1, (1,)).astype(np.float32)[0])


@pytest.fixture
def windy() -> Any:
    Windy.seen = []
    with run_in_thread(GymnasiumBridge(Windy, 1)) as engine:
        yield engine


def _random_actions_are_not_the_winds() -> None:
    seen = np.array(Windy.seen)
    assert len(seen) >= 20
    assert not np.isclose(seen[:, 0], seen[:, 1], atol=1e-6).any()


def test_random_actions_before_learning_are_none_of_the_envs_numbers(windy: Any, tmp_path: Path) -> None:
    given = {"algo": "sac", "url": windy.url, "seed": 3, "timesteps": 30, "log_dir": str(tmp_path), "device": "cpu"}
    run = train(resolve({**given, "run_id": "a", "export": False}, None)).run
    _random_actions_are_not_the_winds()
    Windy.seen = []
    more = {"init_from": str(run.path), "run_id": "b", "export": False}
    train(resolve({**given, **more}, None))
    _random_actions_are_not_the_winds()


def test_random_play_is_none_of_the_envs_numbers(windy: Any) -> None:
    ok("play --actor random --episodes 3 --seed 3", windy.url)
    _random_actions_are_not_the_winds()


def test_streams_are_their_own() -> None:
    spec = EnvSpec(num_envs=1, obs_size=1, act_size=1)
    spaces_own = np.random.default_rng(7).random()
    assert np.random.default_rng((7, 0)).random() == spaces_own, "why a pair does not do"
    drawn = {spaces_own, np.random.default_rng(own_stream(7, "actions")).random()}
    drawn |= {np.random.default_rng(own_stream(7, use, n)).random() for use in ("params", "opponents") for n in (0, 1)}
    assert len(drawn) == 6
    assert own_seed(None, "actions") is None
    assert own_seed(7, "actions") == own_seed(7, "actions") != own_seed(8, "actions")
    space = action_space(spec)
    space.seed(7)
    buffers = StepBuffers.of(spec)
    assert RandomPlayer(spec, 7).act(buffers).tolist() != ActionWriter(spec)(np.stack([space.sample()])).tolist()


@pytest.mark.parametrize(("algo", "kind"), [("ppo", PPO), pytest.param("sac", SAC, marks=pytest.mark.exhaustive)])
def test_another_number_of_threads_is_the_same_run(tmp_path: Path, algo: str, kind: Any) -> None:
    few = {"ppo": "--set n_steps=64 --set n_epochs=4", "sac": "--set learning_starts=64"}[algo]
    words = f"train --algo {algo} --timesteps 128 --seed 1 --no-export {few} --threads"
    weights = []
    try:
        for threads in (4, 1):
            with run_in_thread(GymnasiumBridge("Pendulum-v1", 1)) as engine:
                ok(words, threads, "--run-id", threads, "--log-dir", tmp_path, engine.url)
            assert torch.get_num_threads() == threads
            weights.append(kind.load(tmp_path / str(threads) / "model.zip").policy.state_dict())
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


class Seeded(Windy):
    """Keeps the seeds of its resets."""

    seeds: ClassVar[list[int]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            Seeded.seeds.append(seed)
        return super().reset(seed=seed, options=options)


def test_runs_with_neighbouring_seeds_play_no_episode_of_each_other(tmp_path: Path) -> None:
    """By SB3's rule, env i gets seed + i, env 1 of seed 0 is env 0 of seed 1, in all of its episodes."""
    Seeded.seeds = []
    with run_in_thread(GymnasiumBridge(Seeded, 4)) as engine:
        for seed in (0, 1, 0):
            given = {"url": engine.url, "seed": seed, "timesteps": 32, "log_dir": str(tmp_path)}
            more = {"run_id": f"{len(Seeded.seeds)}", "export": False, "eval_episodes": 0}
            train(resolve({**given, **more, "hyperparameters": {"n_steps": 8}}, None))
    assert len(Seeded.seeds) == 12
    first, second, again = (Seeded.seeds[begin : begin + 4] for begin in (0, 4, 8))
    assert first == again
    assert not set(first) & set(second)
    assert max(Seeded.seeds) < 2**30
