"""Warnings while a model learns."""

from __future__ import annotations

import math
from typing import Any

import pytest
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env

import ue_rl
from tests.harness.lab import Lab
from ue_rl.bridges import run_in_thread
from ue_rl.training import symptoms
from ue_rl.training.watching import Watching


def test_a_game_without_ends_and_rewards_is_named_while_it_is_learnt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(symptoms.Symptoms.__init__, "__kwdefaults__", {"long": 40, "enough": 20})
    said: list[str] = []
    with run_in_thread(Lab(2)) as server:
        env = ue_rl.connect(server.url)
        model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu", seed=0)
        model.learn(128, callback=Watching(said.append))
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
    model.learn(300, callback=CallbackList([_Breaks(), Watching(said.append)]))
    assert len(said) == 1
    assert said[0].startswith("train/loss is nan after ")
