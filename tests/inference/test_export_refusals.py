"""Export: refusals, comparison with predict(), and what a failure leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import ARS, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import ue_rl.inference.export.onnx as export_module
from ue_rl.errors import ConfigurationError, ExportError
from ue_rl.inference import check_exportable, export_onnx

SMALL = {"net_arch": [16]}
BOX = spaces.Box(np.array([-3, 0.5], np.float32), np.array([1, 7], np.float32))


class RandomEnv(gym.Env):
    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(np.sum(action)), False, False, {}


def vector(n=4):
    return spaces.Box(-np.inf, np.inf, (n,), np.float32)


def make(algorithm=PPO, action=BOX, observation=None, policy="MlpPolicy", gain=1.0, normalize=False, **kwargs):
    env = DummyVecEnv([lambda: RandomEnv(observation or vector(), action)])
    if normalize is not False:
        env = VecNormalize(env, **normalize)
    if hasattr(algorithm, "collect_rollouts") and "OffPolicy" in str(algorithm.__mro__):
        kwargs.setdefault("buffer_size", 64)
    kwargs["policy_kwargs"] = dict(kwargs.get("policy_kwargs", SMALL))  # SB3 writes into it
    model = algorithm(policy, env, device="cpu", seed=0, **kwargs)
    generator = th.Generator().manual_seed(0)
    for parameter in model.policy.parameters():
        if parameter.requires_grad and parameter.dim() > 1:
            parameter.data = th.randn(parameter.shape, generator=generator) * gain / parameter.shape[1] ** 0.5
    return model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "policy.onnx"


def rows(n=64, size=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, size)).astype(np.float32)


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


def test_rounding_is_named_as_such(path):
    """A net that float32 cannot compute well is refused, but not blamed on the export."""
    model = make(policy_kwargs={"net_arch": [256, 256], "activation_fn": th.nn.ReLU})
    with pytest.raises(ExportError, match=r"rounding of float32.*pass (extreme_)?tolerance"):
        export_onnx(model, path, tolerance=1e-9, extreme_tolerance=1e-9)


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


def test_a_target_that_cannot_be_written(path):
    path.mkdir()
    with pytest.raises(ExportError, match="cannot be written"):
        export_onnx(make(), path)
    assert os.listdir(path.parent) == [path.name]


def test_missing_libraries_are_told_before_the_training(monkeypatch, path):
    monkeypatch.setattr(export_module, "find_spec", lambda name: None if name in ("onnx", "onnxruntime") else True)
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
