"""The learner in NumPy against torch's and others: whole trainings by PPO; prints markdown tables.

    OMP_NUM_THREADS=1 python benchmarks/bench_learner.py [--rounds 9] [--only cartpole,wide,border] [--json FILE]

"cartpole": 16 envs of CartPole-v1, 128 steps a rollout, minibatches of 256, 4 epochs. "wide": 64 envs with 64 numbers
and 8 choices, networks of 256-256. Contenders take turns, the order reversed from round to round; a ratio is the median
of the rounds' ratios to Stable-Baselines3 in DummyVecEnv, with the number of torch's threads that serves it best.
"plain torch" is a loop in one file (plain_ppo.py), "SBX" is Stable-Baselines3's API on JAX, where it is installed. The
bridge's engine is a second process. "border": torch and NumPy in one process by the width of two hidden layers.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
import torch
from bench_tcp import table
from plain_ppo import PlainPpo, vector_env
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv
from tables import measured_here

import ue_rl
from ue_rl.bridges import GymnasiumBridge, run_in_process, run_shm_in_process

STEPS, ROLLOUTS = 128, 4
BATCH, EPOCHS = 256, 4
WIDTHS = (32, 64, 128, 256, 512)
BASE = "Stable-Baselines3"
Run = Callable[[], float]  # one training; frames per second


class Wide(gym.Env[Any, Any]):
    """Sees 64 numbers that do not change, and costs nothing."""

    observation_space = gym.spaces.Box(-1, 1, (64,), np.float32)
    action_space = gym.spaces.Discrete(8)

    def __init__(self) -> None:
        self._seen = np.random.default_rng(0).uniform(-1, 1, 64).astype(np.float32)
        self._left = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """An episode of 200 steps."""
        self._left = 200
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Earns the choice."""
        self._left -= 1
        return self._seen, float(action), self._left == 0, False, {}


def cartpole() -> Any:
    """CartPole-v1."""
    return gym.make("CartPole-v1")


class Task(NamedTuple):
    """What is learnt: `envs` envs of `make`, with two hidden layers of `width`."""

    make: Callable[[], Any]
    envs: int
    width: int


TASKS = {"cartpole": Task(cartpole, 16, 64), "wide": Task(Wide, 64, 256)}


def frames(task: Task) -> int:
    """Of one training."""
    return STEPS * ROLLOUTS * task.envs


def trained(kind: Any, make_env: Callable[[], Any], task: Task, threads: int = 1, **more: Any) -> float:
    """By an algorithm with Stable-Baselines3's API."""
    torch.set_num_threads(threads)
    with contextlib.closing(make_env()) as env:
        given = {"n_steps": STEPS, "batch_size": BATCH, "n_epochs": EPOCHS, "seed": 0, **more}
        model = kind("MlpPolicy", env, policy_kwargs={"net_arch": [task.width] * 2}, **given)
        model.learn(STEPS * task.envs)  # JAX compiles in the first rollout and update of each model
        begun = time.perf_counter()
        model.learn(frames(task))
        return frames(task) / (time.perf_counter() - begun)


def plainly_trained(task: Task) -> float:
    """By the loop of plain_ppo.py."""
    torch.set_num_threads(1)
    with contextlib.closing(vector_env(task.make, task.envs)) as env:
        agent = PlainPpo(env, STEPS, BATCH, EPOCHS, task.width)
        begun = time.perf_counter()
        agent.learn(ROLLOUTS)
        return frames(task) / (time.perf_counter() - begun)


def best_threads(task: Task) -> int:
    """The number of torch's threads with which Stable-Baselines3 is fastest: the best of two trainings each."""
    cores = os.cpu_count() or 1
    tried = sorted({1, min(2, cores), min(4, cores), cores})
    speeds = {threads: max(trained(PPO, dummy(task), task, threads, device="cpu") for _ in (0, 1)) for threads in tried}
    return max(speeds, key=lambda threads: speeds[threads])


