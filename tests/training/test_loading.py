"""Loading a model to learn on: what hyperparameters do to it, and every way in which a file can be wrong."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
import torch
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from ue_rl.system.errors import ConfigurationError
from ue_rl.training.algorithms import CLASS_NAMES
from ue_rl.training.config import resolve
from ue_rl.training.hyperparameters import APPLIED
from ue_rl.training.loading import (
    check_arguments,
    check_model,
    find_start,
    init_arguments,
    load_model,
    load_statistics,
)
from ue_rl.training.options import TrainOptions

# What each hyperparameter is changed to from a tiny model's own, so that STEPS of learning show it.
_ROLLOUT = {"n_steps": 8, "batch_size": 8}
_REPLAY = {"learning_starts": 8, "batch_size": 8, "buffer_size": 200, "train_freq": 1}
BASE: dict[str, dict[str, Any]] = {
    "ppo": {**_ROLLOUT, "n_epochs": 2}, "recurrentppo": {**_ROLLOUT, "n_epochs": 2}, "a2c": {"n_steps": 8},
    "trpo": _ROLLOUT, "sac": {**_REPLAY, "gradient_steps": 2}, "tqc": {**_REPLAY, "gradient_steps": 2},
    "td3": _REPLAY, "ddpg": _REPLAY, "dqn": {**_REPLAY, "target_update_interval": 2, "exploration_fraction": 0.6},
    "qrdqn": {**_REPLAY, "target_update_interval": 2, "tau": 0.9, "exploration_fraction": 0.6},
}  # fmt: skip
CHANGED: dict[str, Any] = {
    "learning_rate": 0.05, "n_steps": 4, "gamma": 0.5, "gae_lambda": 0.3, "ent_coef": 0.5, "vf_coef": 3.0,
    "max_grad_norm": 1e-4, "normalize_advantage": None, "batch_size": 4, "n_epochs": 5, "clip_range": 1e-6,
    "clip_range_vf": 1e-6, "target_kl": 1e-9, "tau": 0.5, "train_freq": 4, "gradient_steps": 3, "learning_starts": 60,
    "target_update_interval": 4, "target_entropy": 5.0, "policy_delay": 1, "target_policy_noise": 3.0,
    "target_noise_clip": 0.0, "exploration_fraction": 1.0, "exploration_initial_eps": 0.0,
    "exploration_final_eps": 1.0, "top_quantiles_to_drop_per_net": 10, "cg_max_steps": 1, "cg_damping": 5.0,
    "line_search_shrinking_factor": 0.1, "line_search_max_iter": 1, "n_critic_updates": 2, "sub_sampling_factor": 2,
}  # fmt: skip
STEPS = {"sac": 8, "dqn": 48, "qrdqn": 48}  # of the others: 16
SELDOM = ("a2c", "recurrentppo", "trpo", "ddpg", "td3", "tqc", "qrdqn")  # the siblings of PPO, SAC and DQN
SEEN_ELSEWHERE = ("line_search_shrinking_factor", "line_search_max_iter")  # act where a step is too long: attributes


def kind_of(algo: str) -> Any:
    name = CLASS_NAMES.get(algo, algo.upper())
    return getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)


def make_env(algo: str, num_envs: int = 2) -> VecEnv:
    make: Any = PendulumEnv if algo in ("sac", "tqc", "td3", "ddpg") else CartPoleEnv

    def one() -> Any:  # small rewards: gradients of large errors are cut to the same length
        return gymnasium.wrappers.TransformReward(gymnasium.wrappers.TimeLimit(make(), 20), lambda r: float(r) / 100)

    return DummyVecEnv([one] * num_envs)


def weights(model: Any) -> Any:
    return torch.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Makes a tiny model of an algorithm once: (class, model.zip)."""
    folder, made = tmp_path_factory.mktemp("models"), {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def make(algo: str) -> tuple[Any, Path]:
        if algo not in made:
            policy = "MlpLstmPolicy" if algo == "recurrentppo" else "MlpPolicy"
            nets = {"net_arch": [8], **({"lstm_hidden_size": 8} if algo == "recurrentppo" else {})}
            with closing(make_env(algo)) as env:
                model = kind_of(algo)(policy, env, seed=1, device="cpu", policy_kwargs=nets, **BASE[algo])
                model.learn(32)
                model.save(folder / f"{algo}.zip")
            made[algo] = kind_of(algo), folder / f"{algo}.zip"
        return made[algo]

    yield make
    torch.set_num_threads(threads)


def learnt(kind: Any, algo: str, path: Path, **arguments: Any) -> Any:
    with closing(make_env(algo)) as env:
        model = load_model(kind, path, env, TrainOptions(algo=algo, device="cpu"), **arguments)
        env.seed(3)
        model.learn(STEPS.get(algo, 16), reset_num_timesteps="learning_starts" in arguments)
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "algo",
    [
        pytest.param(algo, marks=pytest.mark.exhaustive if algo in SELDOM else ())
        for algo in APPLIED
        if algo != "maskable_ppo"
    ],
)
def test_what_is_applied_takes_effect(saved: Any, algo: str) -> None:
    """A model that goes on with another value learns other weights than one that goes on with its own."""
    kind, path = saved(algo)
    same, again = learnt(kind, algo, path), learnt(kind, algo, path)
    assert torch.equal(weights(same), weights(again))
    names = ("learning_rate", *APPLIED[algo])
    assert set(names) <= set(CHANGED)
    for name in names:
        value = CHANGED[name] if name != "normalize_advantage" else not getattr(same, name)
        model = learnt(kind, algo, path, **{name: value})
        if name not in SEEN_ELSEWHERE:
            assert not torch.equal(weights(model), weights(same)), name
        now = getattr(model, name)
        now = now(1.0) if callable(now) else now
        assert getattr(now, "frequency", now) == value, name
        if hasattr(getattr(model, "rollout_buffer", None), name):
            assert getattr(model.rollout_buffer, name) == value
    with closing(make_env(algo)) as env:
        assert load_model(kind, path, env, TrainOptions(algo=algo), learning_rate=0.25).lr_schedule(0.3) == 0.25


