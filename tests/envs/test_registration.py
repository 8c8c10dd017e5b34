"""ue_rl/Engine-v0: whatever is imported first, and what gym.make and gym.make_vec give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import ue_rl
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.system import errors

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "imports",
    [
        "import ue_rl.envs, gymnasium",
        "import gymnasium, ue_rl",
        "import gymnasium, importlib, ue_rl.envs; importlib.reload(ue_rl.envs)",  # without a warning
    ],
)
def test_it_is_registered_whatever_comes_first(imports: str) -> None:
    code = f"{imports}; print('ue_rl/Engine-v0' in gymnasium.registry)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "True"
    assert not out.stderr


def test_gymnasium_imports_it_where_the_id_says_so(url: str) -> None:
    code = (
        f"import gymnasium; print(gymnasium.make_vec('ue_rl.envs:ue_rl/Engine-v0', num_envs=2, url={url!r}).num_envs)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "2"


@pytest.fixture
def url() -> Any:
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        yield engine.url


def test_make_vec_gives_a_vector_env(url: str) -> None:
    envs = gym.make_vec("ue_rl/Engine-v0", num_envs=2, url=url)
    assert isinstance(envs.unwrapped, ue_rl.UnrealVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.spec is not None
    assert envs.reset(seed=1)[0].shape == (2, 4)
    envs.close()
    envs = gym.make_vec("ue_rl/Engine-v0", num_envs=2, url=url, autoreset_mode=AutoresetMode.SAME_STEP)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs.close()


def test_the_number_of_envs_is_the_engines(url: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"another number of envs.*expected 2; got 5.*num_envs=2"):
        gym.make_vec("ue_rl/Engine-v0", num_envs=5, url=url)
    with pytest.raises(errors.ConfigurationError, match="is one env"):
        gym.make("ue_rl/Engine-v0", url=url)


@pytest.mark.filterwarnings("error")
def test_make_gives_an_env_that_the_checker_says_nothing_about() -> None:
    with run_in_thread(GymnasiumBridge("CartPole-v1", 1)) as engine:
        env = gym.make("ue_rl/Engine-v0", url=engine.url, max_episode_steps=5)
        assert isinstance(env.unwrapped, ue_rl.UnrealEnv)
        env.reset(seed=1)
        for step in range(5):
            obs, _, _, truncated, _ = env.step(np.int64(0))
            assert env.observation_space.contains(obs)
            assert truncated == (step == 4)
        env.close()
        with pytest.raises(errors.UnsupportedByEngine, match=r"sends no pictures.*RENDER"):
            gym.make("ue_rl/Engine-v0", url=engine.url, render_mode="rgb_array")
