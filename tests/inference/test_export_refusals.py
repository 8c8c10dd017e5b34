"""Export: refusals, comparison with predict(), and what a failure leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import ARS, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecMonitor, VecNormalize

from tests.support.models import BOX, SMALL, RandomEnv, make, rows, vector
from ue_rl.errors import ConfigurationError, ExportError, InferenceError, ModelLoadError, ModelMismatch
from ue_rl.inference import OnnxInference, Sb3Inference, check_exportable, export_onnx
from ue_rl.inference.export import file, graph

# -- refusals --------------------------------------------------------------------------------------------------------


class Branching(BaseFeaturesExtractor):
    """Python control flow that depends on the observation."""

    def __init__(self, space):
        super().__init__(space, 4)

    def forward(self, obs):
        return obs if obs.sum() > 0 else -obs


class Plain(BaseFeaturesExtractor):
    """Custom code that a graph can hold."""

    def __init__(self, space):
        super().__init__(space, 4)
        self.norm = th.nn.LayerNorm(4)

    def forward(self, obs):
        return self.norm(obs)


class Forgetful(FlattenExtractor):
    """Looks like a function of the observation, but is not."""

    calls = 0

    def forward(self, obs):
        type(self).calls += 1
        return super().forward(obs) + float(type(self).calls)


class OwnPolicy(ActorCriticPolicy):
    """Does something of its own after the net."""

    def _predict(self, observation, deterministic=False):
        return super()._predict(observation, deterministic) * 0.5


def with_extractor(extractor):
    return make(policy_kwargs={"features_extractor_class": extractor, **SMALL})


@pytest.mark.parametrize("extractor", [Branching, Plain])
def test_a_custom_extractor_is_refused_by_name(extractor, path):
    model = with_extractor(extractor)
    for attempt in (lambda: export_onnx(model, path), lambda: check_exportable(model)):
        with pytest.raises(ExportError, match=rf"features extractor {extractor.__name__} is custom.*allow_custom"):
            attempt()
    assert not path.exists()


def test_a_custom_extractor_can_be_tried(path):
    report = export_onnx(with_extractor(Plain), path, allow_custom=True)
    assert report.max_relative_difference["typical"] <= 1e-5


def test_control_flow_is_refused(path):
    with pytest.raises(ExportError, match=r"control flow.*torch\.where"):
        export_onnx(with_extractor(Branching), path, allow_custom=True)


def test_a_custom_policy_is_refused_and_when_tried_compared(path):
    model = make(policy=OwnPolicy)
    with pytest.raises(ExportError, match="policy OwnPolicy is custom"):
        export_onnx(model, path)
    with pytest.raises(ExportError, match=r"acts differently from predict\(\) on a typical observation"):
        export_onnx(model, path, allow_custom=True)
    assert os.listdir(path.parent) == []


def test_a_policy_that_is_no_function_is_found_out(path):
    with pytest.raises(ExportError, match="acts differently"):
        export_onnx(with_extractor(Forgetful), path, allow_custom=True)


def test_no_onnx_form(path):
    class Odd(Plain):
        def forward(self, obs):
            return th.linalg.eigvals(obs.unsqueeze(2) @ obs.unsqueeze(1)).real

    with pytest.raises(ExportError, match="cannot convert the policy to ONNX"):
        export_onnx(with_extractor(Odd), path, allow_custom=True)


def test_other_algorithms_are_refused(path):
    env = DummyVecEnv([lambda: RandomEnv(vector(), BOX)])
    with pytest.raises(ExportError, match=r"ARS is not an algorithm.*PPO, A2C"):
        export_onnx(ARS("LinearPolicy", env), path)
    with pytest.raises(ExportError, match="not a policy or an env"):
        export_onnx(make().policy, path)


def test_weights_with_nan_are_refused(path):
    for action in (BOX, spaces.Discrete(3)):
        model = make(action=action)
        model.policy.action_net.weight.data[0, 0] = float("nan")
        with pytest.raises(ExportError, match="NaN"):
            export_onnx(model, path)
    assert os.listdir(path.parent) == []


def test_a_difference_above_the_tolerance_leaves_what_was_there(path, monkeypatch):
    """Shift predict() by a thousandth of the range: the least that a wrong export would do."""
    model = make()
    path.write_bytes(b"an older model")
    real = model.predict
    monkeypatch.setattr(model, "predict", lambda *a, **k: (real(*a, **k)[0] + 0.004, None))
    with pytest.raises(ExportError, match=r"0\.00\d+ of the action range"):
        export_onnx(model, path)
    assert path.read_bytes() == b"an older model"
    assert os.listdir(path.parent) == [path.name]
    export_onnx(model, path, tolerance=0.01, extreme_tolerance=0.01)


def test_one_wrong_discrete_action_is_refused(path, monkeypatch):
    model = make(action=spaces.Discrete(3))
    real, calls = model.predict, [0]

    def predict(*args, **kwargs):
        actions, state = real(*args, **kwargs)
        calls[0] += 1
        if calls[0] == 5:
            actions = actions.copy()
            actions[7] = (actions[7] + 1) % 3
        return actions, state

    monkeypatch.setattr(model, "predict", predict)
    with pytest.raises(ExportError, match="any difference of a discrete action"):
        export_onnx(model, path)
    assert not path.exists()


def test_a_tie_in_float32_is_not_the_files_fault(path, monkeypatch):
    """Two choices with the same weights: which one comes out is rounding, and predict() may say either."""
    model = make(DQN, spaces.Discrete(3))
    last = model.q_net.q_net[-1]
    last.weight.data[1] = last.weight.data[0]
    last.bias.data[1] = last.bias.data[0]
    real, calls = model.predict, [0]

    def predict(*args, **kwargs):
        actions, state = real(*args, **kwargs)
        calls[0] += 1
        row = int(np.flatnonzero(actions == 0)[0])
        if calls[0] == 3:
            actions = actions.copy()
            actions[row] = 1
        return actions, state

    monkeypatch.setattr(model, "predict", predict)
    assert export_onnx(model, path).ties == 1


def reordered(content):
    """The hidden units of the first layer in another order: the same function, added up in another order."""
    proto = onnx.load_from_string(content)
    first, second = [node for node in proto.graph.node if node.op_type == "Gemm"][:2]
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    order = np.random.default_rng(0).permutation(weights[first.input[1]].dims[0])
    for name, axis in ((first.input[1], 0), (first.input[2], 0), (second.input[1], 1)):
        array = onnx.numpy_helper.to_array(weights[name]).take(order, axis)
        weights[name].CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
    return proto.SerializeToString()


def edited(change):
    """A change of the named weights and constants of a file."""

    def edit(content):
        proto = onnx.load_from_string(content)
        tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
        arrays = {name: onnx.numpy_helper.to_array(tensor).copy() for name, tensor in tensors.items()}
        change(arrays)
        for name, array in arrays.items():
            tensors[name].CopyFrom(onnx.numpy_helper.from_array(array, name))
        return proto.SerializeToString()

    return edit


def tamper(monkeypatch, *edits):
    """Let the converter make another file."""

    def to_onnx(*args, real=graph.to_onnx, **kwargs):
        content, used = real(*args, **kwargs)
        for edit in edits:
            content = edit(content)
        return content, used

    monkeypatch.setattr(graph, "to_onnx", to_onnx)


def saturated(algorithm=SAC, activation=th.nn.ReLU, limit=5000, **kwargs):
    """A policy on raw observations of thousands: float32 keeps three digits where its terms cancel out."""
    space = spaces.Box(-limit, limit, (12,), np.float32)
    options = {"net_arch": [256, 256], "activation_fn": activation}
    model = make(algorithm, observation=space, policy_kwargs=options, **kwargs)
    generator = th.Generator().manual_seed(1)
    for parameter in model.policy.parameters():  # biases differ, so that no two share a place in the file
        parameter.data += 0.01 * th.randn(parameter.shape, generator=generator)
    if algorithm is PPO:  # which clips what the others squash
        model.policy.action_net.weight.data *= 1e-3
    return model


@pytest.mark.parametrize("activation", [th.nn.ReLU, th.nn.ELU], ids=lambda a: a.__name__)
@pytest.mark.parametrize("algorithm", [SAC, TD3, PPO], ids=lambda a: a.__name__)
def test_a_difference_that_is_rounding_is_accepted_and_reported(algorithm, activation, path, monkeypatch):
    tamper(monkeypatch, reordered)
    report = export_onnx(saturated(algorithm, activation), path, tolerance=1e-7, extreme_tolerance=1e-7)
    assert report.reason == "rounding"
    assert report.rounded > 0
    assert report.max_relative_difference["typical"] > 1e-7
    found = report.metadata.verification
    assert found["rounded"] == report.rounded
    assert 0 < found["file_error"] < 1e-2 > found["predict_error"] > 0
    assert "equal but for the rounding of float32" in str(report)


def test_rounding_beyond_the_default_tolerance_is_accepted(path, monkeypatch):
    """With 1e-4 of the range, so that it is beyond 1e-5 whatever order a processor's kernels add in."""
    tamper(monkeypatch, reordered)
    report = export_onnx(saturated(limit=3000), path)
    assert report.reason == "rounding"
    assert report.max_relative_difference["typical"] > 1e-5
    assert OnnxInference(path).metadata.verification["tolerance"] == 1e-5


