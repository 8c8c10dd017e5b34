"""Export: what is in the file, the forms of a policy, and the options."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import QRDQN, TQC, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3

from tests.support.models import BOX, SMALL, export_briefly, make, rows, vector
from ue_rl.inference import InferenceComponent, OnnxInference, ReloadingInference, Sb3Inference, export_onnx
from ue_rl.inference.export import graph
from ue_rl.inference.export.models import load_sb3_model
from ue_rl.inference.metadata import METADATA_KEY
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.system.errors import ConfigurationError, ExportError, ModelMismatch

# -- what is in the file -------------------------------------------------------------------------------------------


def test_the_contract_of_the_plugin(path):
    """What the Unreal plugin relies on: one input obs [*, n], one output actions, float32, whole in one file."""
    export_briefly(make(), path)
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    ((obs,), (actions,)) = (proto.graph.input, proto.graph.output)
    assert (obs.name, actions.name) == ("obs", "actions")
    for port, size in ((obs, 4), (actions, 2)):
        assert port.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        batch, numbers = port.type.tensor_type.shape.dim
        assert batch.dim_param
        assert not batch.dim_value
        assert numbers.dim_value == size
    assert not any(tensor.external_data for tensor in proto.graph.initializer)
    assert os.listdir(path.parent) == [path.name]
    assert proto.ir_version <= 8, "readable by the onnxruntime of 2022 and later"


def test_the_description(path):
    model = make(normalize={"clip_obs": 4.0})
    model.num_timesteps = 1234
    report = export_briefly(model, path)
    text = {p.key: p.value for p in onnx.load(path).metadata_props}[METADATA_KEY]
    raw = json.loads(text)
    assert raw["algorithm"] == "PPO"
    assert raw["policy"] == "ActorCriticPolicy"
    assert raw["num_timesteps"] == 1234
    assert raw["protocol_version"] == 1
    assert raw["observation_space"] == {"type": "Box", "shape": [4], "dtype": "float32", "low": "-inf", "high": "inf"}
    assert raw["action_space"]["low"] == [-3.0, 0.5]
    assert [(p["name"], p["shape"], p["role"]) for p in raw["inputs"]] == [("obs", [4], "observation")]
    assert [(p["name"], p["shape"], p["role"]) for p in raw["outputs"]] == [("actions", [2], "actions")]
    assert raw["normalization"]["clip_obs"] == 4.0
    assert {"torch", "stable-baselines3", "onnx", "onnxruntime"} <= set(raw["versions"])
    assert raw["verification"]["observations"] == report.observations >= 1000
    assert raw["verification"]["max_abs_difference"] == report.max_abs_difference
    assert OnnxInference(path).metadata == report.metadata
    assert "largest difference" in str(report)
    assert str(path) in str(report)


# -- forms of the policy ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "kwargs"),
    [
        (PPO, {"policy_kwargs": {"net_arch": {"pi": [8, 8, 8], "vf": [4]}, "activation_fn": th.nn.ELU}}),
        (PPO, {"policy_kwargs": {"net_arch": []}}),
        (PPO, {"policy_kwargs": {"share_features_extractor": False, **SMALL}}),
        (PPO, {"policy_kwargs": {"activation_fn": th.nn.GELU, **SMALL}}),
        (PPO, {"use_sde": True}),
        (A2C, {"use_sde": True, "policy_kwargs": {"squash_output": True, "full_std": False, **SMALL}}),
        (SAC, {"use_sde": True}),
        (SAC, {"policy_kwargs": {"activation_fn": th.nn.SiLU, "share_features_extractor": True, **SMALL}}),
        (TQC, {"use_sde": True, "policy_kwargs": {"use_expln": True, **SMALL}}),
        (TD3, {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [4]}}}),
        (
            RecurrentPPO,
            {
                "policy_kwargs": {
                    "n_lstm_layers": 2,
                    "lstm_hidden_size": 8,
                    "shared_lstm": True,
                    "enable_critic_lstm": False,
                }
            },
        ),
    ],
    ids=str,
)
def test_variants_of_the_policy(algorithm, kwargs, path, caplog):
    """Each is also computed in float64; without that predict()'s own rounding counts as a fault of the file."""
    caplog.set_level("INFO", logger="ue_rl")
    policy = "MlpLstmPolicy" if algorithm is RecurrentPPO else "MlpPolicy"
    report = export_briefly(make(algorithm, policy=policy, **kwargs), path)
    assert report.max_relative_difference["typical"] <= 1e-5
    assert "cannot be computed in float64" not in caplog.text


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_action_shapes_and_bounds(dtype, path):
    low, high = np.array([[-1, -2], [0, 5]], dtype), np.array([[1, 2], [9, 5]], dtype)  # one of them cannot move
    action = spaces.Box(low, high, dtype=dtype)
    model = make(action=action, gain=3.0)
    report = export_briefly(model, path)
    got = OnnxInference(path).run_inference(rows())
    want, _ = model.predict(rows(), deterministic=True)
    assert got.shape == (64, 4)
    np.testing.assert_allclose(got, want.reshape(64, 4), rtol=1e-5, atol=1e-5)
    assert report.metadata.action_space["low"] == [-1.0, -2.0, 0.0, 5.0]


