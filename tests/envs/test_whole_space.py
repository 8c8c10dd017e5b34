"""Dicts, Tuples, matrices, integers, choices, images and masks over every carrier, equal to DummyVecEnv."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecExtractDictObs,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
)

import ue_rl
from tests.envs.conftest import Sampled, assert_same_steps, memory_and_all_carriers, trained
from tests.support.models import export_briefly
from tests.support.same import assert_same
from ue_rl.bridges import GymnasiumBridge
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.hybrid_box import HybridBox
from ue_rl.inference import OnnxInference, Sb3Inference

N = 3
WITH_IMAGES = ("memory", "upgraded", "shm")

PARTS: dict[str, spaces.Space[Any]] = {
    "bytes": spaces.Box(0, 200, (2, 2), np.uint8),
    "flags": spaces.MultiBinary(3),
    "grid": spaces.MultiDiscrete([2, 3, 4]),
    "integers": spaces.Box(-1000, 1000, (2,), np.int32),
    "matrix": spaces.Box(-10, 10, (2, 3), np.float32),
    "position": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "scalar": spaces.Box(-1, 1, (), np.float32),
    "weapon": spaces.Discrete(4),
}
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "dict": spaces.Dict(PARTS),
    "tuple": spaces.Tuple((PARTS["weapon"], PARTS["matrix"])),
    "discrete": PARTS["weapon"],
    "multi-discrete": PARTS["grid"],
    "multi-binary": PARTS["flags"],
    "matrix": PARTS["matrix"],
    "bytes": PARTS["bytes"],
}
LEARNED = spaces.Dict({name: part for name, part in PARTS.items() if name != "scalar"})  # SB3's policies take none
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)


class Masked(Sampled):
    """Legal is what its own generator says, which masks some choices."""

    def action_masks(self) -> np.ndarray:
        """One choice of each number at least."""
        counts = (
            [self.action_space.n] if isinstance(self.action_space, spaces.Discrete) else list(self.action_space.nvec)
        )  # type: ignore[attr-defined]
        generator = np.random.default_rng([self.steps, int(abs(self.last) * 1000)])
        masks = [generator.random(count) < 0.6 for count in counts]
        for mask in masks:
            mask[generator.integers(len(mask))] = True
        return np.concatenate(masks)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(**options)
        self.last = float(self.np_random.normal())
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        masks = np.split(self.action_masks(), np.cumsum(getattr(self.action_space, "nvec", [3]))[:-1])
        assert all(mask[choice] for mask, choice in zip(masks, np.ravel(action), strict=True)), "not legal"
        self.last = float(self.np_random.normal())
        return super().step(action)


def assert_same_choices(left: VecEnv, right: VecEnv, steps: int = 30) -> None:
    left.seed(2)
    right.seed(2)
    assert assert_same_steps(left, right, lambda rng: rng.integers(0, 3, N), steps) > 5


def hosted(space: spaces.Space[Any], action_space: spaces.Space[Any] | None = None) -> Callable[[], Sampled]:
    return lambda: Sampled(space, action_space)


@memory_and_all_carriers(OBSERVATIONS, "dict")
def test_observations_equal_dummy_vec_env(opened: Any, name: str) -> None:
    make = hosted(OBSERVATIONS[name])
    env, reference = opened(make), DummyVecEnv([make] * N)
    assert env.observation_space == reference.observation_space
    assert_same_choices(env, reference)


SMALL = {"net_arch": [16]}
ON_POLICY = {"n_steps": 8, "batch_size": 12, "n_epochs": 1, "policy_kwargs": SMALL}
STEPS = 48  # two rollouts, in which some ten episodes end
RUNS: dict[str, tuple[Any, str, Any, dict[str, Any]]] = {
    "ppo-dict": (PPO, "MultiInputPolicy", hosted(LEARNED), ON_POLICY),
    "a2c-discrete": (A2C, "MlpPolicy", hosted(OBSERVATIONS["discrete"]), {}),
    "dqn-dict": (DQN, "MultiInputPolicy", hosted(LEARNED), {"learning_starts": 30, "policy_kwargs": SMALL}),
    "sac-dict": (
        SAC, "MultiInputPolicy", hosted(LEARNED, spaces.Box(-1, 1, (2,), np.float32)),
        {"learning_starts": 30, "batch_size": 16, "policy_kwargs": SMALL},
    ),
    "maskable": (
        MaskablePPO, "MlpPolicy", lambda: Masked(PARTS["position"]), ON_POLICY,
    ),
    "maskable-multi": (
        MaskablePPO, "MultiInputPolicy", lambda: Masked(LEARNED, spaces.MultiDiscrete([2, 5])),
        ON_POLICY,
    ),
    "ppo-image": (PPO, "CnnPolicy", hosted(IMAGE), {"n_steps": 8, "batch_size": 12, "n_epochs": 1}),
}  # fmt: skip


@functools.cache
def trained_over_dummy_vec_env(name: str) -> list[Any]:
    algorithm, policy, make, options = RUNS[name]
    return trained(algorithm, policy, DummyVecEnv([make] * N), STEPS, seed=3, **options)


@memory_and_all_carriers(RUNS, "maskable-multi", nightly=("a2c-discrete", "dqn-dict", "sac-dict", "maskable"))
def test_training_is_bit_equal_to_dummy_vec_env(opened: Any, name: str) -> None:
    algorithm, policy, make, options = RUNS[name]
    assert_same(trained(algorithm, policy, opened(make), STEPS, seed=3, **options), trained_over_dummy_vec_env(name))


def seen(beside: bool) -> tuple[Any, Any, str]:
    """An observation space with an image, an env that has it, and the policy for it."""
    space = spaces.Dict({**LEARNED.spaces, "camera": IMAGE}) if beside else IMAGE
    return space, hosted(space), "MultiInputPolicy" if beside else "CnnPolicy"


SHORT = {"n_steps": 8, "batch_size": 12, "n_epochs": 1}


@functools.cache
def seen_over_dummy_vec_env(beside: bool) -> list[Any]:
    _, make, policy = seen(beside)
    return trained(PPO, policy, DummyVecEnv([make] * N), STEPS, seed=3, **SHORT)


@pytest.mark.parametrize(
    ("opened", "beside"),
    [
        *((carrier, True) for carrier in WITH_IMAGES),
        ("shm", False),
        *(pytest.param(carrier, False, marks=pytest.mark.exhaustive) for carrier in ("memory", "upgraded")),
    ],
    indirect=["opened"],
)
def test_images_inside_observations_train_bit_equal(opened: Any, beside: bool) -> None:
    space, make, policy = seen(beside)
    env = opened(make, bridge_options={"images": True})
    assert env.engine_spec.image is not None
    assert env.observation_space == space
    assert_same(trained(PPO, policy, env, STEPS, seed=3, **SHORT), seen_over_dummy_vec_env(beside))


HARD = ("arm.left", "arm_left", "forward", "items", "keys", "training", "type", "type_", "values", "z")


@pytest.mark.parametrize(
    "opened",
    [
        "shm",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("memory", "shared", "per_env", "upgraded")),
    ],
    indirect=True,
)
def test_names_that_torch_refuses_are_renamed_for_sb3_alone(opened: Any, tmp_path: Any) -> None:
    """MultiInputPolicy keeps a net for each part in a ModuleDict, under the part's name."""
    sizes = {name: 1 + number % 3 for number, name in enumerate(HARD)}
    space = spaces.Dict({name: spaces.Box(-9, 9, (size,), np.float32) for name, size in sizes.items()})
    space.spaces["keys"] = IMAGE  # a part with a net of its own
    env, reference = opened(hosted(space)), DummyVecEnv([hosted(space)] * N)
    for one in (env, reference):
        one.seed(4)
    renamed = ("arm_left_", "arm_left", "forward_", "items_", "keys_", "training_", "type__", "type_", "values_", "z")
    seen, given = env.reset(), reference.reset()
    assert tuple(env.observation_space.spaces) == tuple(seen) == renamed
    for name, key in zip(HARD, renamed, strict=True):
        np.testing.assert_array_equal(seen[key], given[name])
        assert env.observation_space[key] == space[name]
    normalized = VecNormalize(env, norm_obs_keys=["type__"])
    small = {"features_extractor_kwargs": {"cnn_output_dim": 16}, **SMALL}
    more: Any = {"n_steps": 8, "batch_size": 24, "n_epochs": 1, "policy_kwargs": small}
    model = PPO("MultiInputPolicy", normalized, seed=1, device="cpu", **more)
    model.learn(8 * N)
    assert sorted(export_briefly(model, tmp_path / "p.onnx").metadata.observation_space["spaces"]) == sorted(HARD)
    model.save(tmp_path / "p.zip")
    again = PPO.load(tmp_path / "p.zip", env=model.get_env())
    again.learn(8 * N)
    acted = OnnxInference(tmp_path / "p.onnx").run_inference(given)
    played = Sb3Inference(model, model.get_vec_normalize_env())
    for obs in (given, seen):
        np.testing.assert_allclose(played.run_inference(obs), acted)


