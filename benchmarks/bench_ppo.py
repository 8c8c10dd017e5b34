"""PPO through the bridge against DummyVecEnv: a step of the rollout, and frames per second; prints a markdown table.

    python benchmarks/bench_ppo.py [--rounds 9]

CartPole-v1, 16 envs; the bridge's engine is a second process. 128 steps a rollout, batches of 256, 4 epochs, one torch
thread. Contenders take turns, the order reversed from round to round; ratios are medians of the rounds' ratios. Between
two steps a policy acts, so that the bridge's code meets caches that are cold, which loops of steps alone hide.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import torch
from bench_tcp import table
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

import ue_rl
from ue_rl.bridges import GymnasiumBridge, run_in_process, run_shm_in_process

ENVS, STEPS, ROLLOUTS = 16, 128, 4
Measured = tuple[float, float]  # microseconds of a rollout's step, frames per second


class Timed(PPO):
    """Notes how long its rollouts take."""

    rollouts = 0.0

    def collect_rollouts(self, *args: Any, **kwargs: Any) -> bool:
        """As PPO's."""
        begun = time.perf_counter()
        try:
            return super().collect_rollouts(*args, **kwargs)
        finally:
            self.rollouts += time.perf_counter() - begun


def measured(make: Callable[[], Any]) -> Measured:
    """Of one training."""
    torch.set_num_threads(1)
    with contextlib.closing(make()) as env:
        model = Timed("MlpPolicy", env, n_steps=STEPS, batch_size=256, n_epochs=4, device="cpu", seed=0)
        begun, steps = time.perf_counter(), STEPS * ROLLOUTS
        model.learn(steps * ENVS)
        return model.rollouts / steps * 1e6, steps * ENVS / (time.perf_counter() - begun)


def contenders(enter: Callable[[Any], Any]) -> dict[str, Callable[[], Measured]]:
    """In process, over text, over shared memory; `enter` keeps the engines until the end."""
    factory = functools.partial(GymnasiumBridge, "CartPole-v1", ENVS)
    text, memory = enter(run_in_process(factory)), enter(run_shm_in_process(factory))
    return {
        "DummyVecEnv": lambda: measured(lambda: DummyVecEnv([lambda: gym.make("CartPole-v1")] * ENVS)),
        "text": lambda: measured(lambda: ue_rl.connect(text.url, channel="shared")),
        "shared memory": lambda: measured(lambda: ue_rl.connect(memory.url)),
    }


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with contextlib.ExitStack() as stack:
        runs = contenders(stack.enter_context)
        seen: dict[str, list[Measured]] = {name: [] for name in runs}
        for run in runs.values():
            run()  # warms up
        for n in range(rounds):
            for name in list(runs)[:: 1 if n % 2 else -1]:
                seen[name].append(runs[name]())
    base, rows = seen["DummyVecEnv"], []
    for name, figures in seen.items():
        (us, fps), ratios = map(statistics.median, zip(*figures, strict=True)), list(zip(figures, base, strict=True))
        steps, rates = (statistics.median(one[n] / other[n] for one, other in ratios) for n in (0, 1))
        rows.append((name, f"{us:.0f}", f"{steps:.2f}", f"{fps:,.0f}", f"{rates:.2f}"))
    header = "env|us a step of the rollout|of DummyVecEnv's|fps|of DummyVecEnv's"
    table(f"PPO on CartPole-v1, {ENVS} envs, medians of {rounds} rounds", header, rows)


if __name__ == "__main__":
    main()
