"""Which options a backend has. Without Ray."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from ue_rl.system.errors import ConfigurationError
from ue_rl.training import TrainOptions, train
from ue_rl.training.comparison import compare
from ue_rl.training.config import resolve
from ue_rl.training.hyperparameters import tuned_for
from ue_rl.training.report import TrainingReport
from ue_rl.training.writing import Episodes

SB3_ONLY: dict[str, Any] = {
    "policy": "MlpPolicy", "normalize": True, "device": "cuda", "max_episode_steps": 9, "init_from": "x.zip",
    "verbose": 1, "channel": "shared", "nul_terminated": True, "curriculum": {"lessons": []},
    "her": {"n_sampled_goal": 4}, "group": "red", "others": {"red": "random"}, "self_play": {"save_steps": 5},
}  # fmt: skip
RLLIB_ONLY = {"num_env_runners": 2, "ray_address": "auto", "num_learners": 0, "num_gpus_per_learner": 0.5}


@pytest.mark.parametrize("name", SB3_ONLY)
def test_rllib_has_no_options_of_sb3(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"does not have this option .*(--backend sb3|eave it out)") as caught:
        resolve({"backend": "rllib", name: SB3_ONLY[name]}, None)
    assert caught.value.field == name


@pytest.mark.parametrize("name", RLLIB_ONLY)
def test_sb3_has_no_options_of_rllib(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"an option of RLlib .*--backend rllib") as caught:
        resolve({name: RLLIB_ONLY[name]}, None)
    assert caught.value.field == name
    assert getattr(resolve({"backend": "rllib", name: RLLIB_ONLY[name]}, None), name) == RLLIB_ONLY[name]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"backend": "rlib"}, "no such backend .*did you mean 'rllib'"),
        ({"backend": "rllib", "algo": "td3"}, "not offered with this algorithm .*Train with --backend sb3"),
        ({"backend": "rllib", "algo": "apo"}, "[Dd]id you mean 'appo'"),
        ({"algo": "impala"}, "no such algorithm .*Train with --backend rllib"),
        ({"backend": "rllib", "num_env_runners": -1}, "an integer from 0"),
        ({"backend": "rllib", "num_gpus_per_learner": "one"}, "a number from 0"),
        ({"backend": "rllib", "hyperparameters": {"n_steps": 5}}, "train_batch_size_per_learner"),
        ({"backend": "rllib", "hyperparameters": {"n_epochs": 5}}, "num_epochs"),
        ({"backend": "rllib", "hyperparameters": {"train_batch_size": 5}}, "old API stack .*size_per_learner"),
        ({"backend": "rllib", "hyperparameters": {"model": {}}}, "old API stack .*model_config"),
        ({"backend": "rllib", "hyperparameters": {"adam_epsilon": 1e-5}}, "old API stack"),
        ({"backend": "rllib", "hyperparameters": {"learning_rate": 1, "lr": 1}}, "the same as lr"),
        ({"backend": "rllib", "hyperparameters": {"learning_rate": "lin_x"}}, "not a schedule"),
        ({"backend": "rllib", "hyperparameters": {"policy_kwargs": {"ortho_init": True}}}, "model_config"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(flags: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text.replace("did", "[Dd]id")):
        resolve(flags, None)


def test_words_of_both_backends_become_rllibs() -> None:
    given = {"learning_rate": 0.1, "batch_size": 32, "policy_kwargs": {"net_arch": [8]}, "entropy_coeff": 0.01}
    options = resolve({"backend": "rllib", "engine": "x", "hyperparameters": given}, None)
    made = tuned_for(options)
    assert (made["lr"], made["minibatch_size"], made["entropy_coeff"]) == (0.1, 32, 0.01)
    assert made["model_config"] == {"fcnet_hiddens": [8]}
    assert made["num_epochs"] == 10  # a default of ours
    assert options.hyperparameters == given  # as config.yaml has them
    sac = resolve({"backend": "rllib", "algo": "sac", "hyperparameters": {"batch_size": 32}}, None)
    assert tuned_for(sac) == {"train_batch_size_per_learner": 32}


def test_defaults_of_a_task_yield_to_what_is_given() -> None:
    options = resolve({"backend": "rllib", "hyperparameters": {"model_config": {"fcnet_activation": "relu"}}}, None)
    assert tuned_for(options)["model_config"] == {
        "fcnet_hiddens": [64, 64],
        "vf_share_layers": False,
        "fcnet_activation": "relu",
    }
    assert tuned_for(options)["lr"] == "lin_0.001"


def test_runs_of_the_backends_have_names_of_their_own() -> None:
    assert resolve({}, None).run_name == "ppo-CartPole-v1"
    assert resolve({"backend": "rllib"}, None).run_name == "rllib-ppo-CartPole-v1"


def test_what_finds_a_run_need_not_name_its_backend() -> None:
    assert resolve({"num_env_runners": 4, "algo": "impala"}, None, resumed=True).num_env_runners == 4


@pytest.mark.parametrize(
    ("now", "text"),
    [
        ({"backend": "sb3"}, "backend.*begin a new run"),
        ({"algo": "appo"}, "algo"),
        ({"hyperparameters": {"model_config": {"fcnet_hiddens": [8]}}}, "hyperparameters.model_config"),
    ],
)
def test_what_a_resumed_run_cannot_change(now: dict[str, Any], text: str) -> None:
    saved = {"backend": "rllib", "algo": "ppo"}
    with pytest.raises(ConfigurationError, match=text) as caught:
        compare(saved, resolve({}, None, base={**saved, **now}), Path("run"))
    assert "--init-from" not in str(caught.value)


def test_what_a_resumed_run_changes_is_said() -> None:
    saved = {"backend": "rllib", "hyperparameters": {"lr": 0.1}}
    options = resolve({"hyperparameters": {"lr": 0.2, "gamma": 0.9}, "num_env_runners": 4}, None, base=saved)
    found = compare(saved, options, Path("run"))
    assert found.said == [
        "num_env_runners: none before, 4 now",
        "lr: 0.1 before, 0.2 now",
        "gamma: 0.99 before, 0.9 now",
    ]


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_a_sentence_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"needs Ray.*pip install 'ue_rl\[train,rllib\]' -c constraints.txt"):
        train(TrainOptions(backend="rllib", log_dir=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_episodes_are_written_and_told(tmp_path: Path) -> None:
    told: list[tuple[int, int, float | None]] = []

    class Noted(TrainingReport):
        def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:
            told.append((env_steps, total, mean_return))

    episodes = Episodes(tmp_path / "episodes.csv", Noted(), 50)
    assert (episodes.mean_return, episodes.mean_length) == (None, None)
    for steps in (3, 8):
        episodes.add(steps, 2.0 * steps, steps, 0.5)
        episodes.at(steps)
    episodes.close()
    assert (episodes.count, episodes.mean_return, episodes.mean_length) == (2, 11.0, 5.5)
    assert told[-1] == (8, 50, 11.0)
    rows = (tmp_path / "episodes.csv").read_text().split()
    assert rows == ["env_steps,return,length,seconds", "3,6.0,3,0.5", "8,16.0,8,0.5"]