def test_recurrent_state(path):
    """Over whole episodes of several agents that end at different steps, against predict()."""
    model = make(RecurrentPPO, policy="MlpLstmPolicy", gain=1.5, policy_kwargs={"lstm_hidden_size": 8})
    report = export_briefly(model, path)
    assert [port.name for port in report.metadata.inputs] == ["obs", "state_h", "state_c", "episode_start"]
    runtime = OnnxInference(path)
    assert runtime.is_recurrent
    rng = np.random.default_rng(0)
    state, starts = None, np.ones(3, bool)
    given = runtime.initial_state(3)
    moved = 0.0
    for _ in range(50):
        obs = rng.normal(size=(3, 4)).astype(np.float32)
        want, state = model.predict(obs, state=state, episode_start=starts, deterministic=True)
        explicit, given = runtime.run(obs, state=given, episode_start=starts)
        got = runtime.run_inference(obs)
        np.testing.assert_allclose(got, want, atol=4e-5)
        np.testing.assert_array_equal(got, explicit)
        fresh, _ = runtime.run(obs)
        moved = max(moved, float(np.abs(fresh - got).max()))
        starts = rng.random(3) < 0.2
        runtime.reset(np.flatnonzero(starts).tolist())
    assert moved > 0.05, "the state matters"
    with pytest.raises(ModelMismatch, match=r"3 rows.*2 rows.*reset\(\)"):
        runtime.run_inference(obs[:2])
    runtime.reset()
    assert runtime.run_inference(obs[:2]).shape == (2, 2)
    with pytest.raises(ConfigurationError, match="no such row"):
        runtime.reset([2])
    with pytest.raises(ModelMismatch, match="wrong shape of state"):
        runtime.run(obs, state=runtime.initial_state(2))


def test_flat_input_for_a_dict(path):
    space = spaces.Dict({"b": spaces.Discrete(3), "a": vector(2), "grid": spaces.Box(0, 255, (6, 6), np.uint8)})
    model = make(observation=space, policy="MultiInputPolicy")
    keyed = export_briefly(model, path)
    assert [port.name for port in keyed.metadata.inputs] == ["a", "b", "grid"]
    obs = {
        "a": rows(8, 2),
        "b": np.arange(8, dtype=np.float32)[:, None] % 3,
        "grid": np.random.default_rng(0).integers(256, size=(8, 6, 6)).astype(np.float32),
    }
    runtime = OnnxInference(path)
    want = runtime.run_inference(obs)
    everything = np.concatenate([value.reshape(8, -1) for value in obs.values()], axis=1)
    np.testing.assert_array_equal(runtime.run_inference(everything), want)
    with pytest.raises(ModelMismatch, match=r"keys.*\['a', 'b', 'grid'\].*\['a'\]"):
        runtime.run_inference({"a": obs["a"]})
    with pytest.raises(ModelMismatch, match="different numbers of rows"):
        runtime.run_inference({**obs, "a": obs["a"][:3]})

    flat = export_briefly(model, path, flat_input=True)
    assert [(port.name, port.shape) for port in flat.metadata.inputs] == [("obs", (2 + 1 + 36,))]
    assert list(flat.metadata.observation_space["spaces"]) == ["a", "b", "grid"]
    np.testing.assert_allclose(OnnxInference(path).run_inference(everything), want, atol=1e-6)