def dummy(task: Task) -> Callable[[], Any]:
    """Opens the task's envs in this process."""
    return lambda: DummyVecEnv([task.make] * task.envs)


def contenders(task: Task, threads: int, enter: Callable[[Any], Any]) -> dict[str, Run]:
    """All of them; `enter` keeps the engines until the end."""
    numpys = ue_rl.numpy_learner(PPO)
    factory = functools.partial(GymnasiumBridge, task.make, task.envs)
    text = enter(run_in_process(factory)).url
    memory = enter(run_shm_in_process(factory)).url

    def over(url: str, kind: Any, **options: Any) -> Run:
        return lambda: trained(kind, lambda: ue_rl.connect(url, **options), task, device="cpu")

    runs: dict[str, Run] = {
        BASE: lambda: trained(PPO, dummy(task), task, threads, device="cpu"),
        "plain torch": lambda: plainly_trained(task),
    }
    if importlib.util.find_spec("sbx") is not None:
        import sbx

        runs["SBX"] = lambda: trained(sbx.PPO, dummy(task), task)
    return runs | {
        "torch, text": over(text, PPO, channel="shared"),
        "torch, shared memory": over(memory, PPO),
        "NumPy": lambda: trained(numpys, dummy(task), task, device="cpu"),
        "NumPy, text": over(text, numpys, channel="shared"),
        "NumPy, shared memory": over(memory, numpys),
    }


def alternated(runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Frames per second of each round, after one that warms up."""
    for run in runs.values():
        run()
    seen: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[:: 1 if number % 2 else -1]:
            seen[name].append(runs[name]())
    return seen


def ratios(seen: dict[str, list[float]], base: str) -> dict[str, float]:
    """The medians of the rounds' ratios."""
    return {
        name: statistics.median(one / other for one, other in zip(speeds, seen[base], strict=True))
        for name, speeds in seen.items()
    }


def bench_task(name: str, rounds: int) -> dict[str, Any]:
    """All contenders at one task."""
    task = TASKS[name]
    threads = best_threads(task)
    with contextlib.ExitStack() as stack:
        seen = alternated(contenders(task, threads, stack.enter_context), rounds)
    found = ratios(seen, BASE)
    rows = [(who, f"{statistics.median(speeds):,.0f}", f"{found[who]:.2f}") for who, speeds in seen.items()]
    sizes = f"{task.envs} envs, networks of {task.width}-{task.width}"
    title = f"{name}: {sizes}, {rounds} rounds, {threads} threads of {BASE}'s torch"
    table(title, f"who|frames per second|of {BASE}'s", rows)
    return {"threads": threads, "frames_per_second": seen, "ratios": found}


def bench_border(rounds: int) -> dict[str, Any]:
    """Up to which width NumPy is the faster one."""
    found: dict[str, Any] = {}
    rows = []
    for name, given in TASKS.items():
        for width in WIDTHS:
            task = given._replace(width=width)
            runs: dict[str, Run] = {
                "torch": functools.partial(trained, PPO, dummy(task), task, device="cpu"),
                "NumPy": functools.partial(trained, ue_rl.numpy_learner(PPO), dummy(task), task, device="cpu"),
            }
            seen = alternated(runs, rounds)
            found[f"{name} {width}"] = seen
            speeds = (f"{statistics.median(seen[who]):,.0f}" for who in runs)
            rows.append((name, width, *speeds, f"{ratios(seen, 'torch')['NumPy']:.2f}"))
    header = "task|width|torch, frames per second|NumPy|NumPy / torch"
    table(f"By the width of the layers, {rounds} rounds", header, rows)
    return found


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="cartpole,wide,border", help="which tables")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    asked = arguments.only.split(",")
    found: dict[str, Any] = {"rounds": arguments.rounds, **measured_here("numpy", "torch", "stable-baselines3")}
    for name in TASKS:
        if name in asked:
            found[name] = bench_task(name, arguments.rounds)
    if "border" in asked:
        found["border"] = bench_border(arguments.rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
