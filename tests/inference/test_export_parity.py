"""The parity matrix: algorithm x action space x observation space x normalisation.

Each run takes a few of it. The rest is exhaustive: `test_export_models.py` exports a file of every algorithm, and
`test_export_spaces.py` takes every kind of observation and of action.

The weights are random and large enough that the actions vary over their whole range: an untrained net gives nearly
the same action everywhere, and any export would pass.
"""

from __future__ import annotations

import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
import torch as th
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.support.models import RandomEnv, export_briefly, scramble
from ue_rl.inference import OnnxInference
from ue_rl.inference.metadata import space_size

VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 3), np.uint8)
DICT = spaces.Dict(
    {
        "vector": VECTOR,
        "bounded": spaces.Box(-1, 2, (2, 2), np.float32),
        "weapon": spaces.Discrete(3),
        "levels": spaces.MultiDiscrete([2, 4]),
        "flags": spaces.MultiBinary(3),
        "camera": IMAGE,
    }
)
OBSERVATIONS = {"vector": (VECTOR, "Mlp"), "image": (IMAGE, "Cnn"), "dict": (DICT, "MultiInput")}
ACTIONS = {
    "symmetric": spaces.Box(-1, 1, (2,), np.float32),
    "asymmetric": spaces.Box(np.array([-3, 0.5], np.float32), np.array([1, 7], np.float32)),
    "discrete": spaces.Discrete(4),
    "multi_discrete": spaces.MultiDiscrete([2, 3, 4]),
    "multi_binary": spaces.MultiBinary(3),
}
BOXES = ("symmetric", "asymmetric")
SUPPORTED = {
    "PPO": tuple(ACTIONS),
    "A2C": tuple(ACTIONS),
    "TRPO": tuple(ACTIONS),
    "MaskablePPO": ("discrete", "multi_discrete", "multi_binary"),
    "RecurrentPPO": tuple(ACTIONS),
    "SAC": BOXES,
    "TD3": BOXES,
    "DDPG": BOXES,
    "TQC": BOXES,
    "DQN": ("discrete",),
    "QRDQN": ("discrete",),
}
EACH_RUN = {
    ("PPO", "asymmetric", "vector", True),
    ("A2C", "multi_discrete", "vector", True),
    ("MaskablePPO", "multi_binary", "vector", False),
    ("RecurrentPPO", "asymmetric", "vector", True),
    ("TQC", "symmetric", "vector", True),
    ("QRDQN", "discrete", "vector", True),
}
OFF_POLICY = ("SAC", "TD3", "DDPG", "TQC", "DQN", "QRDQN")


def make_normalize(env, seed=0):
    keys = ["vector", "bounded"] if isinstance(env.observation_space, spaces.Dict) else None
    stats = VecNormalize(env, clip_obs=5.0, norm_reward=False, norm_obs_keys=keys)
    rng = np.random.default_rng(seed)
    for rms in stats.obs_rms.values() if keys else [stats.obs_rms]:
        rms.mean = rng.normal(0, 300, rms.mean.shape)  # far from zero: float32 alone would lose digits here
        rms.var = rng.uniform(1e-3, 9, rms.var.shape)
        rms.count = 1e4
    return stats


def make_model(algorithm, action, observation, normalized=False, seed=0, **kwargs):
    obs_space, policy = OBSERVATIONS[observation]
    if algorithm == "RecurrentPPO" and observation == "dict":  # sb3-contrib makes no LSTM behind a MultiDiscrete
        obs_space = spaces.Dict({key: sub for key, sub in DICT.spaces.items() if key != "levels"})
    env = DummyVecEnv([lambda: RandomEnv(obs_space, ACTIONS[action])])
    if normalized:
        env = make_normalize(env)
    library = stable_baselines3 if hasattr(stable_baselines3, algorithm) else sb3_contrib
    if algorithm in OFF_POLICY:
        kwargs.setdefault("buffer_size", 16)
    policy_kwargs = {"net_arch": [32, 32], **kwargs.pop("policy_kwargs", {})}
    if algorithm == "RecurrentPPO":
        policy_kwargs["lstm_hidden_size"] = 16
    name = f"{policy}{'LstmPolicy' if algorithm == 'RecurrentPPO' else 'Policy'}"
    model = getattr(library, algorithm)(name, env, device="cpu", seed=seed, policy_kwargs=policy_kwargs, **kwargs)
    scramble(model.policy, seed)
    calibrate(model)
    return model


def space_of_env(model):
    """The observation space before any wrapper."""
    return model.get_env().unwrapped.envs[0].observation_space