def test_a_key_with_the_name_of_an_output_is_refused(path):
    space = spaces.Dict({"actions": vector(2), "obs": vector(2)})
    model = make(observation=space, policy="MultiInputPolicy")
    with pytest.raises(ExportError, match=r"name of another input or output \(field actions\).*flat_input"):
        export_onnx(model, path)
    export_briefly(model, path, flat_input=True)


OLDER = "the file has opset 18 instead of 15"


@pytest.mark.parametrize(
    ("exporter", "opset", "older"),
    [
        ("torchscript", 15, False),
        ("dynamo", 15, True),
        pytest.param("dynamo", 18, False, marks=pytest.mark.exhaustive),
    ],
)
def test_keys_of_digits_alone(exporter, opset, older, path, caplog):
    """torch takes no such name for an input; whoever runs the file goes by the key.

    An opset that the newer converter does not write is said.
    """
    parts = {"0": vector(2), "1": spaces.Discrete(3), "obs_1": vector(3)}
    model = make(observation=spaces.Dict(parts), policy="MultiInputPolicy")
    report = export_briefly(model, path, exporter=exporter, opset=opset)
    assert report.exporter == exporter
    assert (OLDER in caplog.text) == ("opset" in caplog.text) == older
    assert os.listdir(path.parent) == [path.name]
    inputs = [(port.name, port.key) for port in report.metadata.inputs]
    assert inputs == [("obs_0", "0"), ("obs_obs_1", "1"), ("obs_1", "obs_1")]
    assert list(report.metadata.observation_space["spaces"]) == list(parts)
    obs = {"0": rows(8, 2), "1": np.arange(8) % 3, "obs_1": rows(8, 3, seed=1)}
    given = {key: part.reshape(8, -1) for key, part in obs.items()}
    want = model.predict(obs, deterministic=True)[0]
    np.testing.assert_allclose(OnnxInference(path).run_inference(given), want, atol=1e-5)
    whole = np.concatenate(list(given.values()), axis=1, dtype=np.float32)
    np.testing.assert_allclose(OnnxInference(path).run_inference(whole), want, atol=1e-5)


def test_image_layouts(path, tmp_path):
    def planned(model, env, **layout):
        return graph.plan_graph(model, None, env, **layout).inputs[0].shape

    space = spaces.Box(0, 255, (40, 36, 3), np.uint8)
    model = make(observation=space, policy="CnnPolicy", action=spaces.Discrete(3))
    assert export_briefly(model, path, image_layout="channels_first").metadata.inputs[0].shape == (3, 40, 36)
    assert planned(model, model.get_env()) == (40, 36, 3), "as the env gives it"
    model.save(tmp_path / "m.zip")
    assert planned(load_sb3_model(tmp_path / "m.zip"), None) == (40, 36, 3), "as engines send them"
    first = make(observation=spaces.Box(0, 255, (3, 40, 36), np.uint8), policy="CnnPolicy", action=spaces.Discrete(3))
    assert planned(first, first.get_env()) == (3, 40, 36)
    with pytest.raises(ExportError, match="no such image layout"):
        export_onnx(model, path, image_layout="sideways")


def test_action_masks(path):
    model = make(MaskablePPO, spaces.MultiDiscrete([3, 4]))
    report = export_briefly(model, path, action_masks=True)
    assert report.max_abs_difference == 0
    masks = np.random.default_rng(1).random((64, 7)) < 0.4
    masks[:, [0, 3]] = True
    want, _ = model.predict(rows(), deterministic=True, action_masks=masks)
    runtime = OnnxInference(path)
    got = runtime.run_inference(rows(), action_masks=masks)
    np.testing.assert_array_equal(got, want)
    every = np.ones((64, 7), np.float32)
    assert (got != runtime.run_inference(rows(), action_masks=every)).any(), "the masks matter"
    with pytest.raises(ModelMismatch, match="wrong shape of action masks"):
        runtime.run_inference(rows(), action_masks=masks[:, :3])
    with pytest.raises(ExportError, match="PPO takes no action masks"):
        export_onnx(make(), path, action_masks=True)


