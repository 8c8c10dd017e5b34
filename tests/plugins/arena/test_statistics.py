"""A trained policy that needs its statistics plays no scene without."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3", reason="the extra train is not installed: a trainer plays here")

from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.support.models import RandomEnv, vector
from ue_rl.plugins.arena import PolicyBehavior
from ue_rl.plugins.arena.config import behaviors_of, scene_of
from ue_rl.system.errors import ModelLoadError


def test_an_arena_has_the_flag_vecnormalize(tmp_path: Path) -> None:
    scene = scene_of({"scene": "foraging"})
    size = len(scene.obs_names)
    env = VecNormalize(DummyVecEnv([lambda: RandomEnv(vector(size), spaces.Discrete(3))]))
    PPO("MlpPolicy", env, n_steps=8, batch_size=8, device="cpu").learn(8).save(tmp_path / "mind.zip")
    name = str(tmp_path / "mind.zip")
    with pytest.raises(ModelLoadError, match="statistics of VecNormalize are missing"):
        behaviors_of({"behavior": name}, scene)
    for behavior in behaviors_of({"behavior": name, "vecnormalize": "none"}, scene).values():
        assert isinstance(behavior, PolicyBehavior)
    env.save(str(tmp_path / "mind_vecnormalize.pkl"))
    assert behaviors_of({"behavior": name}, scene)
