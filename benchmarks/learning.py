"""Does a run through the bridge really learn? The tasks, algorithms and wirings that must, each over TCP.

    python benchmarks/learning.py [NAME ...] [--seeds 0 1 2] [--overlap]

The env runs in a process of its own, the trainer connects as to a game; then the policy is evaluated without
exploration on fresh episodes. Prints a markdown table. tests/training/test_learning.py runs the quick ones.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

import ue_rl
from samples.reach import ReachBridge
from ue_rl.bridges import GymnasiumBridge, run_in_process, run_in_thread


def linear(start: float) -> Callable[[float], float]:
    """A schedule that falls to zero over the run."""
    return lambda left: left * start


@dataclass(frozen=True)
class Task:
    """One run and what it must reach."""

    bridge: Callable[[], Any]
    algorithm: Any
    timesteps: int
    target: float
    options: dict[str, Any] = field(default_factory=dict)
    normalize: bool = False
    episodes: int = 20


TASKS = {
    "cartpole-ppo": Task(
        functools.partial(GymnasiumBridge, "CartPole-v1", 8), PPO, 50_000, 475,
        dict(n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, learning_rate=linear(0.001),
             clip_range=linear(0.2)),
    ),
    "reach-ppo": Task(
        functools.partial(ReachBridge, 16), PPO, 60_000, 3.5,
        dict(n_steps=64, batch_size=256, n_epochs=6, gamma=0.98, learning_rate=0.002),
    ),
    "pendulum-sac": Task(
        functools.partial(GymnasiumBridge, "Pendulum-v1", 4), SAC, 7_000, -250,
        dict(learning_rate=1e-3, learning_starts=400, train_freq=1, gradient_steps=2,
             policy_kwargs={"net_arch": [64, 64]}),
    ),
    "cartpole-dqn": Task(
        functools.partial(GymnasiumBridge, "CartPole-v1", 4), DQN, 20_000, 400,
        dict(learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1000, gamma=0.99,
             target_update_interval=10, train_freq=32, gradient_steps=64, exploration_fraction=0.16,
             exploration_final_eps=0.04, policy_kwargs={"net_arch": [64, 64]}),
    ),
    "mujoco-ppo": Task(
        functools.partial(GymnasiumBridge, "InvertedPendulum-v5", 8), PPO, 60_000, 900,
        dict(n_steps=64, batch_size=256, gamma=0.99, n_epochs=10, learning_rate=linear(1e-3)), normalize=True,
    ),
}  # fmt: skip


class Enough(BaseCallback):
    """Stops a run once its last 20 episodes, with their exploration, earned the target."""

    def __init__(self, target: float) -> None:
        super().__init__()
        self._target = target

    def _on_step(self) -> bool:
        last = list(self.model.ep_info_buffer or ())[-20:]
        return len(last) < 20 or float(np.mean([episode["r"] for episode in last])) < self._target


def run(
    name: str, channel: str, seed: int, enough: bool = False, overlapped: bool = False, cheap: bool = False
) -> tuple[float, float]:
    """(mean return of the trained policy, seconds of training).

    Args:
        enough: not longer than it takes. cheap: NumPy learns, and the engine is a thread of this process.
    """
    torch.set_num_threads(1)
    task = TASKS[name]
    with run_in_thread(task.bridge()) if cheap else run_in_process(task.bridge) as server:
        env: Any = VecMonitor(ue_rl.connect(server.url, channel=channel))
        if task.normalize:
            env = VecNormalize(env, norm_reward=True)
        algorithm = task.algorithm
        if overlapped:
            algorithm = ue_rl.overlap(algorithm)
        elif cheap:
            algorithm = ue_rl.numpy_learner(algorithm)
        model = algorithm("MlpPolicy", env, seed=seed, device="cpu", **task.options)
        begun = time.perf_counter()
        model.learn(task.timesteps, callback=Enough(task.target) if enough else None)
        seconds = time.perf_counter() - begun
        if task.normalize:
            env.training = False
            env.norm_reward = False
        env.seed(10_000 + seed)
        mean, _ = evaluate_policy(model, env, n_eval_episodes=task.episodes, deterministic=True)
        env.close()
    return float(np.mean(mean)), seconds


def main() -> None:
    """Runs the chosen tasks on both wirings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*TASKS, []], help="default: all")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--channels", nargs="*", default=["shared", "per_env"])
    parser.add_argument("--overlap", action="store_true", help="act or learn while the engine ticks")
    arguments = parser.parse_args()
    print("| task | wiring | seed | env-steps | seconds | mean return | must reach |\n|---|---|---|---|---|---|---|")
    for name in arguments.names or TASKS:
        for channel in arguments.channels:
            for seed in arguments.seeds:
                mean, seconds = run(name, channel, seed, overlapped=arguments.overlap)
                task = TASKS[name]
                verdict = "" if mean >= task.target else " **missed**"
                print(
                    f"| {name} | {channel} | {seed} | {task.timesteps:,} | {seconds:.0f} | {mean:.1f}{verdict} "
                    f"| {task.target} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