def test_a_file_that_is_equal_says_so(path):
    report = export_onnx(make(), path)
    assert (report.reason, report.rounded) == ("equal", 0)
    assert "rounding" not in str(report)


def of_weight(arrays):
    arrays["head.net.weight"].flat[np.abs(arrays["head.net.weight"]).argmax()] *= 1.05


def of_bounds(arrays):
    arrays["head.low"][:] = arrays["head.low"][::-1].copy()


def of_statistics(arrays):
    """Those of a little earlier in the training."""
    name = next(name for name in arrays if name.endswith("mean") and arrays[name].dtype == np.float64)
    arrays[name] += 0.1


@pytest.mark.parametrize("change", [of_weight, of_bounds], ids=lambda c: c.__name__)
@pytest.mark.parametrize("algorithm", [SAC, TD3, PPO], ids=lambda a: a.__name__)
def test_a_wrong_file_is_not_taken_for_rounding(algorithm, change, path, monkeypatch):
    model = saturated(algorithm)
    if algorithm is TD3 and change is of_weight:
        change = lambda arrays: arrays["head.net.4.weight"].__imul__(1.01)  # noqa: E731
    tamper(monkeypatch, reordered, edited(change))
    with pytest.raises(ExportError, match=r"which is not rounding: from exact arithmetic the file is .* away and"):
        export_onnx(model, path)
    assert not path.exists()