def calibrate(model):
    """Scale the last layer so that its outputs spread around the middle of the actions."""
    policy, outputs = model.policy, []
    nets = [getattr(policy, name, None) for name in ("action_net", "actor", "q_net", "quantile_net")]
    net = next(net for net in nets if net is not None)
    net = getattr(net, "mu", net)
    last = [module for module in net.modules() if isinstance(module, th.nn.Linear)][-1]
    hook = last.register_forward_hook(lambda _module, _inputs, output: outputs.append(output.detach()))
    stats = model.get_vec_normalize_env()
    obs = sample(space_of_env(model), stats, 256, np.random.default_rng(5))
    model.predict(stats.normalize_obs(obs) if stats else obs, deterministic=True)
    hook.remove()
    mean, std = outputs[0].mean(dim=0), outputs[0].std(dim=0)
    middle, half = 0.0, 1.0
    if hasattr(policy, "action_net") and isinstance(model.action_space, spaces.Box):
        space = model.action_space
        middle, half = th.as_tensor((space.high + space.low) / 2), th.as_tensor((space.high - space.low) / 2)
    last.weight.data *= (half / std)[:, None]
    last.bias.data = middle + (last.bias.data - mean) * half / std


def sample(space, stats, n, rng):
    """Observations of one row space as the env gives them, and the same as float32 rows."""
    if isinstance(space, spaces.Dict):
        return {
            key: sample(sub, stats.obs_rms.get(key) if stats is not None else None, n, rng)
            for key, sub in space.spaces.items()
        }
    if isinstance(space, spaces.Box) and space.dtype == np.float32:
        rms = getattr(stats, "obs_rms", stats)
        mean, std = (rms.mean, np.sqrt(rms.var)) if rms is not None else (0.0, 1.0)
        return np.clip(mean + std * rng.standard_normal((n, *space.shape)), space.low, space.high).astype(np.float32)
    if space == IMAGE:  # noise over a whole image averages out: each has its own colour
        colour = rng.integers(256, size=(n, 1, 1, 3))
        return np.clip(colour + rng.integers(-40, 40, size=(n, *space.shape)), 0, 255).astype(np.uint8)
    space.seed(int(rng.integers(2**31)))
    return np.stack([space.sample() for _ in range(n)])


def cases():
    for algorithm, actions in SUPPORTED.items():
        for action in actions:
            for observation in OBSERVATIONS:
                for normalized in (False, True):
                    if normalized and observation == "image":
                        continue  # VecNormalize and image scaling exclude each other in SB3
                    case = (algorithm, action, observation, normalized)
                    marks = () if case in EACH_RUN else pytest.mark.exhaustive
                    yield pytest.param(*case, marks=marks)


@pytest.mark.parametrize(("algorithm", "action", "observation", "normalized"), list(cases()))
def test_the_file_acts_as_predict_does(algorithm, action, observation, normalized, tmp_path):
    model = make_model(algorithm, action, observation, normalized)
    report = export_briefly(model, tmp_path / "policy.onnx")
    continuous = action in BOXES
    assert report.ties == 0
    assert report.observations >= 1000
    assert report.max_relative_difference["typical"] <= 1e-5
    assert report.max_relative_difference["extreme"] <= 1e-4
    if not continuous:
        assert report.max_abs_difference == 0

    # Once more from outside, without the exporter's own comparison.
    runtime = OnnxInference(tmp_path / "policy.onnx")
    runtime.require(space_size(report.metadata.observation_space), space_size(report.metadata.action_space))
    stats = model.get_vec_normalize_env()
    obs = sample(space_of_env(model), stats, 128, np.random.default_rng(1))
    ports = report.metadata.ports("action_masks")
    masks = {"action_masks": np.ones((128, ports[0].size))} if ports else {}
    got = runtime.run_inference(
        {key: value.reshape(128, -1) for key, value in obs.items()} if isinstance(obs, dict) else obs, **masks
    )
    want, _ = model.predict(stats.normalize_obs(obs) if stats else obs, deterministic=True)
    assert got.dtype == np.float32
    assert got.shape == (128, space_size(report.metadata.action_space))
    want = want.reshape(128, -1)
    if continuous:
        space = ACTIONS[action]
        assert np.abs(got - want).max() <= 1e-5 * (space.high - space.low).min()
        assert (np.ptp(got, axis=0) > 0.1 * (space.high - space.low)).all(), "the policy hardly acts: the test is empty"
    else:
        np.testing.assert_array_equal(got, want)
        assert len(np.unique(got, axis=0)) > 1, "the policy always does the same: the test is empty"
    one = runtime.run(
        {key: value[:1].reshape(1, -1) for key, value in obs.items()} if isinstance(obs, dict) else obs[:1],
        **{name: array[:1] for name, array in masks.items()},
    )[0]
    np.testing.assert_allclose(one, got[:1], atol=1e-5 * 6)
