"""The search spaces: each algorithm of Stable-Baselines3's has one, and takes what is drawn from it."""

from __future__ import annotations

import optuna
import pytest

from ue_rl.training.algorithms import ALGORITHMS, OFF_POLICY
from ue_rl.training.config import resolve
from ue_rl.training.loading import check_arguments
from ue_rl.training.models import known_algorithm
from ue_rl.training.tuning.spaces import SPACES, suggest


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_algorithm_takes_what_is_drawn(algo: str) -> None:
    options = resolve({"algo": algo, "num_envs": 6, "timesteps": 50_000}, None)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    for _ in range(20):
        trial = study.ask()
        hyper = suggest(trial, options)
        check_arguments(known_algorithm(algo), hyper)
        assert set(hyper) - {"gradient_steps", "policy_kwargs"} <= set(SPACES[algo])
        assert all(isinstance(size, int) for size in hyper["policy_kwargs"]["net_arch"])
        assert 0.8 <= hyper["gamma"] < 1.0
        if algo in OFF_POLICY:
            assert hyper["gradient_steps"] == hyper["train_freq"]
            assert hyper["learning_starts"] <= 10_000
        elif algo != "a2c":
            assert hyper["n_steps"] * 6 % hyper["batch_size"] == 0
            assert hyper["n_steps"] * 6 <= 5_000


def test_what_is_given_is_not_searched() -> None:
    given = {"gamma": 0.5, "batch_size": 7, "policy_kwargs": {"net_arch": [3]}}
    options = resolve({"hyperparameters": given}, None)
    trial = optuna.create_study().ask()
    hyper = suggest(trial, options)
    assert {name: hyper[name] for name in given} == given
    assert not {"1 - gamma", "batch_size", "policy_kwargs.net_arch"} & set(trial.params)
    assert options.hyperparameters["policy_kwargs"] == {"net_arch": [3]}
