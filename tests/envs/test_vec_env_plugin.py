"""UnrealVecEnv over the deployed plugin's dialect: the same rollouts as SB3's DummyVecEnv, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

import ue_rl
from tests.envs.conftest import trained
from tests.support.same import assert_same
from ue_rl.devtools.testing import ObsFormat, PluginStandIn, make_tiny_env


def roll(env: VecEnv, steps: int = 60) -> list[Any]:
    """Everything a VecEnv gives out over a number of steps with fixed actions."""
    rng = np.random.default_rng(3)
    seen: list[Any] = [env.reset()]
    for _ in range(steps):
        actions = rng.uniform(-1, 1, (env.num_envs, *env.action_space.shape)).astype(np.float32)
        obs, rewards, dones, infos = env.step(actions)
        seen += [obs, rewards, dones]
        for done, info in zip(dones, infos, strict=True):
            seen.append(info["terminal_observation"] if done else None)
            seen.append(info.get("TimeLimit.truncated", False))
    return seen


@pytest.mark.parametrize("obs_format", list(ObsFormat), ids=lambda f: f.name.lower())
def test_rollouts_equal_dummy_vec_env_in_every_spelling(obs_format: ObsFormat) -> None:
    decimals = 6 if obs_format.name == "SIX_DECIMALS" else 2
    reference = roll(DummyVecEnv([make_tiny_env(i, decimals=decimals) for i in range(3)]))
    with PluginStandIn(num_envs=3, obs_format=obs_format, decimals=decimals) as game:
        env = ue_rl.connect(game.url, timeout=20)
        assert env.transport.describe()["wiring"] == "3 env sockets"
        assert_same(roll(env), reference)
        env.close()


@pytest.mark.parametrize("env_type", ["SINGLE", "RLBASE"])
def test_single_and_rlbase(env_type: str) -> None:
    # RLBASE computes a state before the first reset, which the task counts as nothing.
    reference = roll(DummyVecEnv([make_tiny_env(0)]))
    with PluginStandIn(env_type=env_type) as game:
        env = ue_rl.connect(game.url, timeout=20)
        assert_same(roll(env), reference)
        env.close()


def test_actions_of_different_length_and_a_real_tick() -> None:
    reference = roll(DummyVecEnv([make_tiny_env(i) for i in range(3)]), steps=10)
    with PluginStandIn(num_envs=3, action_ticks=[1, 3, 2], tick_rate=600, accept_interval=0.01) as game:
        env = ue_rl.connect(game.url, timeout=20)
        assert_same(roll(env, steps=10), reference)
        env.close()


def test_ppo_learns_the_same_weights_as_in_process() -> None:
    options = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "seed": 1}
    reference = trained(PPO, "MlpPolicy", DummyVecEnv([make_tiny_env(i) for i in range(4)]), 256, **options)
    with PluginStandIn(num_envs=4) as game:
        env = ue_rl.connect(game.url, timeout=20)
        with pytest.warns(UserWarning, match="takes no seeds"):
            over_the_wire = trained(PPO, "MlpPolicy", env, 256, **options)
        env.close()
    assert_same(over_the_wire, reference)


def test_seeds_and_options_that_the_plugin_does_not_take_are_said_once() -> None:
    with PluginStandIn(num_envs=2) as game:
        env = ue_rl.connect(game.url, timeout=20)
        env.seed(1)
        env.set_options({"level": 2})
        with pytest.warns(UserWarning, match="the engine takes no") as caught:
            env.reset()
            env.seed(1)
            env.reset()
        assert len(caught) == 2
        env.close()
        assert not any("SEED" in line or "OPTIONS" in line for _, _, line in game.lines)
