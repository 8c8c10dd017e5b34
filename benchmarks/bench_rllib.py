"""UnrealEnvRunner against RLlib's own env runner over the same engine; prints markdown tables. Needs Ray.

    python benchmarks/bench_rllib.py [--envs 1 8 32 128] [--seconds 1.5] [--rounds 7] [--engine cartpole|free]

Sampling only, one env runner in this process, PPO's default module (256-256). All contenders of a size are made first
and then take turns; figures are env-steps a second, the median and the best of the rounds. The engine is Gymnasium's
CartPole in a process of its own ("cartpole"), or one whose steps cost nothing ("free"), so that what is left is the
runner and the carrier.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import time
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from bench_tcp import table
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from rllib_engines import importable

import ue_rl.plugins.rllib
from ue_rl.plugins.rllib import UnrealEnvRunner

STOCK, OURS = "RLlib's runner", "UnrealEnvRunner"


def runner_of(kind: type[Any], num_envs: int, env: str, env_config: dict[str, Any]) -> Any:
    """One env runner, as RLlib makes its local one."""
    mode = "vector_entry_point" if env == "ue_rl" else "sync"
    config: Any = PPOConfig().environment(env, env_config=env_config)
    config.env_runners(
        num_env_runners=0, num_envs_per_env_runner=num_envs, env_runner_cls=kind, gym_env_vectorize_mode=mode
    )
    return kind(config=config, worker_index=0)


def contenders(num_envs: int, engine: str) -> dict[str, Any]:
    """Name -> runner."""
    given = {"env": "CartPole-v1"} if engine == "cartpole" else {"bridge": "rllib_engines:Free"}
    made: dict[str, Any] = {}
    if engine == "cartpole":
        made["RLlib's runner, SyncVectorEnv in process"] = runner_of(SingleAgentEnvRunner, num_envs, "CartPole-v1", {})
    for kind, name in ((SingleAgentEnvRunner, STOCK), (UnrealEnvRunner, OURS)):
        for transport, carrier in (("tcp", "text"), ("shm", "shared memory")):
            made[f"{name}, {carrier}"] = runner_of(kind, num_envs, "ue_rl", {**given, "transport": transport})
    return made


def measure(num_envs: int, engine: str, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Name -> env-steps a second of each round."""
    runners = contenders(num_envs, engine)
    try:
        sizes, speeds = {}, {name: list[float]() for name in runners}
        for name, runner in runners.items():
            runner.sample(num_timesteps=10 * num_envs)
            began = time.perf_counter()
            steps = sum(map(len, runner.sample(num_timesteps=40 * num_envs)))
            sizes[name] = max(40 * num_envs, int(steps / (time.perf_counter() - began) * seconds))
        for _ in range(rounds):
            for name, runner in runners.items():
                began = time.perf_counter()
                steps = sum(map(len, runner.sample(num_timesteps=sizes[name])))
                speeds[name].append(steps / (time.perf_counter() - began))
                runner.get_metrics()
        return speeds
    finally:
        for runner in runners.values():
            runner.stop()


def main() -> None:
    """See the module's docstring."""
    warnings.simplefilter("ignore")  # Gymnasium's and RLlib's, of what is old in them
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round of each contender, about")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--engine", choices=["cartpole", "free"], nargs="+", default=["cartpole", "free"])
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    ue_rl.plugins.rllib.register()
    importable()
    for engine in options.engine:
        by_size = {n: measure(n, engine, options.rounds, options.seconds) for n in options.envs}
        names = list(next(iter(by_size.values())))
        rows: list[tuple[object, ...]] = []
        for name in names:
            speeds = [by_size[n][name] for n in options.envs]
            rows.append((name, *(f"{statistics.median(s):,.0f} ({max(s):,.0f})" for s in speeds)))
        for carrier in ("text", "shared memory"):
            ratios = []
            for n in options.envs:  # of neighbours in time
                pairs = zip(by_size[n][f"{OURS}, {carrier}"], by_size[n][f"{STOCK}, {carrier}"], strict=True)
                ratios.append(statistics.median(ours / stock for ours, stock in pairs))
            rows.append((f"**{OURS} / {STOCK}, {carrier}**", *(f"**{ratio:.1f}x**" for ratio in ratios)))
        header = "|".join(["env-steps/s: median (best)", *(f"{n} envs" for n in options.envs)])
        table(f"one env runner, sampling only, engine: {engine}", header, rows)


if __name__ == "__main__":
    main()
