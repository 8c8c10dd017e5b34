"""Behaviour cloning takes minutes on many demonstrations: what it says meanwhile."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO

from ue_rl.training.demonstrations.cloning import clone
from ue_rl.training.demonstrations.dataset import DemoEpisode, Demonstrations


def test_it_says_how_far_it_is() -> None:
    said: list[str] = []
    env = gym.make("CartPole-v1")
    random = np.random.default_rng(0)
    episodes = [
        DemoEpisode(random.normal(size=(9, 4)).astype(np.float32), random.integers(2, size=8), np.ones(8), True)
        for _ in range(3)
    ]
    demonstrations = Demonstrations(Path("demos"), env.observation_space, env.action_space, episodes)
    model = PPO("MlpPolicy", env, device="cpu", seed=0)
    clone(model, demonstrations, epochs=2, seed=0, tell=said.append, told_every=0.0)
    assert said[0] == "cloning 16 steps of 2 episodes, until it gets no better on 1 more"
    assert [text.partition(": loss")[0] for text in said[1:]] == ["cloning, epoch 1", "cloning, epoch 2"]