@pytest.mark.parametrize("algorithm", [SAC, TD3], ids=lambda a: a.__name__)
def test_a_graph_without_unscaling_is_not_taken_for_rounding(algorithm, path, monkeypatch):
    """Here the exact result is wrong as well, and predict() is what is far from it."""

    def make_head(*args, real=graph.make_head):
        extractor, trunk, head = real(*args)
        head.unscale = False
        return extractor, trunk, head

    monkeypatch.setattr(graph, "make_head", make_head)
    with pytest.raises(ExportError, match="which is not rounding"):
        export_onnx(saturated(algorithm), path)


def test_a_wrong_weight_that_changes_no_choice_is_found(path, monkeypatch):
    """One choice is always the best one: the actions alone would not show it."""
    model = make(DQN, spaces.Discrete(3))
    model.q_net.q_net[-1].bias.data += th.tensor([0.0, 1000.0, 0.0])

    def of_weight(arrays):
        arrays["head.net.2.weight"][0] *= 1.05

    export_onnx(model, path)
    assert [output.name for output in onnx.load(path).graph.output] == ["actions"]
    tamper(monkeypatch, edited(of_weight))
    with pytest.raises(ExportError, match=r"in the net's scores or state.* which is not rounding"):
        export_onnx(model, path)


def test_a_normalisation_of_earlier_is_not_taken_for_rounding(path, monkeypatch):
    model = make(SAC, normalize={})
    tamper(monkeypatch, edited(of_statistics))
    with pytest.raises(ExportError, match="which is not rounding"):
        export_onnx(model, path)


def test_twenty_units_in_the_last_place_are_not_rounding(path, monkeypatch):
    model = make(action=spaces.Box(50, 60, (1,), np.float32))
    real = model.predict
    monkeypatch.setattr(model, "predict", lambda *a, **k: (real(*a, **k)[0] * np.float32(1 + 20 * 2.0**-23), None))
    with pytest.raises(ExportError, match="which is not rounding"):
        export_onnx(model, path)