@pytest.mark.parametrize("kind", [ue_rl.UnrealVectorEnv, ue_rl.UnrealEnv])
def test_gymnasium_keeps_the_engines_names(kind: Any) -> None:
    space = spaces.Dict({name: PARTS["position"] for name in HARD})
    env = kind(MemoryTransport(GymnasiumBridge(hosted(space), 1)))
    assert tuple(env.observation_space.spaces) == tuple(env.reset()[0]) == HARD


WRAPPERS: dict[str, Callable[[VecEnv], VecEnv]] = {
    "normalize": lambda env: VecNormalize(env, norm_obs_keys=["position", "matrix"]),
    "extract": lambda env: VecExtractDictObs(env, "matrix"),
    "stack": lambda env: VecFrameStack(VecExtractDictObs(env, "position"), 3),
    "transpose": VecTransposeImage,
    "stack-images": lambda env: VecFrameStack(VecTransposeImage(env), 2),
}


@memory_and_all_carriers(WRAPPERS, "normalize", over=("memory", "shm"))
def test_wrappers_of_sb3_see_what_they_see_over_dummy_vec_env(opened: Any, name: str) -> None:
    images = spaces.Dict({"camera": IMAGE, "position": PARTS["position"]})
    make = hosted(images if "trans" in name or "images" in name else OBSERVATIONS["dict"])
    wrap = WRAPPERS[name]
    env, reference = wrap(opened(make)), wrap(DummyVecEnv([make] * N))
    assert env.observation_space == reference.observation_space
    assert_same_choices(env, reference)


