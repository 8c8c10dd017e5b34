"""What named observations cost: a Dict of 8 parts against the same numbers as one flat row, at the VecEnv.

    python benchmarks/bench_spaces.py [--rounds 7]

Over text and shared memory, 16 and 64 envs, 32 numbers each. In every round each kind has an engine of its own, one
after the other; compared are the lowest medians, because whatever else runs on the machine only adds to them. `mixed`
has a choice, flags, bytes and a matrix among its 8 parts.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

import ue_rl
from ue_rl.bridges import VectorBridge, run_in_process, run_shm_in_process
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, Space, box
from ue_rl.protocol.spec import EnvSpec

STEPS = 500  # of a block
FLOATS = Branch(tuple((f"part {k}", box((4,))) for k in range(8)))
MIXED = Branch(
    (
        ("position", box((3,))),
        ("velocity", box((3,))),
        ("matrix", box((3, 3))),
        ("rays", box((8,), 0, 1)),
        ("weapon", Leaf(LeafKind.DISCRETE, counts=(4,))),
        ("flags", Leaf(LeafKind.MULTI_BINARY, (3,))),
        ("bytes", box((4,), 0, 255, "uint8")),
        ("time", box((1,))),
    )
)
SPACES: dict[str, Space | None] = {"flat": None, "dict": FLOATS, "mixed": MIXED}


class Engine(VectorBridge):
    """Writes every observation anew in every step, and nothing else."""

    def __init__(self, num_envs: int, space: Space | None) -> None:
        super().__init__(EnvSpec(32, 2, num_envs=num_envs, obs_space=space))
        self._state = np.random.default_rng(0).integers(0, 2, (num_envs, 32)).astype(np.float32)

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        """Writes the first observations."""
        self.outbox.obs[env_ids] = self._state[env_ids]

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """Writes the next ones."""
        np.copyto(self.outbox.obs, self._state)


def block(step: Callable[[], object], count: int) -> float:
    """The median of `count` steps, in microseconds."""
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        step()
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


def main() -> None:
    """Measures and prints a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print("| carrier, envs | flat, us | dict, us | mixed, us | dict / flat | mixed / flat |")
    print("|---|---|---|---|---|---|")
    for carrier, host in (("text", run_in_process), ("shared memory", run_shm_in_process)):
        for num_envs in (16, 64):
            seen: dict[str, float] = dict.fromkeys(SPACES, np.inf)
            for n in range(rounds):
                for name in list(SPACES)[:: 1 if n % 2 else -1]:
                    with contextlib.ExitStack() as stack:
                        engine = stack.enter_context(host(functools.partial(Engine, num_envs, SPACES[name])))
                        env = stack.enter_context(contextlib.closing(ue_rl.connect(engine.url)))
                        env.reset()
                        step = functools.partial(env.step, np.full((num_envs, 2), 0.25, np.float32))
                        block(step, STEPS)
                        seen[name] = min(seen[name], *(block(step, STEPS) for _ in range(4)))
            figures = " | ".join(f"{took:.1f}" for took in seen.values())
            ratios = " | ".join(f"{seen[name] / seen['flat']:.2f}" for name in ("dict", "mixed"))
            print(f"| {carrier}, {num_envs} | {figures} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