@pytest.mark.parametrize(("first", "by"), [(0, 4e-5), (8, 4e-4)], ids=["typical", "extreme"])
def test_the_tolerances_are_no_wider_than_documented(first, by, path, monkeypatch):
    """predict() is called eight times for typical observations, then eight times for extreme ones."""
    model = make()
    span = (model.action_space.high - model.action_space.low)[None]
    real, calls = model.predict, [0]

    def predict(*args, **kwargs):
        actions, state = real(*args, **kwargs)
        calls[0] += 1
        return actions + (by * span if calls[0] > first else 0), state

    monkeypatch.setattr(model, "predict", predict)
    with pytest.raises(ExportError, match=r"0\.0+4 of the action range|4e-05 of the action range"):
        export_onnx(model, path)


def test_a_wrong_choice_under_masks_is_no_tie(path, monkeypatch):
    """The score of a masked choice, -1e8, says nothing about how exact the others are."""
    model = make(MaskablePPO, spaces.Discrete(3))
    real = model.predict

    def predict(*args, action_masks, **kwargs):
        actions, state = real(*args, action_masks=action_masks, **kwargs)
        actions = actions.copy()
        row = int(np.flatnonzero(action_masks.sum(axis=1) == 2)[0])
        actions[row] = next(n for n in np.flatnonzero(action_masks[row]) if n != actions[row])
        return actions, state

    monkeypatch.setattr(model, "predict", predict)
    with pytest.raises(ExportError, match="any difference of a discrete action"):
        export_onnx(model, path, action_masks=True)


def test_recorded_observations(path):
    model = make()
    report = export_onnx(model, path, recorded=rows(100))
    assert report.observations == 1124
    assert "recorded" in report.max_relative_difference
    with pytest.raises(ExportError, match="recorded observations do not fit"):
        export_onnx(model, path, recorded=rows(100, 5))


@pytest.mark.parametrize("algorithm", [PPO, SAC, RecurrentPPO], ids=lambda a: a.__name__)
@pytest.mark.parametrize("normalize", [False, {}], ids=["plain", "normalised"])
def test_observations_of_the_training_are_compared_as_well(algorithm, normalize, path):
    more = {"learning_starts": 100} if algorithm is SAC else {"n_steps": 32, "batch_size": 32, "n_epochs": 1}
    policy = "MlpLstmPolicy" if algorithm is RecurrentPPO else "MlpPolicy"
    model = make(algorithm, policy=policy, normalize=normalize, **more)
    model.learn(32)
    report = export_onnx(model, path)
    assert report.observations == 1024 + 32
    assert report.max_relative_difference["recorded"] <= 1e-5


def test_too_few_observations_are_refused(path):
    with pytest.raises(ConfigurationError, match="1000 or more"):
        export_onnx(make(), path, n_verify=999)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ExportError, match="does not exist"):
        export_onnx(make(), tmp_path / "no" / "p.onnx")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_gets_the_file_and_stays_a_pipe(tmp_path):
    """As /dev/stdout and /dev/null do: a rename would take their place."""
    pipe = tmp_path / "model.onnx"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    report = export_onnx(make(), pipe)
    reader.join(10)
    assert pipe.is_fifo()
    assert len(got[0]) == report.num_bytes


def test_a_target_that_cannot_be_written(path):
    path.mkdir()
    with pytest.raises(ExportError, match="cannot be written"):
        export_onnx(make(), path)
    assert os.listdir(path.parent) == [path.name]


def test_missing_libraries_are_told_before_the_training(monkeypatch, path):
    monkeypatch.setattr(file, "find_spec", lambda name: None if name in ("onnx", "onnxruntime") else True)
    for attempt in (
        lambda: check_exportable(make()),
        lambda: check_exportable("PPO"),
        lambda: export_onnx(make(), path),
    ):
        with pytest.raises(ExportError, match=r"onnx, onnxruntime.*pip install"):
            attempt()


