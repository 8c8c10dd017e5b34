"""An Algorithm with UnrealEnvRunner: training, and evaluation by whole episodes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")

from ray.rllib.algorithms.ppo import PPOConfig

import ue_rl.plugins.rllib
from ue_rl.plugins.rllib import UnrealEnvRunner


@pytest.mark.exhaustive
def test_evaluation_by_episodes(cluster: None) -> None:
    ue_rl.plugins.rllib.register()
    config: Any = PPOConfig().environment("ue_rl", env_config={"env": "CartPole-v1"})
    config.env_runners(env_runner_cls=UnrealEnvRunner, num_env_runners=0, num_envs_per_env_runner=4)
    config.training(train_batch_size_per_learner=200, minibatch_size=100, num_epochs=1)
    config.evaluation(
        evaluation_interval=1,
        evaluation_duration=6,
        evaluation_duration_unit="episodes",
        evaluation_config={"explore": False, "num_envs_per_env_runner": 2},
    )
    algorithm = config.build_algo()
    try:
        for _ in range(2):
            result = algorithm.train()
            assert result["evaluation"]["env_runners"]["num_episodes"] == 6
            assert result["evaluation"]["env_runners"]["episode_len_mean"] > 5
            assert 200 <= result["env_runners"]["num_env_steps_sampled"] < 204
        assert algorithm.eval_env_runner.batched
        assert algorithm.eval_env_runner.config.in_evaluation
        assert result["env_runners"]["num_env_steps_sampled_lifetime"] >= 400
    finally:
        algorithm.stop()
