"""Warnings while a model learns."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env

import ue_rl
from tests.harness.lab import Lab
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.training.ends import EpisodeEnds
from ue_rl.training.symptoms import Symptoms
from ue_rl.training.watching import Watching


def test_a_game_without_ends_and_rewards_is_named_while_it_is_learnt(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    with run_in_thread(Lab(2)) as server:
        env = ue_rl.connect(server.url)
        model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu", seed=0)
        model.learn(128, callback=Watching(said.append, partial(Symptoms, long=40, enough=20)))
        env.close()
    assert [text.partition(" in ")[0] for text in said] == ["no episode has ended", "every reward was 0"]
    assert [record.getMessage() for record in caplog.records if record.name == "ue_rl.training.watching"] == said


class _Breaks(BaseCallback):
    def _on_rollout_start(self) -> None:
        self.logger.record("train/loss", math.nan)

    def _on_step(self) -> bool:
        return True


@pytest.mark.parametrize(("kind", "arguments"), [
    (PPO, {"n_steps": 32, "batch_size": 32, "n_epochs": 1}), (DQN, {"learning_starts": 1000, "buffer_size": 100}),
])  # fmt: skip
def test_a_loss_that_is_no_number_is_named_once(kind: Any, arguments: dict[str, Any]) -> None:
    said: list[str] = []
    model = kind("MlpPolicy", make_vec_env("CartPole-v1"), device="cpu", seed=0, **arguments)
    model.learn(128, callback=CallbackList([_Breaks(), Watching(said.append)]))
    assert len(said) == 1
    assert said[0].startswith("train/loss is nan after ")


class Lasts(gym.Env[Any, Any]):
    """Episodes of a length that `lengths` gives, in turns; ended by the game, or by a limit."""

    observation_space: Any = spaces.Box(-1, 1, (1,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, lengths: tuple[int, ...], limit: bool) -> None:
        self._lengths, self._limit = itertools.cycle(lengths), limit

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = next(self._lengths)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        over = self._left == 0
        return np.full(1, self._left / 100, np.float32), 1.0, over and not self._limit, over and self._limit, {}


@pytest.mark.parametrize(
    ("lengths", "limit", "words"),
    [
        ((12,), False, 1),
        ((12,), True, 0),
        ((12, 12, 12, 11), False, 0),
        ((4,), False, 0),  # the game's own
        ((5, 9, 11, *[12] * 60), False, 1),  # ends sooner at first, as random play does
    ],
)
def test_a_limit_that_is_sent_as_an_end_is_asked_for_once(lengths: tuple[int, ...], limit: bool, words: int) -> None:
    said: list[str] = []
    env = UnrealVecEnv(MemoryTransport(GymnasiumBridge(lambda: Lasts(lengths, limit), 2)))
    model = ue_rl.numpy_learner(PPO)("MlpPolicy", env, n_steps=200, batch_size=400, n_epochs=1, device="cpu", seed=0)
    model.learn(400, callback=EpisodeEnds(said.append))
    assert len(said) == words
    assert all("DONE after exactly 12 steps" in text and "TRUNC=1" in text for text in said)