def test_a_new_run_with_old_weights_takes_what_can_change(saved: Any) -> None:
    kind, path = saved("sac")
    options = TrainOptions(
        algo="sac", seed=5, hyperparameters={"buffer_size": 64, "gamma": 0.5, "train_freq": [2, "step"]}
    )
    with closing(make_env("sac")) as env:
        model: Any = load_model(kind, path, env, options, **init_arguments(options))
    assert (model.replay_buffer.buffer_size, model.gamma, model.seed, model.train_freq.frequency) == (32, 0.5, 5, 2)
    options.hyperparameters["policy_kwargs"] = {"net_arch": [4]}
    with pytest.raises(ConfigurationError, match=r"a model that is loaded decides it.*policy_kwargs"):
        init_arguments(options)


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (PPO, {"gama": 1}, "does not take these arguments .*gama.*Did you mean 'gamma'"),
        (PPO, {"gamma": "high"}, "expected a number; got 'high'"),
        (PPO, {"gamma": True}, "expected a number"),
        (PPO, {"n_steps": 2.5}, "expected an integer"),
        (PPO, {"normalize_advantage": 1}, "expected true or false"),
        (PPO, {"learning_rate": "fast"}, "expected a number"),
        (PPO, {"batch_size": 1}, "batch_size"),
        (PPO, {"n_epochs": [2]}, "expected an integer"),
        (SAC, {"buffer_size": "big"}, "expected an integer"),
    ],
)
def test_arguments_are_named_before_anything_is_learnt(kind: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        check_arguments(kind, arguments)


def test_arguments_that_fit() -> None:
    check_arguments(SAC, {"ent_coef": "auto_0.1", "train_freq": (1, "episode"), "policy_kwargs": {"net_arch": [8]}})
    check_arguments(SAC, {"ent_coef": 1, "learning_rate": lambda left: left})
    check_arguments(PPO, {"target_kl": None, "clip_range_vf": 0.2, "gamma": 1})
    check_arguments(A2C, {"rms_prop_eps": 1e-5})
    check_arguments(DQN, {"train_freq": 4})


def a_zip(path: Path, content: bytes = b"{}") -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", content)


def flipped(path: Path) -> None:
    a_zip(path, json.dumps({"num_timesteps": 5, "long": "x" * 500}).encode())
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no zip"),
        lambda path: path.write_bytes(b"PK\3\4 torn"),
        a_zip,
        lambda path: a_zip(path, b"\xff"),
        lambda path: a_zip(path, b"[]"),
        lambda path: a_zip(path, b'{"num_timesteps": "x"}'),
        flipped,
        os.mkfifo,
    ],
)
def test_a_broken_model_is_one_sentence(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "model.zip"
    make(path)
    for call in (lambda: check_model(path, "init_from"), lambda: find_start(TrainOptions(init_from=str(path)))):
        with pytest.raises(ConfigurationError, match=r"is not a model that Stable-Baselines3 has saved") as caught:
            call()
        assert "\n" not in str(caught.value)


def test_what_unpickling_raises_is_one_sentence(saved: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    a_zip(path, b'{"num_timesteps": 5, "policy_class": {":type:": "x", ":serialized:": "gASV"}}')
    with closing(make_env("ppo")) as env:
        with pytest.raises(ConfigurationError, match="cannot be continued with ppo"):
            load_model(PPO, path, env, TrainOptions())
        (tmp_path / "v.pkl").write_bytes(b"\x80\x04 torn")
        with pytest.raises(ConfigurationError, match=r"v.pkl cannot be used"):
            load_statistics(tmp_path / "v.pkl", env)
        with pytest.raises(ConfigurationError, match="no such file"):
            load_statistics(tmp_path / "none.pkl", env)
    kind, path = saved("sac")
    with closing(make_env("ppo")) as env, pytest.raises(ConfigurationError, match="its observations differ"):
        load_model(kind, path, env, TrainOptions(algo="sac"))


def a_run(path: Path, model: Path, **options: Any) -> Path:
    (path / "checkpoints").mkdir(parents=True)
    (path / "config.yaml").write_text(TrainOptions(**options).as_yaml())
    (path / "model.zip").write_bytes(model.read_bytes())
    (path / "checkpoints" / "100_steps.zip").write_bytes(model.read_bytes())
    return path


def test_init_from_takes_a_model_a_checkpoint_or_a_run(saved: Any, tmp_path: Path) -> None:
    _, model = saved("ppo")
    assert find_start(TrainOptions(init_from=str(model))) == (model, None, [])
    run = a_run(tmp_path / "run", model)
    start = find_start(TrainOptions(init_from=str(run)))
    assert start == (run / "model.zip", None, [f"init_from: {run / 'model.zip'}"])
    with pytest.raises(ConfigurationError, match=r"there is no model .*nope\.zip") as caught:
        find_start(TrainOptions(init_from=str(tmp_path / "nope.zip")))
    assert caught.value.field == "init_from"
    with pytest.raises(ConfigurationError, match=r"another algorithm.*expected ppo; got a2c"):
        find_start(TrainOptions(algo="a2c", init_from=str(run)))


def test_init_from_a_model_of_another_game_says_what_differs(saved: Any) -> None:
    kind, model = saved("ppo")
    options = TrainOptions(init_from=str(model))
    with closing(DummyVecEnv([PendulumEnv])) as env, pytest.raises(ConfigurationError) as caught:
        load_model(kind, model, env, options)
    text = str(caught.value)
    assert "a model of another game: its observations differ (field init_from)" in text
    assert "expected Box([..], [..], (3,), float32); got Box([..], [..], (4,), float32)" in text
    assert "leave --init-from out" in text


def test_init_from_a_model_without_its_statistics_is_never_silent(saved: Any, tmp_path: Path) -> None:
    _, model = saved("ppo")
    run = a_run(tmp_path / "run", model, normalize=True)
    for path in (run / "model.zip", run / "checkpoints" / "100_steps.zip"):
        with pytest.raises(ConfigurationError, match="their statistics are missing"):
            find_start(TrainOptions(init_from=str(path)))
    statistics = run / "checkpoints" / "100_steps_vecnormalize.pkl"
    with closing(make_env("ppo")) as env:
        wrapped = VecNormalize(env)
        wrapped.obs_rms.mean = np.full(4, 7.0)  # type: ignore[union-attr]
        wrapped.save(str(statistics))
        assert find_start(TrainOptions(init_from=str(path))).normalize == statistics
        assert load_statistics(statistics, env).obs_rms.mean[0] == 7.0  # type: ignore[union-attr]
        env.action_space = gymnasium.spaces.Discrete(3)
        with pytest.raises(ConfigurationError, match=r"Action spaces do not match: Discrete\(2\) != Discrete\(3\)"):
            load_statistics(statistics, env)
    (said,) = find_start(TrainOptions(init_from=str(model), normalize=True)).said
    assert "normalization begins anew" in said


def test_init_from_asks_for_the_statistics_that_a_zip_shows_to_be_missing(tmp_path: Path) -> None:
    path, statistics = tmp_path / "a_64_steps.zip", tmp_path / "a_vecnormalize_64_steps.pkl"
    with closing(make_env("ppo")) as env:
        wrapped = VecNormalize(env)
        PPO("MlpPolicy", wrapped, n_steps=16, batch_size=16, device="cpu").learn(32).save(path)
        wrapped.save(str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigurationError, match=r"are missing.*a_vecnormalize_64_steps.pkl.*--vecnormalize"):
        find_start(TrainOptions(init_from=str(path)))
    assert find_start(TrainOptions(init_from=str(path), vecnormalize="none")).normalize is None
    given = TrainOptions(init_from=str(path), vecnormalize=str(tmp_path / "elsewhere"))
    assert find_start(given).normalize == tmp_path / "elsewhere"
    with pytest.raises(ConfigurationError, match=r"no file .*nope.pkl \(field vecnormalize"):
        find_start(TrainOptions(init_from=str(path), vecnormalize="nope.pkl"))
    (tmp_path / "elsewhere").rename(statistics)
    assert find_start(TrainOptions(init_from=str(path))).normalize == statistics
    with pytest.raises(ConfigurationError, match=r"a model that is not given \(field vecnormalize\).*--init-from"):
        resolve({"vecnormalize": "none"}, None)
