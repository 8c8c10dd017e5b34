"""Models of Stable-Baselines3 that were never trained, in envs that do nothing: for what plays or exports them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from ue_rl.inference import export_onnx

SMALL = {"net_arch": [16]}
SMALL_RECURRENT = {**SMALL, "lstm_hidden_size": 16}
BOX = spaces.Box(np.array([-3, 0.5], np.float32), np.array([1, 7], np.float32))


class RandomEnv(gym.Env):
    """Any spaces; the observations are random, and the reward is the sum of the action."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(np.sum(action)), False, False, {}


def vector(n=4):
    return spaces.Box(-np.inf, np.inf, (n,), np.float32)


def make(algorithm=PPO, action=BOX, observation=None, policy="MlpPolicy", gain=1.0, normalize=False, **kwargs):
    """A model with random weights, small and fast."""
    env = DummyVecEnv([lambda: RandomEnv(observation or vector(), action)])
    if normalize is not False:
        env = VecNormalize(env, **normalize)
    if hasattr(algorithm, "collect_rollouts") and "OffPolicy" in str(algorithm.__mro__):
        kwargs.setdefault("buffer_size", 64)
    small = SMALL_RECURRENT if algorithm is RecurrentPPO else SMALL
    kwargs["policy_kwargs"] = dict(kwargs.get("policy_kwargs", small))  # SB3 writes into it
    model = algorithm(policy, env, device="cpu", seed=0, **kwargs)
    generator = th.Generator().manual_seed(0)
    for parameter in model.policy.parameters():
        if parameter.requires_grad and parameter.dim() > 1:
            parameter.data = th.randn(parameter.shape, generator=generator) * gain / parameter.shape[1] ** 0.5
    return model


def scramble(policy, seed=0, gain=1.5):
    """Random weights that make a decided policy."""
    generator = th.Generator().manual_seed(seed)
    for parameter in policy.parameters():
        if parameter.requires_grad:
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 25
            parameter.data = th.randn(parameter.shape, generator=generator) * gain / fan_in**0.5


def export_briefly(model, path, *statistics, **options):
    """export_onnx, compared on as few observations as it may be: where the comparison is not what is tested."""
    return export_onnx(model, path, *statistics, n_verify=1000, **options)


def rows(n=64, size=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, size)).astype(np.float32)


def extractor(name, forward, features=4):
    """A features extractor of somebody's own."""

    def __init__(self, space):
        BaseFeaturesExtractor.__init__(self, space, features)

    return type(name, (BaseFeaturesExtractor,), {"__init__": __init__, "forward": forward})


def with_extractor(kind):
    return make(policy_kwargs={"features_extractor_class": kind, **SMALL})