def test_without_the_training_libraries():
    """Where torch is not installed, the sentence says so; it is not an ImportError."""
    program = (
        "import sys\n"
        "class Ban:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('torch', 'stable_baselines3'): raise ImportError(name)\n"
        "import importlib.util, importlib.machinery\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, p=None: None if n in ('torch', 'stable_baselines3') else real(n, p)\n"
        "sys.meta_path.insert(0, Ban())\n"
        "from ue_rl.inference import load_and_export\n"
        "from ue_rl.errors import ExportError\n"
        "try: load_and_export('m.zip')\n"
        "except ExportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "not installed: torch, stable_baselines3" in done.stdout


@pytest.mark.parametrize(
    ("what", "space"),
    [
        ("action", spaces.Discrete(3, start=4)),
        ("action", spaces.MultiDiscrete([2, 3], start=[0, 1])),
        ("observation", spaces.Discrete(3, start=-1)),
        ("observation", spaces.Dict({"a": vector(), "b": spaces.MultiDiscrete([2, 3], start=[1, 0])})),
    ],
    ids=str,
)
def test_choices_that_stable_baselines3_does_not_count_as_the_env_are_refused(what, space, path):
    """Its predict() gives 0..n-1 whatever the space says: a file that adds the start would do something else."""
    policy = "MultiInputPolicy" if isinstance(space, spaces.Dict) else "MlpPolicy"
    model = make(**{what: space}, policy=policy)
    for attempt in (lambda: export_onnx(model, path), lambda: check_exportable(model)):
        with pytest.raises(ExportError, match=rf"{what} space's choices do not begin with 0.*UnrealVecEnv"):
            attempt()
    assert not path.exists()
    model.save(path.with_suffix(".zip"))
    for attempt in (model, path.with_suffix(".zip")):  # nor does the model itself play otherwise than it was trained
        with pytest.raises(ModelMismatch, match=rf"{what} space's choices do not begin with 0.*UnrealVecEnv"):
            Sb3Inference(attempt)


def normalized_twice(outer=True, inner=True, between=lambda env: env):
    env = VecNormalize(DummyVecEnv([lambda: RandomEnv(vector(), BOX)]), norm_obs=inner)
    return PPO("MlpPolicy", VecNormalize(between(env), norm_obs=outer), device="cpu", policy_kwargs=dict(SMALL))


def test_two_normalisations_are_refused(path, tmp_path):
    model = normalized_twice()
    model.get_env().save(str(tmp_path / "stats.pkl"))
    for given in (None, tmp_path / "stats.pkl", model.get_env().venv):
        with pytest.raises(ExportError, match=r"two VecNormalize, one around the other.*norm_obs=False"):
            export_onnx(model, path, given)
    with pytest.raises(ExportError, match="two VecNormalize"):  # whatever stands between them
        export_onnx(normalized_twice(between=VecMonitor), path)
    assert not path.exists()
    export_onnx(normalized_twice(inner=False), path)  # of rewards


def test_frames_that_were_stacked_after_they_were_normalised_are_refused_for_that(path, tmp_path):
    env = VecNormalize(DummyVecEnv([lambda: RandomEnv(vector(), BOX)]))
    model = PPO("MlpPolicy", VecFrameStack(env, 3), device="cpu", policy_kwargs=dict(SMALL))
    env.save(str(tmp_path / "stats.pkl"))
    for given in (None, tmp_path / "stats.pkl"):
        with pytest.raises(ExportError, match=r"stacked after they had been normalised.*VecNormalize\(VecFrame"):
            export_onnx(model, path, given)
    stacked = VecNormalize(VecFrameStack(DummyVecEnv([lambda: RandomEnv(vector(), BOX)]), 3))
    export_onnx(PPO("MlpPolicy", stacked, device="cpu", policy_kwargs=dict(SMALL)), path)


@pytest.mark.parametrize("normalize", [False, {}], ids=["plain", "normalised"])
def test_a_damaged_file_is_refused(normalize, path):
    model = make(normalize=normalize, action=spaces.Discrete(5))
    report = export_onnx(model, path)
    content = path.read_bytes()
    want = OnnxInference(path).run_inference(rows(256))
    rng = np.random.default_rng(0)
    loaded = 0
    for _ in range(300):
        at, length = int(rng.integers(len(content))), int(rng.choice([1, 1, 4, 64]))
        noise = bytes(rng.integers(256, size=length, dtype=np.uint8))
        damaged = content[:at] + noise + content[at + length :]
        runtime = OnnxInference()
        try:
            runtime.load_bytes(damaged[: len(content)])
        except InferenceError:
            continue
        loaded += damaged != content
        np.testing.assert_array_equal(runtime.run_inference(rows(256)), want)
    assert loaded < 15  # those of the digest itself
    with pytest.raises(ModelLoadError, match=r"not as it was exported.*export it again"):
        OnnxInference().load_bytes(content.replace(b'"algorithm": "PPO"', b'"algorithm": "A2C"'))
    for without in (b'"sha256": "%s", ' % report.metadata.sha256.encode(), b'"sha256"'):
        assert without in content
    proto = onnx.load_from_string(content)
    proto.metadata_props[0].value = proto.metadata_props[0].value.replace(f'"sha256": "{report.metadata.sha256}", ', "")
    proto.graph.name = "changed"
    runtime = OnnxInference()
    runtime.load_bytes(proto.SerializeToString())  # an older file has none
    assert runtime.metadata.sha256 == ""
    del proto.metadata_props[:]
    runtime.load_bytes(proto.SerializeToString())  # nor has another tool's


# -- the check before the training, and checkpoints ------------------------------------------------------------------


def test_the_check_accepts_what_can_be_exported():
    for algorithm in (PPO, SAC):
        check_exportable(make(algorithm))
    check_exportable(make(normalize={}))
    for name in ("PPO", "ppo", "qrdqn", SAC):
        check_exportable(name)
    with pytest.raises(ExportError, match="cannot be exported"):
        check_exportable("ARS")


def test_exporting_does_not_disturb_the_training(path):
    """Two trainings with the same seed, one exporting in between: the same weights."""

    def train(export):
        model = make(A2C, n_steps=8, policy_kwargs={"net_arch": [16]})
        model.get_env().seed(0)
        model.get_env().envs[0].observation_space.seed(0)
        model.policy.set_training_mode(True)
        th.manual_seed(0)
        for _ in range(3):
            model.learn(8, reset_num_timesteps=False)
            if export:
                before = [module.training for module in model.policy.modules()]
                check_exportable(model)
                export_onnx(model, path)
                assert [module.training for module in model.policy.modules()] == before
        return th.cat([p.detach().ravel() for p in model.policy.parameters()])

    assert th.equal(train(False), train(True))


def test_dropout_is_off_in_the_file_and_on_again_in_the_model(path):
    class Dropping(Plain):
        def __init__(self, space):
            super().__init__(space)
            self.drop = th.nn.Dropout(0.5)

        def forward(self, obs):
            return self.drop(obs)

    model = with_extractor(Dropping)
    model.policy.set_training_mode(True)
    export_onnx(model, path, allow_custom=True)
    assert model.policy.features_extractor.drop.training


class Constant(BaseFeaturesExtractor):
    """Multiplies by a matrix that is no parameter, and so stays float32 if a net is turned to float64."""

    def __init__(self, space):
        super().__init__(space, 4)
        self.matrix = [th.randn(4, 4, generator=th.Generator().manual_seed(3))]

    def forward(self, observations):
        return observations @ self.matrix[0]


class Sorting(BaseFeaturesExtractor):
    """Does what has no rule."""

    def __init__(self, space):
        super().__init__(space, 3)

    def forward(self, observations):
        return observations.topk(3, dim=1).values


def test_custom_code_is_judged_by_the_same_arithmetic(path, monkeypatch):
    model = make(policy_kwargs={"net_arch": [16], "features_extractor_class": Constant})
    report = export_onnx(model, path, tolerance=1e-12, extreme_tolerance=1e-12, allow_custom=True)
    assert report.reason == "rounding"
    tamper(monkeypatch, edited(of_weight))
    with pytest.raises(ExportError, match="which is not rounding"):
        export_onnx(model, path, allow_custom=True)


def test_rounding_that_cannot_be_told_is_refused_with_what_to_do(path):
    model = make(policy_kwargs={"net_arch": [16], "features_extractor_class": Sorting})
    export_onnx(model, path, allow_custom=True)  # the file is right
    path.unlink()
    with pytest.raises(ExportError, match=r"not known how this rounds: .*topk") as caught:
        export_onnx(model, path, tolerance=1e-12, extreme_tolerance=1e-12, allow_custom=True)
    assert "or pass a larger tolerance" in str(caught.value)
    assert not path.exists()


def test_the_report_of_a_discrete_policy_names_what_was_compared(path):
    report = export_onnx(make(action=spaces.Discrete(3)), path)
    assert {"typical", "extreme"} <= set(report.max_relative_difference)
