"""Options of a run as RLlib's AlgorithmConfig: what RLlib itself would find out in mid-run, or never. No cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")
pytest.importorskip("stable_baselines3", reason="training needs ue_rl[train]")

import gymnasium as gym
import numpy as np

from ue_rl.plugins.rllib.algorithms import algorithm_config, check_actions, env_config, lost_ends
from ue_rl.plugins.rllib.engines import register
from ue_rl.plugins.rllib.env_runner import cure_of
from ue_rl.system.errors import ConfigurationError
from ue_rl.training import TrainOptions


def config_of(folder: Path, algo: str = "ppo", **hyperparameters: Any) -> Any:
    register()
    options = TrainOptions(backend="rllib", algo=algo, engine="x {port}", hyperparameters=hyperparameters)
    return algorithm_config(options, folder, "nobody")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("lr", "fast", "a number from 0, or lin_0.001"),
        ("lr", float("nan"), "a number from 0"),
        ("lr", -0.1, "a number from 0"),
        ("gamma", "x", "a number from 0 to 1"),
        ("gamma", 5, "a number from 0 to 1"),
        ("lambda_", True, "a number from 0 to 1"),
        ("num_epochs", 0, "a positive integer"),
        ("minibatch_size", -4, "a positive integer"),
        ("train_batch_size_per_learner", 0, "a positive integer"),
        ("clip_param", "lin_0.2", "a number"),
        ("vf_clip_param", "x", "a number"),
        ("use_kl_loss", "x", "true or false"),
        ("model_config", {"fcnet_hiddens": 8}, "a list of positive integers"),
        ("model_config", {"fcnet_hiddens": [64, 0]}, "a list of positive integers"),
        ("model_config", {"fcnet_activation": "rely"}, "tanh, relu"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_refused_before_anything_starts(
    tmp_path: Path, name: str, value: Any, expected: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config_of(tmp_path, **{name: value})
    assert (caught.value.field or "").startswith(f"hyperparameters.{name}")
    assert expected in str(caught.value.expected)


@pytest.mark.parametrize(
    ("algo", "name", "value"),
    [
        ("ppo", "lr", [[0, 0.1], [1000, 0.0]]),
        ("ppo", "entropy_coeff", "lin_0.01"),
        ("ppo", "grad_clip", None),
        ("ppo", "model_config", {"fcnet_hiddens": [], "fcnet_activation": None}),
        ("sac", "target_entropy", "auto"),
        ("dqn", "epsilon", [[0, 1.0], [1000, 0.05]]),
        ("dqn", "n_step", [2, 5]),
        ("impala", "minibatch_size", None),
    ],
)
def test_what_rllib_takes_is_taken(tmp_path: Path, algo: str, name: str, value: Any) -> None:
    assert config_of(tmp_path, algo, **{name: value}) is not None


def test_without_a_seed_no_two_runs_play_the_same(tmp_path: Path) -> None:
    seeds = {env_config(TrainOptions(backend="rllib", engine="x {port}"), tmp_path)["seed"] for _ in range(3)}
    assert len(seeds) == 3
    options = [TrainOptions(backend="rllib", engine="x {port}", seed=seed) for seed in (0, 0, 1)]
    of_seed = [env_config(each, tmp_path)["seed"] for each in options]
    assert of_seed[0] == of_seed[1]
    assert abs(of_seed[0] - of_seed[2]) > 1000, "env i gets this number + i"


def test_envs_that_cannot_be_shared_out_are_refused_before_ray_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be shared out"):
        env_config(TrainOptions(backend="rllib", num_envs=8, num_engines=3), tmp_path)


def test_actions_that_an_algorithm_does_not_learn_with() -> None:
    box, choices = gym.spaces.Box(-1, 1, (1,)), gym.spaces.MultiDiscrete([2, 2])
    with pytest.raises(ConfigurationError, match=r"dqn does not learn .*ACT_SPACE.* expected Discrete"):
        check_actions(TrainOptions(backend="rllib", algo="dqn"), box)
    with pytest.raises(ConfigurationError, match=r"sac does not learn .* expected Box or Discrete"):
        check_actions(TrainOptions(backend="rllib", algo="sac"), choices)
    check_actions(TrainOptions(backend="rllib", algo="sac"), box)
    check_actions(TrainOptions(backend="rllib", algo="ppo"), choices)


@pytest.mark.parametrize(("n_step", "words"), [(1, ""), (3, "the last 2 states"), ([1, 5], "the last 4 states")])
def test_what_several_steps_at_once_lose_is_said(tmp_path: Path, n_step: Any, words: str) -> None:
    options = TrainOptions(backend="rllib", algo="dqn", hyperparameters={"n_step": n_step}, env="CartPole-v1")
    said = lost_ends(algorithm_config(options, tmp_path, "nobody"))
    assert words in said
    assert bool(said) == bool(words)


def test_observations_of_whole_numbers_are_to_blame_where_torch_refuses_them() -> None:
    refused = RuntimeError("mat1 and mat2 must have the same dtype, but got Byte and Float")
    whole = gym.spaces.Box(0, 255, (7,), np.uint8)
    assert "DtypeObservation" in cure_of(refused, whole)
    floats = gym.spaces.Box(0, 1, (7,), np.float32)
    for error, seen in ((ValueError("type"), whole), (refused, floats), (refused, None)):
        assert "losses that are not numbers" in cure_of(error, seen)