def without_initializer(path):
    """The names of the inputs that each runtime must be given, and of those with a default."""
    graph = onnx.load(path).graph
    held = {tensor.name for tensor in graph.initializer}
    return [port.name for port in graph.input if port.name not in held], [
        port.name for port in graph.input if port.name in held
    ]


def test_masks_are_a_required_input(path):
    """Of an optional one other runtimes know nothing: they ignore the masks that they are given."""
    model = make(MaskablePPO, spaces.MultiDiscrete([3, 4]))
    export_briefly(model, path)
    assert without_initializer(path) == (["obs", "action_masks"], [])
    runtime = OnnxInference(path)
    assert (runtime.takes_masks, runtime.needs_masks) == (True, True)
    for call in (runtime.run_inference, runtime.run, lambda obs: runtime.run_inference_for(range(len(obs)), obs)):
        with pytest.raises(ModelMismatch, match=r"must be told which choices are legal.*\[64, 7\]"):
            call(rows())
    session = runtime._loaded().session
    with pytest.raises(ValueError, match="action_masks"):
        session.run(None, {"obs": rows()})


def test_masks_are_optional_where_asked(path):
    model = make(MaskablePPO, spaces.MultiDiscrete([3, 4]))
    export_briefly(model, path, optional_masks=True)
    assert without_initializer(path) == (["obs"], ["action_masks"])
    runtime = OnnxInference(path)
    assert (runtime.takes_masks, runtime.needs_masks) == (True, False)
    free = runtime.run_inference(rows())
    np.testing.assert_array_equal(free, runtime.run_inference(rows(), action_masks=np.ones((64, 7))))
    masks = np.ones((64, 7))
    masks[:, 0] = 0
    assert (free != runtime.run_inference(rows(), action_masks=masks)).any()
    export_briefly(model, path, action_masks=False)
    runtime = OnnxInference(path)
    assert without_initializer(path) == (["obs"], [])
    assert (runtime.takes_masks, runtime.needs_masks) == (False, False)


@pytest.mark.parametrize(("algorithm", "more"), [(PPO, {}), (MaskablePPO, {"action_masks": False})])
def test_masks_that_a_file_does_not_take_cannot_be_optional(algorithm, more, path):
    with pytest.raises(ExportError, match="takes no action masks, so that they cannot be optional"):
        export_onnx(make(algorithm, spaces.Discrete(3)), path, optional_masks=True, **more)


def test_a_model_of_sb3_is_not_asked_without_masks_either():
    model = make(MaskablePPO, spaces.MultiDiscrete([3, 4]))
    with pytest.raises(ModelMismatch, match=r"must be told which choices are legal.*\[64, 7\]"):
        Sb3Inference(model).run_inference(rows())
    every = Sb3Inference(model).run_inference(rows(), action_masks=np.ones((64, 7)))
    np.testing.assert_array_equal(Sb3Inference(model, optional_masks=True).run_inference(rows()), every)


def test_an_engine_without_masks_is_refused_for_a_policy_that_needs_them(path):
    export_briefly(make(MaskablePPO, spaces.Discrete(3)), path)
    silent = decode_handshake(b"CONFIG:OBS=4;ACT=1;VERSION=1;ACT_SPACE=DISCRETE(3)")
    for policy in (OnnxInference(path), ReloadingInference(path, interval=None)):
        assert policy.needs_masks
        with pytest.raises(ModelMismatch, match="the engine does not say it"):
            policy.require_spaces(silent)
        policy.require_spaces(replace(silent, features=frozenset({"MASK"})))
    export_briefly(make(MaskablePPO, spaces.Discrete(3)), path, optional_masks=True)
    OnnxInference(path).require_spaces(silent)
    with pytest.raises(ConfigurationError, match="Override create_mask"):
        ticked(path, make(MaskablePPO, spaces.Discrete(3)))


