"""Export: where models and their statistics come from: the env, files, another device."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.policies import BasePolicy

from tests.support.models import BOX, export_briefly, make, rows, vector
from ue_rl.inference import OnnxInference, Sb3Inference, export_onnx, load_and_export
from ue_rl.inference.export.models import on_cpu
from ue_rl.system.errors import ExportError, ModelLoadError


def trained_statistics(model):
    model.env.obs_rms.mean[:] = [100, -5, 0, 2]
    model.env.obs_rms.var[:] = [4, 9, 0.01, 1]
    return model.env


def test_a_report_says_whether_only_rounding_tells_the_file_apart(path):
    report = export_briefly(make(PPO, BOX, BOX), path)
    assert report.verdict().startswith("equal to predict(), largest difference ")
    rounded = replace(report, rounded=3, max_abs_difference=0.0123)
    assert rounded.verdict() == "equal to predict() but for the rounding of float32; largest difference 0.01"


def test_normalisation_is_the_models_own_unless_told_otherwise(path, tmp_path):
    model = make(normalize={})
    stats = trained_statistics(model)
    stats.save(str(tmp_path / "stats.pkl"))
    obs = rows() * np.sqrt(stats.obs_rms.var) + stats.obs_rms.mean
    obs = obs.astype(np.float32)
    with_stats, _ = model.predict(stats.normalize_obs(obs), deterministic=True)
    without, _ = model.predict(obs, deterministic=True)
    assert np.abs(with_stats - without).max() > 0.1
    for given, want in (
        (None, with_stats),
        (stats, with_stats),
        (tmp_path / "stats.pkl", with_stats),
        (False, without),
    ):
        export_briefly(model, path, given)
        np.testing.assert_allclose(OnnxInference(path).run_inference(obs), want, atol=4e-5)


def test_normalisation_of_rewards_only(path):
    model = make(normalize={"norm_obs": False})
    report = export_briefly(model, path)
    assert report.metadata.normalization is None


def test_statistics_of_another_env_are_refused(path):
    other = make(observation=vector(5), normalize={}).env
    with pytest.raises(ExportError, match=r"another shape.*\(4,\).*\(5,\)"):
        export_onnx(make(), path, other)
    mixed = spaces.Dict({"a": vector(), "b": vector(2)})
    other = make(observation=mixed, policy="MultiInputPolicy", normalize={}).env
    with pytest.raises(ExportError, match="another observation space"):
        export_onnx(make(), path, other)
    assert not path.exists()


def test_the_statistics_are_read_in_double(path):
    """A position of 100 km with a deviation of a metre: float32 alone would be off by a percent."""
    model = make(normalize={})
    model.env.obs_rms.mean[:] = 100_000.123
    model.env.obs_rms.var[:] = 1.0
    report = export_onnx(model, path)
    assert report.max_relative_difference["typical"] <= 1e-6


def test_statistics_that_clip_nothing(path):
    export_briefly(make(normalize={"clip_obs": np.inf}), path)
    metadata = OnnxInference(path).metadata
    assert metadata is not None
    assert metadata.normalization is not None
    assert metadata.normalization["clip_obs"] is None


ZIPS = [PPO, A2C, TRPO, MaskablePPO, RecurrentPPO, SAC, TD3, DDPG, TQC, DQN, QRDQN]


@pytest.mark.parametrize("algorithm", ZIPS, ids=lambda a: a.__name__)
def test_from_a_zip_file(algorithm, tmp_path):
    discrete = algorithm in (DQN, QRDQN, MaskablePPO)
    policy = "MlpLstmPolicy" if algorithm is RecurrentPPO else "MlpPolicy"
    model = make(algorithm, spaces.Discrete(3) if discrete else BOX, policy=policy)
    model.save(tmp_path / "model.zip")
    report = load_and_export(tmp_path / "model.zip", n_verify=1000)
    assert report.path == tmp_path / "model.onnx"
    assert report.algorithm == algorithm.__name__, "found out from the file"
    want, _ = model.predict(rows(), deterministic=True, episode_start=np.ones(64, bool))
    masks = {"action_masks": np.ones((64, 3))} if algorithm is MaskablePPO else {}
    got = OnnxInference(report.path).run_inference(rows(), **masks)
    np.testing.assert_allclose(got, want.reshape(64, -1), atol=4e-5)
    assert Sb3Inference(tmp_path / "model.zip", algorithm=algorithm.__name__.lower()).is_model_loaded()
    inference = Sb3Inference(tmp_path / "model.zip")
    np.testing.assert_allclose(inference.run_inference(rows(), **masks), got, atol=4e-5)
    assert (inference.obs_size, inference.act_size) == (4, got.shape[1])


def test_a_zip_with_statistics(tmp_path):
    model = make(SAC, normalize={})
    stats = trained_statistics(model)
    model.save(tmp_path / "model")
    stats.save(str(tmp_path / "stats.pkl"))
    load_and_export(tmp_path / "model", tmp_path / "p.onnx", tmp_path / "stats.pkl", n_verify=1000)
    obs = (rows() * 2 + 1).astype(np.float32)
    want, _ = model.predict(stats.normalize_obs(obs), deterministic=True)
    np.testing.assert_allclose(OnnxInference(tmp_path / "p.onnx").run_inference(obs), want, atol=4e-5)
    both = Sb3Inference(tmp_path / "model.zip", tmp_path / "stats.pkl")
    np.testing.assert_allclose(both.run_inference(obs), want, atol=1e-6)


def test_a_zip_without_the_statistics_it_was_trained_with_is_refused(tmp_path):
    doubles = spaces.Box(-np.inf, np.inf, (4,), np.float64)  # VecNormalize makes float32 of them
    model = make(SAC, observation=doubles, normalize={}, learning_starts=100)
    model.learn(4)
    model.save(tmp_path / "model.zip")
    with pytest.raises(ExportError, match="the statistics of VecNormalize are missing"):
        load_and_export(tmp_path / "model.zip")


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_bad_zip_files(tmp_path, content):
    bad = tmp_path / "model.zip"
    if content is not None:
        bad.write_bytes(content)
    with pytest.raises(ExportError, match="there is no file" if content is None else "not a saved model"):
        load_and_export(bad)
    assert not (tmp_path / "model.onnx").exists()


def test_an_exported_file_is_not_exported_again(path):
    path.write_bytes(b"a graph")
    with pytest.raises(ExportError, match=r"is an ONNX file already.*model\.zip"):
        load_and_export(path)


def test_bad_statistics_files(path, tmp_path):
    for content in (b"", b"no pickle"):
        (tmp_path / "s.pkl").write_bytes(content)
        with pytest.raises(ExportError, match="VecNormalize statistics"):
            export_onnx(make(), path, tmp_path / "s.pkl")


@pytest.fixture
def elsewhere(monkeypatch):
    """There may be no GPU here, so the device of a policy is only said to be another."""

    def say(policy: BasePolicy):
        device = property(lambda self: th.device("cuda" if self is policy else "cpu"))
        monkeypatch.setattr(type(policy), "device", device)

    return say


@pytest.mark.parametrize("algorithm", [PPO, SAC, DQN], ids=lambda a: a.__name__)
def test_a_model_on_another_device_is_copied(algorithm, elsewhere):
    model = make(algorithm, spaces.Discrete(3) if algorithm is DQN else BOX)
    assert on_cpu(model) is model
    elsewhere(model.policy)
    twin = on_cpu(model)
    assert twin is not model
    before = model.policy.state_dict()
    assert all(th.equal(tensor, before[name]) for name, tensor in twin.policy.state_dict().items())


def test_a_model_on_another_device_is_exported_as_its_env_gives_images(path, elsewhere):
    model = make(observation=spaces.Box(0, 255, (36, 40, 1), np.uint8), policy="CnnPolicy")
    elsewhere(model.policy)
    assert export_briefly(model, path).metadata.inputs[0].shape == (36, 40, 1), "the copy has no env"


@pytest.mark.parametrize("name", ["ppo", "sac", "dqn"])
def test_a_model_of_jax_is_refused_by_that_name(name, tmp_path):
    """As SBX 0.28 writes them: a zip like SB3's, whose policy_class stands in one of SBX's modules."""
    make().save(tmp_path / "model.zip")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        held = {member: archive.read(member) for member in archive.namelist()}
    data = json.loads(held["data"])
    data["policy_class"]["__module__"] = f"sbx.{name}.policies"
    held["data"] = json.dumps(data).encode()
    with zipfile.ZipFile(tmp_path / "jax.zip", "w") as archive:
        for member, content in held.items():
            archive.writestr(member, content)
    for load in (load_and_export, Sb3Inference):
        with pytest.raises((ExportError, ModelLoadError), match=r"a model of SBX: its policy is one of JAX"):
            load(tmp_path / "jax.zip")
