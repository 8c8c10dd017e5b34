"""The vectorised reach task of samples/reach.py, learnt over TCP with PPO.

python samples/train_reach.py [--timesteps 60000] [--channel shared|per_env]
"""

from __future__ import annotations

import argparse
import functools

from reach import ReachBridge
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

import ue_rl
from ue_rl.bridges import run_in_process


def main() -> None:
    """Trains and evaluates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=60_000)
    parser.add_argument("--channel", default="auto", choices=["auto", "shared", "per_env"])
    arguments = parser.parse_args()
    with run_in_process(functools.partial(ReachBridge, 16)) as engine:
        env = ue_rl.connect(engine.url, channel=arguments.channel)
        model = PPO(
            "MlpPolicy",
            env,
            n_steps=64,
            batch_size=256,
            n_epochs=6,
            gamma=0.98,
            learning_rate=2e-3,
            device="cpu",
            seed=0,
        )
        model.learn(arguments.timesteps, progress_bar=True)
        mean, deviation = evaluate_policy(model, env, n_eval_episodes=50, warn=False)
        env.close()
    print(f"mean return {mean:.2f} +/- {deviation:.2f} (arriving is worth 5)")


if __name__ == "__main__":
    main()
