"""Runs that are stopped and go on, compared with runs that were never stopped: small games, many algorithms.

Needs sb3-contrib beside Stable-Baselines3.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecMonitor, VecNormalize

from ue_rl.bridges import GymnasiumBridge
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.system.errors import UeRlError
from ue_rl.training.numpy_learner.learner import numpy_learner
from ue_rl.training.overlap import overlap
from ue_rl.training.saving.autosave import AutoSave

N = 3
TOTAL = 144  # env-steps: three rollouts of PPO
TINY = {"policy_kwargs": {"net_arch": [8]}, "seed": 3, "device": "cpu"}


class Drift(gym.Env[Any, Any]):
    """A point drifts by chance, and episodes are of many lengths.

    Args:
        kind: "box", "discrete", "masked" (only what is legal is), "dict", "goals" or "pictures".
    """

    def __init__(self, kind: str = "box") -> None:
        self.kind = kind
        self.pull = 1.0  # a parameter of the game
        choices = kind in ("discrete", "masked")
        self.action_space = spaces.Discrete(3) if choices else spaces.Box(-1, 1, (2,), np.float32)
        part = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        if kind == "dict":
            self.observation_space = spaces.Dict({"place": part, "time": part})
        elif kind == "pictures":
            self.observation_space = spaces.Dict({"place": part, "seen": spaces.Box(0, 255, (4, 4, 1), np.uint8)})
        elif kind == "goals":
            self.observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), part))
        if kind == "masked":
            self.action_masks = lambda: self.legal

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        return {"pull": (self.pull, 0.0, 2.0)}

    def set_parameter(self, name: str, value: float) -> None:
        self.pull = value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = float(self.np_random.normal()) + (options or {}).get("start", 0)
        self.steps, self.most = 0, int(self.np_random.integers(5, 30))
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.kind != "masked" or self.legal[int(action)]
        self.steps += 1
        self.x += self.pull * float(np.sum(action)) / 5 + float(self.np_random.normal()) / 10
        over = abs(self.x) > 3
        return self._look(), -abs(self.x), over, self.steps >= self.most, {"is_success": over}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.abs(np.asarray(achieved) - np.asarray(desired)).sum(axis=-1)

    def _look(self) -> Any:
        self.legal = np.array([self.x > 0, True, self.steps % 2])
        x, time = np.array([self.x], np.float32), np.array([self.steps / 10], np.float32)
        if self.kind == "dict":
            return {"place": x, "time": time}
        if self.kind == "pictures":
            return {"place": x, "seen": np.full((4, 4, 1), self.steps, np.uint8)}
        if self.kind == "goals":
            return {"observation": time, "achieved_goal": x, "desired_goal": x * 0 + 1}
        return np.concatenate([x, time, x * time])


class Liar(Drift):
    """Takes a seed and does not use it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Its first seed is always the same."""
        return super().reset(seed=None if hasattr(self, "x") else 7, options=options)


def bridge(kind: str = "box", game: Callable[[str], gym.Env[Any, Any]] = Drift, num_envs: int = N) -> GymnasiumBridge:
    """Several of them."""
    return GymnasiumBridge(lambda: game(kind), num_envs, send_info=True)


def _noisy(noise: type[Any]) -> Any:
    return noise(np.zeros(2), 0.3 * np.ones(2))


# Small, since a test learns several times. Two minibatches, and a buffer that is full before TOTAL: both must go on.
ON: dict[str, Any] = {"n_steps": 16, "batch_size": 24, "n_epochs": 1, **TINY}
OFF: dict[str, Any] = {"learning_starts": 24, "buffer_size": 126, "batch_size": 8, **TINY}
HER = {"n_sampled_goal": 2, "goal_selection_strategy": "future"}
# name -> algorithm, game, policy, arguments, wrapper of the env
CASES: dict[str, tuple[Any, str, str, dict[str, Any], Callable[[VecEnv], VecEnv]]] = {
    "ppo": (PPO, "box", "Mlp", ON, lambda env: env),
    "a2c": (A2C, "discrete", "Mlp", TINY, lambda env: env),
    "sac": (SAC, "box", "Mlp", OFF, lambda env: env),
    "dqn": (DQN, "discrete", "Mlp", {**OFF, "target_update_interval": 15}, lambda env: env),
    "td3_noise": (TD3, "box", "Mlp", {**OFF, "action_noise": _noisy(NormalActionNoise)}, lambda env: env),
    "ppo_normalized": (PPO, "box", "Mlp", ON, VecNormalize),
    "ppo_dict": (PPO, "dict", "MultiInput", {**ON, "learning_rate": lambda left: 0.01 * left}, VecNormalize),
    "ppo_sde": (PPO, "box", "Mlp", {**ON, "use_sde": True, "sde_sample_freq": 4}, lambda env: env),
    "ppo_stacked": (PPO, "box", "Mlp", ON, lambda env: VecMonitor(VecFrameStack(env, 3))),
    "ppo_dict_stacked": (PPO, "dict", "MultiInput", ON, lambda env: VecFrameStack(env, 2)),
    "sac_sde": (SAC, "box", "Mlp", {**OFF, "use_sde": True, "train_freq": 8}, VecNormalize),
    "sac_ou": (SAC, "box", "Mlp", {**OFF, "action_noise": _noisy(OrnsteinUhlenbeckActionNoise), "train_freq": 5,
                                   "optimize_memory_usage": True,
                                   "replay_buffer_kwargs": {"handle_timeout_termination": False}}, lambda env: env),
    "dqn_soft": (DQN, "discrete", "Mlp", {**OFF, "target_update_interval": 12, "tau": 0.3, "train_freq": 7},
                 VecNormalize),
    "her": (SAC, "goals", "MultiInput", {**OFF, "learning_starts": 60, "train_freq": 6,
                                         "replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": HER},
            VecNormalize),
    "recurrent": (RecurrentPPO, "box", "MlpLstm", {**ON, "policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 8}},
                  lambda env: env),
    "masked": (MaskablePPO, "masked", "Mlp", ON, lambda env: env),
    "ppo_overlapped": (overlap(PPO), "box", "Mlp", ON, VecNormalize),
    "recurrent_overlapped": (overlap(RecurrentPPO), "box", "MlpLstm",
                             {**ON, "policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 8}}, lambda env: env),
    "ppo_numpy": (numpy_learner(PPO), "box", "Mlp", ON, VecNormalize),
    "ppo_numpy_dict": (numpy_learner(PPO), "dict", "MultiInput", ON, lambda env: VecFrameStack(env, 2)),
    "a2c_numpy": (numpy_learner(A2C), "discrete", "Mlp", TINY, lambda env: env),
    "masked_numpy": (numpy_learner(MaskablePPO), "masked", "Mlp", ON, lambda env: env),
    "masked_overlapped": (overlap(MaskablePPO), "masked", "Mlp", ON, lambda env: env),
}  # fmt: skip


class At(BaseCallback):
    """Calls `then` as soon as so many env-steps are done."""

    def __init__(self, steps: int, then: Callable[[], object]) -> None:
        super().__init__()
        self.steps, self.then = steps, then

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.steps:
            self.steps = 1 << 60
            self.then()
        return True


class Seen(BaseCallback):
    """Notes the infos of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.infos: list[list[dict[str, Any]]] = []

    def _on_step(self) -> bool:
        self.infos.append(self.locals["infos"])
        return True


