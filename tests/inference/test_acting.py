"""What acts with a saved model loads its policy alone: not what its training needs, and not without its statistics."""

from __future__ import annotations

import copy
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from click.testing import CliRunner
from gymnasium import spaces
from sb3_contrib import TQC, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, HerReplayBuffer
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.support.models import BOX, RandomEnv, export_briefly, make, rows, vector
from ue_rl.bridges import GymnasiumBridge
from ue_rl.cli.common import WrongCommandLine
from ue_rl.cli.export import export
from ue_rl.cli.play import load_policy
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.inference import OnnxInference, ReloadingInference, Sb3Inference, load_and_export
from ue_rl.inference.export.models import load_sb3_model, on_cpu
from ue_rl.inference.export.safetensors import export_safetensors
from ue_rl.inference.statistics import statistics_of
from ue_rl.system.errors import ExportError, ModelLoadError
from ue_rl.training.models import new_model
from ue_rl.training.options import TrainOptions

DOUBLES = spaces.Box(-np.inf, np.inf, (4,), np.float64)  # as MuJoCo's envs observe


def linear_schedule(initial_value: float) -> Callable[[float], float]:
    """As Stable-Baselines3's documentation writes it."""

    def func(progress_remaining: float) -> float:
        return progress_remaining * initial_value

    return func


class MyNoise(ActionNoise):
    """Somebody's own: whoever only plays need not have it."""

    def __call__(self) -> Any:
        return np.zeros(2)


def agrees(model: Any, path: Path, seen: Any, file: Path) -> None:
    """What the zip and the file that `ue-rl export` makes of it do is what the model does."""
    want = np.asarray(model.predict(seen, deterministic=True)[0], np.float32).reshape(len(rows()), -1)
    np.testing.assert_array_equal(Sb3Inference(path).run_inference(seen), want)
    done = CliRunner().invoke(export, [str(path), "-o", str(file)])
    assert done.exit_code == 0, done.exception
    np.testing.assert_allclose(OnnxInference(file).run_inference(seen), want, atol=4e-5)


