"""Export: what is refused, and what a failure leaves behind; and files that were damaged."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import ARS
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecMonitor, VecNormalize

from tests.support.models import BOX, SMALL, RandomEnv, export_briefly, extractor, make, rows, vector, with_extractor
from ue_rl.inference import OnnxInference, Sb3Inference, check_exportable, export_onnx
from ue_rl.system.errors import ConfigurationError, ExportError, InferenceError, ModelLoadError, ModelMismatch

BRANCHING = extractor("Branching", lambda self, obs: obs if obs.sum() > 0 else -obs)  # depends on the observation
FORGETFUL = extractor("Forgetful", lambda self, obs: obs + float(next(CALLS)))  # is no function of the observation
ODD = extractor("Odd", lambda self, obs: th.linalg.eigvals(obs.unsqueeze(2) @ obs.unsqueeze(1)).real)
CALLS = itertools.count(1)


class OwnPolicy(ActorCriticPolicy):
    """Does something of its own after the net."""

    def _predict(self, observation, deterministic=False):
        return super()._predict(observation, deterministic) * 0.5


def test_a_custom_extractor_is_refused_by_name(path):
    model = with_extractor(BRANCHING)
    for attempt in (lambda: export_onnx(model, path), lambda: check_exportable(model)):
        with pytest.raises(ExportError, match=r"features extractor Branching is custom.*allow_custom"):
            attempt()
    assert not path.exists()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (BRANCHING, r"control flow.*torch\.where"),
        (FORGETFUL, "acts differently"),
        (ODD, "cannot convert the policy to ONNX"),
    ],
    ids=lambda kind: getattr(kind, "__name__", ""),
)
def test_custom_code_that_no_graph_can_hold_is_refused(kind, said, path):
    with pytest.raises(ExportError, match=said):
        export_onnx(with_extractor(kind), path, allow_custom=True)


def test_a_custom_policy_is_refused_and_when_tried_compared(path):
    model = make(policy=OwnPolicy)
    with pytest.raises(ExportError, match="policy OwnPolicy is custom"):
        export_onnx(model, path)
    with pytest.raises(ExportError, match=r"acts differently from predict\(\) on a typical observation"):
        export_onnx(model, path, allow_custom=True)
    assert os.listdir(path.parent) == []


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


def test_what_is_wrong_with_the_call_is_said(path):
    with pytest.raises(ConfigurationError, match="1000 or more"):
        export_onnx(make(), path, n_verify=999)
    with pytest.raises(ExportError, match="does not exist"):
        export_onnx(make(), path.parent / "no" / "p.onnx")
    with pytest.raises(ConfigurationError, match="has no name"):
        export_onnx(make(), "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_gets_the_file_and_stays_a_pipe(tmp_path):
    """As /dev/stdout and /dev/null do: a rename would take their place."""
    pipe = tmp_path / "model.onnx"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    report = export_briefly(make(), pipe)
    reader.join(60)
    assert pipe.is_fifo()
    assert len(got[0]) == report.num_bytes


def test_a_target_that_cannot_be_written(path):
    path.mkdir()
    with pytest.raises(ExportError, match="cannot be written"):
        export_onnx(make(), path)
    assert os.listdir(path.parent) == [path.name]


def test_missing_libraries_are_told_before_the_training(monkeypatch, path):
    for name in ("onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)  # as where it is not installed
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
        "from ue_rl.system.errors import ExportError\n"
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
    export_briefly(normalized_twice(inner=False), path)  # of rewards


def test_frames_that_were_stacked_after_they_were_normalised_are_refused_for_that(path, tmp_path):
    env = VecNormalize(DummyVecEnv([lambda: RandomEnv(vector(), BOX)]))
    model = PPO("MlpPolicy", VecFrameStack(env, 3), device="cpu", policy_kwargs=dict(SMALL))
    env.save(str(tmp_path / "stats.pkl"))
    for given in (None, tmp_path / "stats.pkl"):
        with pytest.raises(ExportError, match=r"stacked after they had been normalised.*VecNormalize\(VecFrame"):
            export_onnx(model, path, given)
    stacked = VecNormalize(VecFrameStack(DummyVecEnv([lambda: RandomEnv(vector(), BOX)]), 3))
    export_briefly(PPO("MlpPolicy", stacked, device="cpu", policy_kwargs=dict(SMALL)), path)


@pytest.mark.parametrize(
    "normalize", [pytest.param(False, marks=pytest.mark.exhaustive), {}], ids=["plain", "normalised"]
)
def test_a_damaged_file_is_refused(normalize, path):
    model = make(normalize=normalize, action=spaces.Discrete(5))
    report = export_briefly(model, path)
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


def test_the_check_accepts_what_can_be_exported():
    for algorithm in (PPO, SAC):
        check_exportable(make(algorithm))
    check_exportable(make(normalize={}))
    for name in ("PPO", "ppo", "qrdqn", SAC):
        check_exportable(name)
    with pytest.raises(ExportError, match="cannot be exported"):
        check_exportable("ARS")