class Broken(Exception):
    """What ends a run here."""


def broken() -> None:
    raise Broken


def weights(model: BaseAlgorithm) -> dict[str, torch.Tensor]:
    """All of them, those of the optimizers too."""
    found: dict[str, torch.Tensor] = {}

    def collect(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found[name] = value.detach().clone()
        elif isinstance(value, dict):
            for key, part in value.items():
                collect(f"{name}.{key}", part)

    for name, value in model.get_parameters().items():
        collect(name, value)
    return found


def differ(one: BaseAlgorithm, other: BaseAlgorithm) -> list[str]:
    """The names of the weights that are not the same, bit by bit."""
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    return [name for name in first if not torch.equal(first[name], second[name])]


def new(name: str, env: VecEnv, **arguments: Any) -> Any:
    kind, _, policy, own, _ = CASES[name]
    return kind(f"{policy}Policy", env, **deepcopy({**own, **arguments}))


def env_of(name: str = "ppo", transport: Callable[..., Any] = MemoryTransport, **options: Any) -> UnrealVecEnv:
    """The env of a case, over memory; `options` as `bridge` has them."""
    return UnrealVecEnv(transport(bridge(CASES[name][1], **options)))


def begun(
    name: str, env: VecEnv, folder: Path, arguments: dict[str, Any] | None = None, **options: Any
) -> tuple[AutoSave, Any]:
    """An AutoSave, and the model that it resumes, or a new one with these arguments: as the script in the docs."""
    autosave = AutoSave(folder, **options)
    return autosave, autosave.resume(CASES[name][0], env) or new(name, env, **(arguments or {}))


def learn(
    name: str,
    env: UnrealVecEnv,
    folder: Path,
    total: int = TOTAL,
    callbacks: list[BaseCallback] | None = None,
    **options: Any,
) -> BaseAlgorithm:
    """One process' part of a run. What a callback raises as Broken ends it."""
    model: BaseAlgorithm
    autosave, model = begun(name, CASES[name][4](env), folder, signals=False, lock=False, **options)
    try:
        model.learn(total, callback=[autosave, *(callbacks or [])])
    except (Broken, UeRlError) as error:
        autosave.rescue(error)
        if not isinstance(error, Broken):
            raise
    return model


@functools.cache
def whole(name: str, total: int = TOTAL) -> BaseAlgorithm:
    """The model of a run that was never stopped."""
    with tempfile.TemporaryDirectory() as folder:
        return learn(name, env_of(name), Path(folder), total)
