"""Lock-step steps over shared memory by the million: is any lost, doubled or shifted, does anything grow?

    python benchmarks/soak_shm.py [--steps 10000000] [--upgrade]

Every action carries the number of its step; the engine answers with that number, with how many steps it has taken, and
with the sum of all numbers it was given. The trainer compares all three in every step. Now and then the engine or the
trainer is late, so that both kinds of waiting are met.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import psutil
from numpy.typing import NDArray

from ue_rl.bridges import ShmUpgrader, VectorBridge, run_in_process, run_shm_in_process
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.spec import EnvSpec

WRAP = 1 << 20  # float32 counts exactly as far as this and much further
LATE = 100_003  # every so many steps a side is late


class Counting(VectorBridge):
    """Answers with (the action's number, steps taken, sum of all numbers), all modulo WRAP."""

    def __init__(self) -> None:
        super().__init__(EnvSpec(3, 1, num_envs=1))
        self._taken = self._sum = 0

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        self._taken = self._sum = 0
        self.outbox.obs[:] = 0

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        number = int(actions[0, 0])
        self._taken += 1
        self._sum = (self._sum + number) % WRAP
        row = self.outbox.obs[0]
        row[0], row[1], row[2] = number, self._taken % WRAP, self._sum
        if self._taken % LATE == 0:
            time.sleep(0.002)


def soak(connection: SharedMemoryConnection, steps: int) -> None:
    """Steps and compares.

    Raises:
        AssertionError: an answer that is not the step's.
    """
    actions, total = np.zeros((1, 1), np.float32), 0
    connection.reset()
    connection.receive()
    for step in range(1, steps + 1):
        number = step * 7 % WRAP
        actions[0, 0] = number
        connection.send_actions(actions)
        row = connection.receive().obs[0].tolist()
        total = (total + number) % WRAP
        assert row == [number, step % WRAP, total], f"step {step}: {row}"
        if step % (LATE + 2) == 0:
            time.sleep(0.002)


def main() -> None:
    """Runs it and prints what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--upgrade", action="store_true", help="over TCP and the socket's doorbell, not by name")
    arguments = parser.parse_args()
    if arguments.upgrade:
        engine: Any = run_in_process(Counting, upgrader=ShmUpgrader())
        connection = SharedMemoryConnection(engine=("127.0.0.1", engine.port))
    else:
        engine = run_shm_in_process(Counting)
        connection = SharedMemoryConnection(engine.name)
    with engine, connection:
        soak(connection, 10_000)
        processes = {"trainer": psutil.Process(), "engine": psutil.Process(engine.process.pid)}
        before = {name: process.memory_info().rss for name, process in processes.items()}
        frames, begun = connection.memory.load_u64(32), time.perf_counter()
        soak(connection, arguments.steps)
        took = time.perf_counter() - begun
        counted = connection.memory.load_u64(32) - frames
        print(f"{arguments.steps:,} steps in {took:.0f} s ({took / arguments.steps * 1e6:.2f} us each), all in order")
        print(f"frame_seq counted {counted:,}, one of them the reset's")
        for name, process in processes.items():
            print(f"{name}: {(process.memory_info().rss - before[name]) / 1024:+,.0f} KiB")
        assert counted == arguments.steps + 1


if __name__ == "__main__":
    main()
