"""MujocoBridge's stepping against Gymnasium's AsyncVectorEnv on the same model; prints a markdown table.

    python benchmarks/bench_mujoco.py [--quick] [--tasks HalfCheetah,InvertedPendulum] [--carriers]

In every round each contender takes the same number of steps, one after the other, the order reversed from round to
round; a figure is the median of the rounds, and a ratio the median of the rounds' ratios, which is what to quote. The
first three are the physics with observations and rewards: the bridge in the process of its user, with as many threads
as it chooses; one env process each; and Gymnasium's envs one after the other. `--carriers` adds the bridge as a trainer
sees it, in a process of its own, through UnrealVecEnv. Episodes are long, so that nobody resets.
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
import numpy as np
from bench_tcp import table

import ue_rl
from ue_rl.bridges import run_in_process, run_shm_in_process
from ue_rl.plugins.mujoco import MujocoBridge
from ue_rl.plugins.mujoco.tasks import TASKS

NEVER = 10**9
# Equal work: Ant-v5 without what MujocoBridge's Ant leaves out.
OPTIONS: dict[str, dict[str, Any]] = {"Ant": {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0}}
Step = Callable[[], object]


def endless(name: str, num_envs: int) -> MujocoBridge:
    """A bridge whose episodes are not truncated."""
    task = TASKS[name]()
    task.max_episode_steps = NEVER
    return MujocoBridge(name, task, num_envs)


def contenders(name: str, num_envs: int, carriers: bool, stack: contextlib.ExitStack) -> dict[str, Step]:
    """Name -> one step of all envs; actions are 0, with which all of them stay up for long."""
    found: dict[str, Step] = {}
    bridge = endless(name, num_envs)
    actions, every = np.zeros((num_envs, bridge.spec.act_size), np.float32), np.arange(num_envs)
    bridge.reset_envs(every, list(range(num_envs)), [None] * num_envs)
    found["MujocoBridge"] = lambda: bridge.step_envs(actions, every)
    make = functools.partial(gym.make, f"{name}-v5", max_episode_steps=NEVER, **OPTIONS.get(name, {}))
    for label, kind in (("AsyncVectorEnv", gym.vector.AsyncVectorEnv), ("SyncVectorEnv", gym.vector.SyncVectorEnv)):
        envs: Any = kind([make] * num_envs)
        stack.callback(envs.close)
        envs.reset(seed=0)
        found[label] = functools.partial(envs.step, actions)
    if carriers:
        for label, run in (("over shared memory", run_shm_in_process), ("over text", run_in_process)):
            handle = stack.enter_context(run(functools.partial(endless, name, num_envs)))
            env = stack.enter_context(contextlib.closing(ue_rl.connect(handle.url, transport="auto")))
            env.reset()
            found[label] = functools.partial(env.step, actions)
    return found


def seconds(step: Step, steps: int) -> float:
    """For one step."""
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - start) / steps


def rounds(found: dict[str, Step], count: int, length: float) -> dict[str, list[float]]:
    """Name -> seconds for a step, in each round; a round lasts about `length` seconds for the slowest."""
    steps = max(3, int(length / max(seconds(step, 3) for step in found.values())))
    taken: dict[str, list[float]] = {name: [] for name in found}
    for k in range(count):
        for name in list(found)[:: -1 if k % 2 else 1]:
            taken[name].append(seconds(found[name], steps))
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds, for a look")
    parser.add_argument("--tasks", default="HalfCheetah,InvertedPendulum")
    parser.add_argument("--carriers", action="store_true", help="also through a trainer's VecEnv")
    arguments = parser.parse_args()
    rows: list[tuple[object, ...]] = []
    names: list[str] = []
    for name in arguments.tasks.split(","):
        for num_envs in (1, 16, 64):
            with contextlib.ExitStack() as stack:
                found = contenders(name, num_envs, arguments.carriers, stack)
                taken = rounds(found, 5 if arguments.quick else 9, 0.1 if arguments.quick else 0.5)
            ours, names = taken["MujocoBridge"], list(found)
            ratio = {
                other: statistics.median(b / a for a, b in zip(ours, taken[other], strict=True)) for other in names[1:]
            }
            cells = [f"{num_envs / statistics.median(ours):,.0f}"]
            cells += [f"{num_envs / statistics.median(taken[n]):,.0f} ({ratio[n]:.1f} x)" for n in names[1:]]
            rows.append((f"{name}, {num_envs}", *cells))
    table("env-steps per second (how much faster MujocoBridge is)", " | ".join(("task, envs", *names)), rows)


if __name__ == "__main__":
    main()