def test_a_policy_of_hindsight_replay_acts_and_is_exported(tmp_path: Path) -> None:
    env = BitFlippingEnv(n_bits=4, continuous=True)
    more = {"replay_buffer_kwargs": {"goal_selection_strategy": "final"}, "learning_starts": 8, "buffer_size": 64}
    more["policy_kwargs"] = {"net_arch": [16]}
    model = SAC("MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, device="cpu", seed=0, **more)
    model.learn(20)
    model.save(tmp_path / "model.zip")
    space = env.observation_space
    space.seed(0)
    drawn = [space.sample() for _ in rows()]
    seen = {key: np.stack([each[key] for each in drawn]) for key in space.spaces}
    agrees(model, tmp_path / "model.zip", seen, tmp_path / "policy.onnx")


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (DQN, {"action": spaces.Discrete(3), "buffer_size": 1_000_000}),
        (SAC, {"buffer_size": 1_000_000, "ent_coef": 0.2, "action_noise": MyNoise()}),
        (TQC, {"buffer_size": 1_000_000, "use_sde": True}),
        (PPO, {"n_steps": 8192, "learning_rate": linear_schedule(3e-4), "clip_range": linear_schedule(0.2)}),
        (A2C, {"use_sde": True, "policy_kwargs": {"optimizer_class": RMSpropTFLike, "net_arch": [8]}}),
        (RecurrentPPO, {"policy": "MlpLstmPolicy", "n_steps": 8192}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_no_trainer_is_made(
    algorithm: Any, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: BaseAlgorithm = make(algorithm, **{**options, "buffer_size": 8} if "buffer_size" in options else options)
    if "buffer_size" in options:
        model.buffer_size = options["buffer_size"]
    if "n_steps" in options:
        model.n_envs = 128
    model.save(tmp_path / "model.zip")

    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError("a buffer")

    for kind in (ReplayBuffer, RolloutBuffer):
        monkeypatch.setattr(kind, "reset", refuse)
        monkeypatch.setattr(kind, "__init__", refuse)
    drawn = th.get_rng_state()
    loaded = load_sb3_model(tmp_path / "model.zip")
    assert th.equal(th.get_rng_state(), drawn), "a run that exports in between would go on otherwise"
    assert type(loaded) is algorithm
    starts = {"episode_start": np.ones(64, bool)} if algorithm is RecurrentPPO else {}
    np.testing.assert_array_equal(
        loaded.predict(rows(), deterministic=True, **starts)[0], model.predict(rows(), deterministic=True, **starts)[0]
    )
    # On another device: what is compared with the graph is a copy, made without a trainer, too.
    elsewhere = property(lambda self: th.device("cuda" if self is model.policy else "cpu"))
    monkeypatch.setattr(type(model.policy), "device", elsewhere)
    twin = on_cpu(model)
    assert twin is not model
    assert all(th.equal(tensor, twin.policy.state_dict()[name]) for name, tensor in model.policy.state_dict().items())


def test_pictures_by_the_million_are_exported(tmp_path: Path) -> None:
    picture = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    model = make(DQN, spaces.Discrete(4), picture, "CnnPolicy", buffer_size=4, policy_kwargs={})
    model.buffer_size = 100_000_000  # 240 GiB where it is allocated
    model.save(tmp_path / "model.zip")
    assert load_and_export(tmp_path / "model.zip", n_verify=1000).path.exists()


def test_optimizers_and_ent_coef_are_not_needed(tmp_path: Path) -> None:
    make(SAC).save(tmp_path / "whole.zip")
    with zipfile.ZipFile(tmp_path / "whole.zip") as whole, zipfile.ZipFile(tmp_path / "model.zip", "w") as part:
        for name in ("data", "policy.pth"):
            part.writestr(name, whole.read(name))
    assert load_and_export(tmp_path / "model.zip", n_verify=1000).algorithm == "SAC"


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    make(PPO).save(tmp_path / "good.zip")
    make(PPO, policy_kwargs={"net_arch": [3]}).save(tmp_path / "other.zip")
    with zipfile.ZipFile(tmp_path / "good.zip") as good, zipfile.ZipFile(tmp_path / "other.zip") as other:
        with zipfile.ZipFile(tmp_path / "model.zip", "w") as mixed:
            mixed.writestr("data", good.read("data"))
            mixed.writestr("policy.pth", other.read("policy.pth"))
    with pytest.raises(ExportError, match=r"could not be loaded as PPO.*size mismatch"):
        load_sb3_model(tmp_path / "model.zip")


# -- statistics


def trained(algorithm: Any, normalize: Any = False, observation: Any = None, num_envs: int = 1, **options: Any) -> Any:
    """A model that has learnt a little, and its VecNormalize or None."""
    env: Any = DummyVecEnv([lambda: RandomEnv(observation or vector(), BOX)] * num_envs)
    if normalize is not False:
        env = VecNormalize(env, **normalize)
    small = {"n_steps": 8, "batch_size": 8} if algorithm is PPO else {"learning_starts": 100, "buffer_size": 64}
    model = algorithm("MlpPolicy", env, device="cpu", seed=0, policy_kwargs={"net_arch": [8]}, **small, **options)
    return model.learn(16 * num_envs)


BOUNDED = spaces.Box(-0.01, 0.01, (4,), np.float32)
NEEDED = {
    "on-policy": (PPO, {}, None, 1),
    "numbers of another type": (SAC, {}, DOUBLES, 1),
    "out of bounds": (SAC, {}, BOUNDED, 1),
    "moved and scaled": (SAC, {}, None, 4),
}
NOT_NEEDED = {
    "on-policy": (PPO, False, None, 1),
    "off-policy": (SAC, False, None, 1),
    "off-policy, several envs": (SAC, False, None, 4),
    "off-policy, doubles": (SAC, False, DOUBLES, 1),
    "off-policy, bounds": (SAC, False, BOUNDED, 1),
    "rewards alone, off-policy": (SAC, {"norm_obs": False}, None, 1),
    "rewards alone, on-policy, doubles": (PPO, {"norm_obs": False}, DOUBLES, 1),
}


@pytest.mark.parametrize("case", NEEDED)
def test_a_policy_that_needs_statistics_does_not_act_without(case: str, tmp_path: Path) -> None:
    algorithm, normalize, space, num_envs = NEEDED[case]
    path = tmp_path / "model.zip"
    model = trained(algorithm, normalize, space, num_envs)
    model.save(path)
    said = "statistics of VecNormalize are missing"
    with pytest.raises(ExportError, match=f"{said}.*--vecnormalize FILE.*--vecnormalize none"):
        load_and_export(path)
    with pytest.raises(ExportError, match=said):
        export_safetensors(load_sb3_model(path), tmp_path / "weights")
    with pytest.raises(ModelLoadError, match=said):
        Sb3Inference(path)
    with pytest.raises(ModelLoadError, match=said):
        load_policy(path)
    refused = CliRunner().invoke(export, [str(path)])
    assert isinstance(refused.exception, ExportError)
    assert list(tmp_path.iterdir()) == [path]
    report = load_and_export(path, tmp_path / "a.onnx", vec_normalize=False, n_verify=1000)
    assert report.metadata.normalization is None  # type: ignore[union-attr]
    assert Sb3Inference(path, False).is_model_loaded()
    assert load_policy(path, False).is_model_loaded()


def test_the_command_line_takes_a_file_of_statistics_or_none(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    model = trained(PPO, {})
    model.save(path)
    taken = CliRunner().invoke(export, [str(path), "--vecnormalize", "none"], catch_exceptions=False)
    assert taken.exit_code == 0
    assert re.search(r"normalisation\W+none", taken.output)
    model.get_vec_normalize_env().save(str(tmp_path / "statistics.pkl"))
    given = [str(path), "--vecnormalize", str(tmp_path / "statistics.pkl")]
    assert CliRunner().invoke(export, given, catch_exceptions=False).exit_code == 0


@pytest.mark.parametrize("case", NOT_NEEDED)
def test_a_policy_that_needs_none_acts_without_a_word(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    algorithm, normalize, space, num_envs = NOT_NEEDED[case]
    trained(algorithm, normalize, space, num_envs).save(tmp_path / "model.zip")
    assert load_and_export(tmp_path / "model.zip", n_verify=1000).metadata.normalization is None  # type: ignore[union-attr]
    assert Sb3Inference(tmp_path / "model.zip").is_model_loaded()
    assert "VecNormalize" not in caplog.text


def test_statistics_are_found_where_others_leave_them(tmp_path: Path) -> None:
    env = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
    more: Any = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}}
    model = PPO("MlpPolicy", env, device="cpu", seed=0, **more)
    model.learn(32, callback=CheckpointCallback(16, str(tmp_path), save_vecnormalize=True))
    zoo = tmp_path / "ppo" / "CartPole-v1_1"
    (zoo / "CartPole-v1").mkdir(parents=True)
    for name in ("CartPole-v1.zip", "best_model.zip", "rl_model_16_steps.zip"):
        model.save(zoo / name)
    env.save(str(zoo / "CartPole-v1" / "vecnormalize.pkl"))
    found = {
        tmp_path / "rl_model_16_steps.zip": tmp_path / "rl_model_vecnormalize_16_steps.pkl",
        tmp_path / "rl_model_32_steps.zip": tmp_path / "rl_model_vecnormalize_32_steps.pkl",
        **{path: zoo / "CartPole-v1" / "vecnormalize.pkl" for path in zoo.glob("*.zip")},
    }
    seen = np.full((3, 4), 0.5, np.float32)
    hub = tmp_path / "hub"  # as the documentation of Stable-Baselines3 names it, and RL Zoo where it publishes
    hub.mkdir()
    model.save(hub / "ppo-CartPole-v1.zip")
    env.save(str(hub / "vec_normalize.pkl"))
    found[hub / "ppo-CartPole-v1.zip"] = hub / "vec_normalize.pkl"
    for path, statistics in found.items():
        assert statistics_of(path) == statistics
        want = Sb3Inference(path, statistics).run_inference(seen)
        made = load_and_export(path, tmp_path / "found.onnx", n_verify=1000)
        assert made.metadata.normalization is not None  # type: ignore[union-attr]
        np.testing.assert_array_equal(OnnxInference(tmp_path / "found.onnx").run_inference(seen), want)
        np.testing.assert_array_equal(Sb3Inference(path).run_inference(seen), want)
    done = CliRunner().invoke(export, [str(path), "-o", str(tmp_path / "c.onnx")], catch_exceptions=False)
    shown = "".join(each for each in done.output if each.isalnum() or each in "._/")  # a long path is folded
    assert statistics.name in shown
    statistics.rename(tmp_path / "elsewhere.pkl")
    with pytest.raises(ModelLoadError, match="statistics of VecNormalize are missing"):
        Sb3Inference(path)


def test_a_run_says_that_its_statistics_are_missing(tmp_path: Path) -> None:
    """Where its zip cannot: SAC in one env, on numbers without bounds."""
    path = tmp_path / "model.zip"
    make(SAC).save(path)
    config = tmp_path / "config.yaml"
    config.write_text("format: 1\nalgo: sac\nnormalize: true\n")
    said = r"statistics are missing \(field vecnormalize\).*model_vecnormalize.pkl.*config.yaml has normalize"
    for words in ([], ["--format", "safetensors"]):
        refused = CliRunner().invoke(export, [str(path), *words])
        assert re.search(said, str(refused.exception))
        taken = CliRunner().invoke(export, [str(path), *words, "--vecnormalize", "none"], catch_exceptions=False)
        assert taken.exit_code == 0
    with pytest.raises(WrongCommandLine, match=said):
        load_policy(path)
    config.write_text("format: 1\nalgo: sac\nnormalize: {norm_obs: false}\n")
    assert load_policy(path).is_model_loaded()


def test_a_live_model_acts_as_it_is_trained() -> None:
    model = trained(PPO, {})
    seen = rows() * 5 + 3
    want, _ = model.predict(model.get_vec_normalize_env().normalize_obs(seen), deterministic=True)
    np.testing.assert_array_equal(Sb3Inference(model).run_inference(seen), want)
    np.testing.assert_array_equal(
        Sb3Inference(model, False).run_inference(seen), model.predict(seen, deterministic=True)[0]
    )


# -- copies


def after(inference: Any, times: int = 3) -> Any:
    return [inference.run_inference(rows(4)) for _ in range(times)]


@pytest.mark.parametrize(
    ("algorithm", "policy", "stochastic"), [(PPO, "MlpPolicy", True), (RecurrentPPO, "MlpLstmPolicy", False)]
)
def test_an_onnx_policy_is_copied_by_the_bytes_of_its_file(
    algorithm: Any, policy: str, stochastic: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_briefly(make(algorithm, policy=policy), path, stochastic=stochastic)
    inference = OnnxInference(path, seed=3, batch_size=2)
    following = ReloadingInference(path, seed=3, interval=60.0)
    after(inference, 1)
    path.unlink()  # nothing is read again
    for original in (inference, following):
        copies = [copy.deepcopy(original), pickle.loads(pickle.dumps(original))]
        want = after(original)
        for each in copies:
            np.testing.assert_array_equal(after(each), want)
            assert each.obs_size == 4
        if original is following:
            for each in (original, *copies):
                each.close()
    assert not pickle.loads(pickle.dumps(OnnxInference())).is_model_loaded()
    played = copy.deepcopy(Sb3Inference(make(PPO)))
    assert played.run_inference(rows()).shape == (64, 2)


def test_init_from_takes_the_weights_of_hindsight_replay_into_a_usual_buffer(tmp_path: Path) -> None:
    """As `ue-rl train --init-from` loads them: the class of the old run's buffer is the old run's."""
    env = BitFlippingEnv(n_bits=4, continuous=True)
    SAC("MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, buffer_size=64, device="cpu").save(
        tmp_path / "model.zip"
    )
    plain = UnrealVecEnv(MemoryTransport(GymnasiumBridge(lambda: BitFlippingEnv(n_bits=4, continuous=True), 1)))
    loaded: Any = new_model(TrainOptions(algo="sac", init_from=str(tmp_path / "model.zip")), plain, lambda _: None)
    assert isinstance(loaded, SAC)
    assert not isinstance(loaded.replay_buffer, HerReplayBuffer)
