"""Real physics: MuJoCo's InvertedPendulum behind the bridge, with normalised observations.

pip install 'gymnasium[mujoco]' && python samples/train_mujoco.py [--timesteps 120000]
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

import ue_rl
from ue_rl.bridges import GymnasiumBridge, run_in_process
from ue_rl.inference import export_onnx


def main() -> None:
    """Trains, evaluates, exports with the normalisation inside the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=120_000)
    parser.add_argument("--output", type=Path, default=Path("inverted_pendulum.onnx"))
    arguments = parser.parse_args()
    with run_in_process(functools.partial(GymnasiumBridge, "InvertedPendulum-v5", 8)) as engine:
        env = VecNormalize(ue_rl.connect(engine.url))
        model = PPO(
            "MlpPolicy", env, n_steps=64, batch_size=256, learning_rate=lambda left: left * 1e-3, device="cpu", seed=0
        )
        model.learn(arguments.timesteps, progress_bar=True)
        env.training = env.norm_reward = False
        mean, deviation = evaluate_policy(model, env, n_eval_episodes=5, warn=False)
        report = export_onnx(model, arguments.output, env)
        env.close()
    print(f"mean return {mean:.1f} +/- {deviation:.1f} (1000 is the most)")
    print(report)


if __name__ == "__main__":
    main()
