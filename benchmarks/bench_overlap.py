"""Runs with and without overlap, behind engines that take their time; prints a markdown table.

    python benchmarks/bench_overlap.py [--quick] [--json benchmarks/overlap.json]

16 envs in a second process, whose engine sleeps for each step: so long for all envs, and a share of it for half of
them (a game whose cost is that of its envs), or as long for any number of them (one tick moves all). The policy thinks
2 ms a call beside its own work, for half of the envs as for all. PPO with 128 steps, batches of 256 and 4 epochs; SAC
with one gradient step a step. A pair takes turns, round by round; a figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from bench_tcp import table
from numpy.typing import NDArray
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.torch_layers import FlattenExtractor
from tables import measured_here

import ue_rl
from ue_rl.bridges import run_in_process, run_shm_in_process
from ue_rl.cli.do_nothing import DoNothingBridge

ENVS, STEPS = 16, 128
CARRIERS = {"text": run_in_process, "shared memory": run_shm_in_process}


class Game(DoNothingBridge):
    """Takes `seconds` for a step of all envs; `shared`: for any number of them."""

    def __init__(self, num_envs: int, seconds: float, shared: bool) -> None:
        super().__init__(num_envs)
        self.seconds, self.shared = seconds, shared

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """Sleeps."""
        if self.seconds:
            time.sleep(self.seconds if self.shared else self.seconds * len(env_ids) / self.spec.num_envs)


class Thinking(FlattenExtractor):
    """Thinks `seconds` for each action; not while it learns."""

    def __init__(self, space: Any, seconds: float) -> None:
        super().__init__(space)
        self.seconds = seconds

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Busy."""
        until = time.perf_counter() + (0.0 if torch.is_grad_enabled() else self.seconds)
        while time.perf_counter() < until:
            pass
        return super().forward(observations)


def model(kind: Any, url: str, overlapped: bool, think: float) -> Any:
    """A new one on the engine."""
    options: dict[str, Any] = {"learning_starts": ENVS, "batch_size": 256}
    if kind is PPO:
        options = {"n_steps": STEPS, "batch_size": 256, "n_epochs": 4}
    extractor = {"features_extractor_class": Thinking, "features_extractor_kwargs": {"seconds": think}}
    chosen = ue_rl.overlap(kind) if overlapped else kind
    return chosen("MlpPolicy", ue_rl.connect(url), device="cpu", seed=0, policy_kwargs=extractor, **options)


def ratio(kind: Any, carrier: str, engine: float, shared: bool, think: float, rounds: int) -> tuple[float, float]:
    """(env-steps a second without overlap, how many times as many with it)."""
    with contextlib.ExitStack() as stack:
        models = []
        for overlapped in (False, True):
            host = stack.enter_context(CARRIERS[carrier](functools.partial(Game, ENVS, engine, shared)))
            models.append(model(kind, host.url, overlapped, think))
            stack.callback(models[-1].env.close)
        steps = STEPS * ENVS
        speeds: list[tuple[float, float]] = []
        for number in range(rounds + 1):
            pair = []
            for one in models:
                begun = time.perf_counter()
                one.learn(steps, reset_num_timesteps=not number)
                pair.append(steps / (time.perf_counter() - begun))
            speeds += [(pair[0], pair[1])] if number else []  # the first one warms up
    return statistics.median(plain for plain, _ in speeds), statistics.median(b / a for a, b in speeds)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three rounds of each, and the cells that matter most")
    parser.add_argument("--json", type=Path, help="the file to write, for the table of docs/performance.md")
    given = parser.parse_args()
    quick = given.quick
    torch.set_num_threads(1)
    cells = [
        (PPO, 0.005, False, 0.002), (SAC, 0.005, False, 0.0), (PPO, 0.005, True, 0.002), (PPO, 0.0, False, 0.0),
        (PPO, 0.001, False, 0.0), (PPO, 0.016, False, 0.002), (SAC, 0.016, False, 0.0),
    ]  # fmt: skip
    rows: list[tuple[object, ...]] = []
    cases: list[dict[str, Any]] = []
    for kind, engine, shared, think in cells[: 4 if quick else None]:
        carriers: dict[str, dict[str, float]] = {}
        for carrier in CARRIERS:
            plain, times = ratio(kind, carrier, engine, shared, think, 3 if quick else 7)
            carriers[carrier] = {"env-steps/s": round(plain), "times": round(times, 2)}
            ticks = f"{engine * 1e3:g} ms" + (", for half of them too" if shared else "")
            rows.append((kind.__name__, ticks, f"{think * 1e3:g} ms", carrier, f"{plain:,.0f}", f"{times:.2f}"))
        case = {"algorithm": kind.__name__, "engine_ms": engine * 1e3, "shared": shared, "policy_ms": think * 1e3}
        cases.append({**case, "carriers": carriers})
    if given.json:
        held = {**measured_here("numpy", "stable_baselines3", "torch"), "cases": cases}
        given.json.write_text(json.dumps(held, indent=1) + "\n", "utf-8")
    table("Overlap", "algorithm|a step of the engine|a thought|carrier|env-steps/s without|times as many with", rows)


if __name__ == "__main__":
    main()
