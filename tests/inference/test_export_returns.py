"""A trained policy earns the same in its env through the file as through predict()."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from sb3_contrib import RecurrentPPO
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.support.models import export_briefly
from ue_rl.inference import OnnxInference

LIMIT = 40  # steps of an episode
CASES = [  # with and without VecNormalize
    (DQN, "CartPole-v1", {"learning_starts": 100, "buffer_size": 1000}, 120, True),
    (PPO, "Pendulum-v1", {"n_steps": 64, "use_sde": True, "n_epochs": 1}, 64, False),
    (RecurrentPPO, "Pendulum-v1", {"n_steps": 64, "n_epochs": 1}, 64, True),
    *(
        pytest.param(*case, marks=pytest.mark.exhaustive)
        for case in (
            (PPO, "CartPole-v1", {"n_steps": 128, "n_epochs": 2}, 256, False),
            (SAC, "Pendulum-v1", {"learning_starts": 100, "buffer_size": 1000}, 150, True),
        )
    ),
]


@pytest.mark.parametrize(
    ("algorithm", "name", "options", "steps", "normalized"), CASES, ids=lambda c: getattr(c, "__name__", None)
)
def test_the_returns_are_equal(algorithm, name, options, steps, normalized, tmp_path):
    env = DummyVecEnv([lambda: Monitor(gym.make(name, max_episode_steps=LIMIT))])
    if normalized:
        env = VecNormalize(env)
    policy = "MlpLstmPolicy" if algorithm is RecurrentPPO else "MlpPolicy"
    net = {"net_arch": [16, 16], **({"lstm_hidden_size": 16} if algorithm is RecurrentPPO else {})}
    model = algorithm(policy, env, seed=0, device="cpu", policy_kwargs=net, **options)
    model.learn(steps)
    report = export_briefly(model, tmp_path / "policy.onnx")
    assert "recorded" in report.max_relative_difference, "compared on what the training saw as well"
    if normalized:
        env.training = env.norm_reward = False
    env.seed(7)
    want, lengths = evaluate_policy(model, env, n_eval_episodes=3, return_episode_rewards=True)

    runtime = OnnxInference(tmp_path / "policy.onnx")
    plain = gym.make(name, max_episode_steps=LIMIT)
    discrete = isinstance(plain.action_space, gym.spaces.Discrete)
    got, counted = [], []
    for episode in range(3):
        obs, _ = plain.reset(seed=7 if episode == 0 else None)
        runtime.reset()
        total, length, done = 0.0, 0, False
        while not done:
            action = runtime.run_inference(obs[None])[0]
            obs, reward, terminated, truncated, _ = plain.step(int(action[0]) if discrete else action)
            total, length, done = total + float(reward), length + 1, terminated or truncated
        got.append(total)
        counted.append(length)
    assert counted == lengths
    if discrete:
        assert got == want
    else:  # 40 chaotic steps apart, each action is within 1e-5 of the range
        np.testing.assert_allclose(got, want, rtol=2e-3)
