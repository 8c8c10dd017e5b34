"""CartPole, hosted as an engine in a second process, learnt over TCP with PPO, shipped as ONNX.

python samples/train_cartpole.py [--timesteps 100000] [--output cartpole]
"""

from __future__ import annotations

import argparse
import functools

from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

import ue_rl
from ue_rl.bridges import GymnasiumBridge, run_in_process
from ue_rl.inference import export_onnx


def main() -> None:
    """Trains, evaluates, exports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=100_000)
    parser.add_argument("--output", default="cartpole", help="writes OUTPUT.zip and OUTPUT.onnx")
    arguments = parser.parse_args()
    with run_in_process(functools.partial(GymnasiumBridge, "CartPole-v1", 8)) as engine:
        env = ue_rl.connect(engine.url)
        model = PPO(
            "MlpPolicy",
            env,
            n_steps=32,
            batch_size=256,
            n_epochs=20,
            gae_lambda=0.8,
            gamma=0.98,
            learning_rate=lambda left: left * 1e-3,
            clip_range=lambda left: left * 0.2,
            device="cpu",
            seed=0,
        )
        model.learn(arguments.timesteps, progress_bar=True)
        mean, deviation = evaluate_policy(model, env, n_eval_episodes=10, warn=False)
        env.close()
    print(f"mean return {mean:.1f} +/- {deviation:.1f}")
    model.save(f"{arguments.output}.zip")
    print(export_onnx(model, f"{arguments.output}.onnx"))


if __name__ == "__main__":
    main()
