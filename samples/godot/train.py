"""Starts the game headless (godot3-server) and trains PPO on its physics until it balances the pole.

python samples/godot/train.py                     about 10 seconds; prints the mean return before and after
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

import ue_rl


def main() -> None:
    """Trains, evaluates, saves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--godot", default="godot3-server", help="the engine's command")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--timesteps", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="godot_cart_pole.zip")
    args = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]  # free a moment ago
    project = Path(__file__).resolve().parent
    command = [args.godot, "--path", str(project), "--fixed-fps", "60", f"--port={port}", f"--envs={args.envs}"]
    game = subprocess.Popen(command)
    try:
        env = ue_rl.connect(f"tcp://127.0.0.1:{port}", wait=10)
        rollout = {"n_steps": 128, "batch_size": 128, "n_epochs": 8}
        rest = {"learning_rate": lambda left: 3e-3 * left, "policy_kwargs": {"log_std_init": -0.5}}
        model = PPO("MlpPolicy", env, seed=args.seed, device="cpu", **rollout, **rest)
        print(f"untrained: {evaluate_policy(model, env, n_eval_episodes=16)[0]:.1f} steps upright, of 500")
        env.seed(args.seed)
        model.learn(args.timesteps)
        env.seed(args.seed + 1000)
        print(f"trained:   {evaluate_policy(model, env, n_eval_episodes=16)[0]:.1f} steps upright, of 500")
        model.save(args.out)
        print(f"saved {args.out}")
        env.close()
    finally:
        game.kill()
        game.wait()


if __name__ == "__main__":
    main()
