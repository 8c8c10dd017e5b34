"""Which learner learns what: a table; and that what NumPy learns goes through rollouts and updates."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO, RecurrentPPO
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

import ue_rl
from ue_rl.envs.hybrid_box import HybridBox
from ue_rl.protocol.text import read_space
from ue_rl.system.errors import ConfigurationError

nn = torch.nn  # as policy_kwargs are written
BOX = spaces.Box(-1, 1, (3,), np.float32)
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "Box": BOX,
    "Box of integers": spaces.Box(0, 9, (2, 2), np.int64),
    "small picture": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "Discrete": spaces.Discrete(4),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(3),
    "Dict": spaces.Dict({"a": BOX, "b": spaces.Discrete(3), "c": spaces.MultiBinary(2)}),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "Discrete": spaces.Discrete(3),
    "Box": spaces.Box(-1, 1, (2,), np.float32),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(3),
    "hybrid": HybridBox(read_space("DICT(aim:BOX(-2:3),gun:DISCRETE(4),flags:MULTI_BINARY(2))")),
}
SMALL: dict[str, Any] = {"n_steps": 8, "device": "cpu", "seed": 0}


class Noise(gym.Env[Any, Any]):
    """Sees what its space draws; episodes of five steps, half of which are cut."""

    def __init__(self, observation: spaces.Space[Any] = BOX, action: spaces.Space[Any] = ACTIONS["Discrete"]) -> None:
        self.observation_space = deepcopy(observation)  # with a generator of its own
        self.action_space = action

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self._seen(), {}

    def _seen(self) -> Any:
        sample = self.observation_space.sample()
        if isinstance(self.observation_space, spaces.Discrete):
            return int(sample)  # as the envs of toy text give it
        return sample

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(np.asarray(action, self.action_space.dtype))
        self.steps += 1
        over = self.steps == 5
        cut = over and bool(self.np_random.random() < 0.5)
        return self._seen(), float(self.np_random.normal()), over and not cut, cut, {}

    def masks(self, _: Any = None) -> Any:
        count = int(spaces.flatdim(self.action_space))
        if isinstance(self.action_space, spaces.MultiBinary):
            count *= 2
        allowed = self.np_random.random(count) < 0.5
        allowed[[0, -1]] = True
        if isinstance(self.action_space, spaces.MultiBinary):
            allowed[::2] = True
        elif isinstance(self.action_space, spaces.MultiDiscrete):
            allowed[3] = True
        return allowed


KINDS = (PPO, A2C, MaskablePPO)


def by_ppo(names: Iterable[Any]) -> list[Any]:
    """(kind, name): each with PPO, and the others with the first one; the rest of the product is for the night."""
    first, *_ = names = list(names)
    return [
        pytest.param(kind, name, marks=() if kind is PPO or name is first else pytest.mark.exhaustive)
        for kind in KINDS
        for name in names
    ]


def envs(observation: spaces.Space[Any], action: spaces.Space[Any], masked: bool = False) -> DummyVecEnv:
    def make() -> Any:
        env = Noise(observation, action)
        return ActionMasker(env, env.masks) if masked else env

    return DummyVecEnv([make] * 3)


def made(kind: Any, env: Any, **arguments: Any) -> Any:
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    own = {} if issubclass(kind, A2C) else {"batch_size": 12, "n_epochs": 2}
    return ue_rl.numpy_learner(kind)(policy, env, **{**SMALL, **own, **arguments})


def weights(model: Any) -> bytes:
    return b"".join(value.detach().numpy().tobytes() for value in model.policy.parameters())


class Judging(BaseCallback):
    """What was stored of a rollout is what torch says of it."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        model: Any = self.model
        buffer = deepcopy(model.rollout_buffer)
        samples = next(buffer.get(None))
        actions = samples.actions
        if isinstance(model.action_space, spaces.Discrete):
            actions = actions.long().flatten()
        masks = {"action_masks": samples.action_masks} if hasattr(samples, "action_masks") else {}
        with torch.no_grad():
            values, log_probs, _ = model.policy.evaluate_actions(samples.observations, actions, **masks)
        np.testing.assert_allclose(values.flatten(), samples.old_values, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(log_probs, samples.old_log_prob, rtol=1e-4, atol=1e-5)


def check_learns(model: Any) -> None:
    """In NumPy, and what it stores is what the policy says."""
    assert model.torch_learns is None
    before = weights(model)
    model.learn(48, callback=Judging())
    assert weights(model) != before
    assert all(bool(torch.isfinite(value).all()) for value in model.policy.parameters())
    assert model._binding.holds(model.policy)


@pytest.mark.parametrize(("kind", "observation"), by_ppo(OBSERVATIONS))
def test_numpy_learns_from_these_observations(kind: Any, observation: str) -> None:
    check_learns(made(kind, envs(OBSERVATIONS[observation], ACTIONS["Discrete"], kind is MaskablePPO)))


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_numpy_learns_these_actions(kind: Any, action: str) -> None:
    if kind is MaskablePPO and action in ("Box", "hybrid"):
        return  # which it does not take
    check_learns(made(kind, envs(BOX, ACTIONS[action], kind is MaskablePPO)))


@pytest.mark.parametrize(("kind", "activation"), by_ppo([nn.Tanh, nn.ReLU, nn.LeakyReLU, nn.ELU]))
def test_numpy_learns_with_these_activation_functions(kind: Any, activation: Any) -> None:
    kwargs = {"activation_fn": activation, "net_arch": {"pi": [6], "vf": [5, 4]}}
    check_learns(made(kind, envs(BOX, ACTIONS["Discrete"], kind is MaskablePPO), policy_kwargs=kwargs))


@pytest.mark.parametrize("wrapper", [VecNormalize, lambda env: VecFrameStack(env, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_numpy_learns_within_wrappers(kind: Any, wrapper: Any) -> None:
    check_learns(made(kind, wrapper(envs(BOX, ACTIONS["Discrete"], kind is MaskablePPO))))


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (PPO, {"clip_range_vf": 0.2, "ent_coef": 0.1, "target_kl": 0.5, "normalize_advantage": False}),
        (PPO, {"learning_rate": lambda left: 1e-3 * left, "clip_range": lambda left: 0.2 * left}),
        (PPO, {"policy_kwargs": {"share_features_extractor": False}}),
        (PPO, {"policy_kwargs": {"optimizer_class": torch.optim.RMSprop}}),
        (PPO, {"policy_kwargs": {"net_arch": []}}),
        (A2C, {"normalize_advantage": True, "gae_lambda": 0.9}),
        (A2C, {"use_rms_prop": False}),
    ],
)
def test_numpy_learns_with_these_arguments(kind: Any, more: dict[str, Any]) -> None:
    check_learns(made(kind, envs(BOX, ACTIONS["Discrete"]), **more))


class OwnPolicy(ActorCriticPolicy):
    pass


class OwnFeatures(BaseFeaturesExtractor):
    def __init__(self, space: Any) -> None:
        super().__init__(space, 4)
        self.layer = nn.Linear(3, 4)

    def forward(self, observations: Any) -> Any:
        return self.layer(observations)


class OwnTrain(PPO):
    def train(self) -> None:
        super().train()


BOXES = (BOX, ACTIONS["Box"])
LEFT: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "sde": (PPO, BOXES, {"use_sde": True}, "use_sde"),
    "own policy": (PPO, BOXES, {"policy": OwnPolicy}, "OwnPolicy"),
    "own features": (PPO, BOXES, {"policy_kwargs": {"features_extractor_class": OwnFeatures}}, "OwnFeatures"),
    "own train": (OwnTrain, BOXES, {}, "OwnTrain has a train of its own"),
    "activation": (A2C, BOXES, {"policy_kwargs": {"activation_fn": nn.GELU}}, "GELU"),
    "optimizer": (PPO, BOXES, {"policy_kwargs": {"optimizer_class": torch.optim.AdamW}}, "AdamW"),
    "decay": (PPO, BOXES, {"policy_kwargs": {"optimizer_kwargs": {"weight_decay": 0.1}}}, "weight_decay=0.1"),
    "pictures": (
        PPO,
        (spaces.Box(0, 255, (36, 36, 1), np.uint8), ACTIONS["Box"]),
        {"policy": "CnnPolicy"},
        "ActorCriticCnnPolicy",
    ),
    "a picture in a Dict": (
        PPO,
        (spaces.Dict({"a": spaces.Box(0, 255, (36, 36, 1), np.uint8)}), ACTIONS["Box"]),
        {"policy": "MultiInputPolicy"},
        "parameters",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_torch_is_said_once_and_learns_as_ever(name: str) -> None:
    kind, (observation, action), more, reason = LEFT[name]
    arguments = {"policy": "MlpPolicy", **SMALL, **deepcopy(more)}  # A2C writes into policy_kwargs
    if kind is not A2C:
        arguments |= {"batch_size": 12, "n_epochs": 1}
    model = ue_rl.numpy_learner(kind)(env=envs(observation, action), **arguments)
    assert reason in model.torch_learns
    with pytest.warns(UserWarning, match="with torch") as said:
        model.learn(48)
    assert [str(each.message) for each in said if "with torch" in str(each.message)] == [
        f"{kind.__name__} is not learnt in NumPy, but with torch: {model.torch_learns}"
    ]
    with_torch = kind(env=envs(observation, action), **arguments).learn(48)
    assert weights(model) == weights(with_torch)


@pytest.mark.parametrize("kind", [DQN, RecurrentPPO])
def test_other_algorithms_are_refused(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="NumPy does not learn"):
        ue_rl.numpy_learner(kind)


@pytest.mark.parametrize("kind", [ue_rl.numpy_learner(ue_rl.overlap(PPO)), ue_rl.overlap(ue_rl.numpy_learner(PPO))])
def test_overlap_is_torchs_whichever_stands_first(kind: Any) -> None:
    model = kind("MlpPolicy", envs(BOX, ACTIONS["Box"]), **SMALL, batch_size=12)
    assert "overlap" in model.torch_learns
    with pytest.warns(UserWarning, match="overlap"):
        assert model._bound() is None
