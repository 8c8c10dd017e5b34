"""The cooperative task of samples/agents/cover.py: both agents learn one policy, with PPO.

python samples/agents/train_cover.py [--timesteps 60000] [--seed 0]
"""

from __future__ import annotations

import argparse
import functools

from cover import CoverBridge
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from ue_rl.agents import ActiveRolloutBuffer, ActiveRows, GroupVecEnv
from ue_rl.bridges import run_in_process
from ue_rl.connecting import open_transport

TARGET = 4.7  # covering both places at once is worth 5


def run(timesteps: int = 60_000, seed: int = 0) -> float:
    """Trains and evaluates; the mean return of an agent."""
    with run_in_process(functools.partial(CoverBridge, 16)) as engine:
        env = GroupVecEnv(open_transport(engine.url))
        env.seed(seed)
        model = PPO(
            "MlpPolicy", env, n_steps=64, batch_size=512, n_epochs=8, gamma=0.95, learning_rate=2e-3, seed=seed,
            device="cpu", rollout_buffer_class=ActiveRolloutBuffer,
        )  # fmt: skip
        model.learn(timesteps, callback=ActiveRows())
        env.seed(seed + 1000)
        mean, _ = evaluate_policy(model, env, n_eval_episodes=200)
        env.close()
    return float(mean)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(f"mean return {run(arguments.timesteps, arguments.seed):.2f} (covering both places is worth 5)")