# -- masks


def test_masks_belong_to_the_observation_that_stands_beside_them(opened: Any) -> None:
    make = lambda: Masked(PARTS["position"])  # noqa: E731
    env, reference = opened(make), DummyVecEnv([make] * N)
    assert is_masking_supported(env)
    assert env.has_attr("action_masks")
    env.seed(1)
    reference.seed(1)
    assert_same(env.reset(), reference.reset())
    ended = 0
    kept = []
    for _ in range(60):
        masks = get_action_masks(env)
        assert masks.dtype == np.bool_
        np.testing.assert_array_equal(masks, get_action_masks(reference))
        np.testing.assert_array_equal(env.env_method("action_masks", indices=[1])[0], masks[1])
        legal = np.array([int(np.flatnonzero(mask)[0]) for mask in masks])
        _, _, dones, infos = env.step(legal)
        reference.step(legal)
        ended += int(dones.sum())
        shown = np.array([info["action_mask"] for info in infos])
        assert shown.dtype == np.int8
        np.testing.assert_array_equal(shown, get_action_masks(reference))
        for row in np.flatnonzero(dones):
            np.testing.assert_array_equal(env.reset_infos[row]["action_mask"], shown[row])
        kept.append((shown, [info["action_mask"] for info in infos]))
    assert ended > 5
    for copied, given in kept:
        np.testing.assert_array_equal(copied, given)


def test_a_policy_that_ignores_masks_is_told_once(opened: Any) -> None:
    class Lenient(Masked):
        def step(self, action: Any) -> Any:
            self.last = float(self.np_random.normal())
            return Sampled.step(self, action)

    env = opened(lambda: Lenient(PARTS["position"]))
    env.seed(0)
    env.reset()
    legal = np.ones(3, np.bool_)
    for _ in range(50):
        legal = env.env_method("action_masks")[1]
        if not legal.all():
            break
        env.step(np.array([int(mask.argmax()) for mask in env.env_method("action_masks")]))
    assert not legal.all()
    actions = np.array([int(mask.argmax()) for mask in env.env_method("action_masks")])
    actions[1] = int((~legal).argmax())
    with pytest.warns(UserWarning, match=r"ignores the engine's action masks: env 1 .*MaskablePPO") as told:
        env.step(actions)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(10):
            env.step(np.array([0, 1, 2]))


def test_without_masks_nothing_is_said_of_them(opened: Any) -> None:
    env = opened("CartPole-v1")
    assert not is_masking_supported(env)
    env.reset()
    assert all("action_mask" not in info for info in env.step(np.zeros(N, np.int64))[3])
    with pytest.raises(AttributeError, match="inside the engine"):
        env.env_method("action_masks")


# -- hybrid actions


@pytest.mark.parametrize(
    "opened",
    [
        "shm",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("memory", "shared", "per_env", "upgraded")),
    ],
    indirect=True,
)
def test_sb3_trains_on_a_hybrid_action(opened: Any) -> None:
    space = spaces.Dict(
        {
            "aim": spaces.Box(-2, 2, (2,), np.float32),
            "fire": spaces.MultiBinary(1),
            "weapon": spaces.Discrete(3, start=1),
        }
    )

    class Shooter(gym.Env[Any, Any]):
        observation_space, action_space = spaces.Box(-1, 1, (2,), np.float32), space

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            self.steps = 0
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            assert self.action_space.contains(action)
            self.steps += 1
            reward = float(action["weapon"] == 2) + float(action["fire"][0])
            return np.zeros(2, np.float32), reward, False, self.steps >= 10, {}

    env = opened(Shooter)
    assert isinstance(env.action_space, HybridBox)
    assert env.action_space.shape == (2 + 1 + 3,)
    wanted = {"aim": np.zeros(2, np.float32), "fire": np.ones(1, np.int8), "weapon": 2}
    env.reset()
    rewards = env.step(np.array([env.action_space.encode(wanted)] * N))[1]
    assert rewards.tolist() == [2] * N
    small: Any = {"n_steps": 64, "batch_size": 96, "policy_kwargs": {"net_arch": [16]}}
    model = PPO("MlpPolicy", env, seed=0, device="cpu", learning_rate=1e-2, **small)
    model.learn(64 * N * 4)
    env.reset()
    action, _ = model.predict(np.zeros((N, 2), np.float32), deterministic=True)
    assert env.step(action)[1].tolist() == [2] * N
