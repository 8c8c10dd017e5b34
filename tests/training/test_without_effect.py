"""What is given and would do nothing is said, before the first step."""

from __future__ import annotations

from typing import Any

import pytest

from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.envs.connect import connect
from ue_rl.training.config import resolve
from ue_rl.training.models import longer_than_asked, new_model, without_effect


@pytest.mark.parametrize(
    ("algo", "hyper", "more", "words"),
    [
        (
            "sac",
            {"target_update_interval": 1000},
            {},
            ["target_update_interval=1000 has no effect", "1 gradient steps"],
        ),
        ("tqc", {"target_update_interval": 3, "gradient_steps": 2}, {}, ["target_update_interval=3 has no effect"]),
        ("sac", {"target_update_interval": 2, "gradient_steps": -1}, {}, []),  # two envs: two steps in each update
        ("sac", {"target_update_interval": 8, "gradient_steps": 8, "train_freq": 4}, {}, []),
        (
            "sac",
            {"target_update_interval": 8, "gradient_steps": 8, "train_freq": 4},
            {"overlap": True},
            ["2 gradient steps here"],
        ),
        ("sac", {"target_entropy": -3.0, "ent_coef": 0.1}, {}, ["target_entropy has no effect"]),
        ("sac", {"target_entropy": -3.0, "ent_coef": "auto_0.1"}, {}, []),
        ("ppo", {"sde_sample_freq": 4}, {}, ["sde_sample_freq has no effect without use_sde"]),
        ("ppo", {"sde_sample_freq": 4, "use_sde": True}, {}, []),
    ],
)
def test_hyperparameters_that_do_nothing_are_said(
    algo: str, hyper: dict[str, Any], more: dict[str, Any], words: list[str]
) -> None:
    with run_in_thread(GymnasiumBridge("Pendulum-v1", 2)) as engine:
        options = resolve(
            {"algo": algo, "url": engine.url, "hyperparameters": {**hyper}, "device": "cpu", **more}, None
        )
        env = connect(engine.url)
        said = without_effect(options, new_model(options, env, lambda _: None))
        env.close()
    assert len(said) == bool(words)
    assert all(word in said[0] for word in words)


@pytest.mark.parametrize(
    ("hyper", "more", "words"),
    [
        ({}, {"timesteps": 3000}, ["3,000", "4,096 env-steps", "n_steps=2048", "2 envs"]),
        ({"n_steps": 64, "batch_size": 64}, {"timesteps": 128}, []),
        ({"n_steps": 64, "batch_size": 64}, {"timesteps": 127}, ["128 env-steps"]),
        ({"n_steps": 64, "batch_size": 64}, {"timesteps": 200}, []),
    ],
)
def test_a_run_that_is_shorter_than_a_rollout_is_said(
    hyper: dict[str, Any], more: dict[str, Any], words: list[str]
) -> None:
    with run_in_thread(GymnasiumBridge("Pendulum-v1", 2)) as engine:
        options = resolve({"url": engine.url, "hyperparameters": hyper, "device": "cpu", **more}, None)
        env = connect(engine.url)
        said = longer_than_asked(options, new_model(options, env, lambda _: None))
        env.close()
    assert len(said) == bool(words)
    assert all(word in said[0] for word in words)