def ticked(path, model):
    """A component that has no mask, for a policy that needs one."""
    export_briefly(model, path)
    component = InferenceComponent(OnnxInference(path))
    component.start_inference()
    return component.tick(rows()[0])


# -- the stochastic form ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "kwargs"),
    [(PPO, {}), (SAC, {}), (TQC, {}), (PPO, {"use_sde": True}), (SAC, {"use_sde": True})],
    ids=str,
)
def test_samples_of_a_continuous_policy(algorithm, kwargs, path):
    """Mean and deviation of many samples at one observation, against SB3's own sampling."""
    model = make(algorithm, **kwargs)
    export_briefly(model, path, stochastic=True)
    n = 4000
    obs = np.repeat(rows(1), n, axis=0)
    if kwargs:
        target = model.policy.actor if algorithm is SAC else model.policy
        target.reset_noise(n)  # gSDE draws one matrix per row
    want, _ = model.predict(obs, deterministic=False)
    got = OnnxInference(path, seed=1).run_inference(obs)
    deviation = want.std(axis=0)
    assert (deviation > 0.01).all()
    np.testing.assert_allclose(got.mean(axis=0), want.mean(axis=0), atol=6 * deviation.max() / n**0.5)
    np.testing.assert_allclose(got.std(axis=0), deviation, rtol=0.1)


@pytest.mark.parametrize("action", [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)], ids=str)
def test_samples_of_a_discrete_policy(action, path):
    model = make(action=action)
    export_briefly(model, path, stochastic=True)
    n = 4000
    obs = np.repeat(rows(1), n, axis=0)
    want = model.predict(obs, deterministic=False)[0].reshape(n, -1)
    got = OnnxInference(path, seed=1).run_inference(obs)
    for column in range(got.shape[1]):
        for choice in range(3):
            assert abs((got[:, column] == choice).mean() - (want[:, column] == choice).mean()) < 6 * 0.5 / n**0.5
    assert len(np.unique(got, axis=0)) > 1


def test_noise_is_an_input_and_a_seed_repeats_it(path):
    report = export_briefly(make(), path, stochastic=True)
    (noise,) = report.metadata.ports("noise")
    assert (noise.name, noise.shape, noise.distribution) == ("noise", (2,), "normal")
    one, two = OnnxInference(path, seed=5), OnnxInference(path, seed=5)
    np.testing.assert_array_equal(one.run_inference(rows()), two.run_inference(rows()))
    quiet, _ = one.run(rows(), noise=np.zeros((64, 2), np.float32))
    export_briefly(make(), path)
    np.testing.assert_allclose(quiet, OnnxInference(path).run_inference(rows()), atol=1e-6)


@pytest.mark.parametrize("algorithm", [TD3, DDPG, DQN, QRDQN], ids=lambda a: a.__name__)
def test_policies_without_a_stochastic_form(algorithm, path):
    action = spaces.Discrete(2) if algorithm in (DQN, QRDQN) else BOX
    with pytest.raises(ExportError, match="no stochastic policy"):
        export_onnx(make(algorithm, action), path, stochastic=True)


@pytest.mark.parametrize("tolerance", [float("nan"), float("inf"), -1e-5])
def test_what_is_no_tolerance_is_refused(tolerance, path):
    with pytest.raises(ConfigurationError, match=r"tolerance.*0 or more"):
        export_onnx(make(), path, tolerance=tolerance)
    assert not path.exists()


def test_an_opset_that_torch_does_not_write_is_named(path):
    with pytest.raises(ExportError, match=r"opset_version: 99.*[Ll]eave the opset out"):
        export_onnx(make(), path, opset=99, exporter="torchscript")


def test_an_algorithm_that_is_not_the_files_is_to_be_left_out(tmp_path):
    make(PPO).save(tmp_path / "model.zip")
    with pytest.raises(ExportError, match=r"as SAC.*[Ll]eave the algorithm out: the file looks like one of PPO"):
        load_sb3_model(tmp_path / "model.zip", "sac")
    with pytest.raises(ExportError, match=r"no such algorithm.*got ppo2.*[Ll]eave it out"):
        load_sb3_model(tmp_path / "model.zip", "ppo2")
