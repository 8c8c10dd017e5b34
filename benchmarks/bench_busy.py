"""A step where people train: beside busy processes, behind slow engines, with trainers that think; a markdown table.

    python benchmarks/bench_busy.py [--busy 0,1,2,4] [--think 0,0.5,2] [--engine 0,1,5,16] [--carriers text,..]
                                    [--seconds 0.4] [--rounds 5] [--json FILE] [--show FILE ..]

A cell is so many busy processes beside trainer and engine, a trainer that thinks for so many ms before each step, and
an engine whose step takes so many ms; both compute, in CPU time. In each cell all carriers take turns, for `--seconds`
a round. The time of a step is what an iteration takes beyond the trainer's own thinking: a carrier that uses up the
trainer's share of a core pays for it there. CPU a step is what each side uses beyond its thinking and its tick. Every
figure is the median of the rounds'. The table gives median / p90 / mean in us, CPU of trainer + engine, and last
the median of the rounds' ratios of shared memory to text, by the mean and by the p90.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import psutil
from bench_tcp import table
from numpy.typing import NDArray

import ue_rl
from ue_rl.bridges import ShmUpgrader, run_in_process, run_shm_in_process
from ue_rl.bridges.runners import ProcessHandle
from ue_rl.cli.do_nothing import ACT, DoNothingBridge

ENVS = 16
PER_UNIT = 0.1  # seconds that an action of 1 makes the engine's step take
CARRIERS: dict[str, tuple[Callable[..., ProcessHandle], dict[str, Any]]] = {
    "text": (run_in_process, {"channel": "shared"}),
    "per-env": (run_in_process, {"channel": "per_env"}),
    "memory": (run_shm_in_process, {}),
    "memory, upgraded": (functools.partial(run_in_process, upgrader=ShmUpgrader()), {"transport": "shm"}),
}
QUANTITIES = ("median", "p90", "mean", "trainer CPU", "engine CPU")
Figures = dict[str, list[float]]  # by QUANTITIES, in us, of each round


def compute(seconds: float) -> None:
    """Uses a core for so many seconds of CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Ticking(DoNothingBridge):
    """An engine whose step takes as long as the first action says."""

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """See the class."""
        if actions[0, 0]:
            compute(float(actions[0, 0]) * PER_UNIT)


def cpu_clock(process: int) -> Callable[[], float]:
    """A function that says how many seconds of CPU time another process has used."""
    if sys.platform == "linux":  # its clock, to the nanosecond; other clocks count in ticks of 10 ms
        return functools.partial(time.clock_gettime, (~process << 3) | 2)
    return lambda: sum(psutil.Process(process).cpu_times()[:2])


class Contender:
    """A carrier's engine and env."""

    def __init__(self, enter: Callable[[Any], Any], carrier: str) -> None:
        run, options = CARRIERS[carrier]
        engine = enter(run(functools.partial(Ticking, ENVS)))
        self._env = enter(contextlib.closing(ue_rl.connect(engine.url, monitor=False, **options)))
        self._engine_cpu = cpu_clock(engine.process.pid)
        self._env.reset()

    def run(self, think: float, tick: float, seconds: float) -> tuple[float, ...]:
        """Takes steps for so long, three at least; QUANTITIES of this round."""
        env, clock, took = self._env, time.perf_counter, list[float]()
        actions = np.zeros((ENVS, ACT), np.float32)
        actions[0, 0] = tick / PER_UNIT
        env.step(actions)
        mine, engines = time.process_time(), self._engine_cpu()
        end = clock() + seconds
        while len(took) < 3 or clock() < end:
            begun = clock()
            if think:
                compute(think)
            env.step(actions)
            took.append((clock() - begun - think) * 1e6)
        used = time.process_time() - mine - len(took) * think, self._engine_cpu() - engines - len(took) * tick
        cpu = [side / len(took) * 1e6 for side in used]
        return statistics.median(took), float(np.percentile(took, 90)), statistics.fmean(took), *cpu


@contextlib.contextmanager
def busy(count: int) -> Any:
    """So many processes that compute without end."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        if others:
            time.sleep(0.3)  # until they have started
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The cells, each with the figures of every carrier."""
    cells: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        contenders = {name: Contender(stack.enter_context, name) for name in arguments.carriers}
        for count in arguments.busy:
            with busy(int(count)):
                for think, tick in itertools.product(arguments.think, arguments.engine):
                    seen: dict[str, list[tuple[float, ...]]] = {name: [] for name in contenders}
                    for _, (name, contender) in itertools.product(range(arguments.rounds), contenders.items()):
                        seen[name].append(contender.run(think / 1e3, tick / 1e3, arguments.seconds))
                    figures: dict[str, Figures] = {
                        name: {
                            quantity: [round(value, 1) for value in values]
                            for quantity, values in zip(QUANTITIES, zip(*rounds, strict=True), strict=True)
                        }
                        for name, rounds in seen.items()
                    }
                    cells.append({"busy": int(count), "think": think, "engine": tick, "carriers": figures})
    return cells


def ratio(cell: dict[str, Any], quantity: str) -> str:
    """Shared memory to text."""
    if not {"text", "memory"} <= cell["carriers"].keys():
        return ""
    text, memory = (cell["carriers"][name][quantity] for name in ("text", "memory"))
    return f"{statistics.median(b / a for a, b in zip(text, memory, strict=True)):.2f}"


def show(cells: Sequence[dict[str, Any]]) -> None:
    """Prints the table."""
    carriers = list(cells[0]["carriers"])
    rows = []
    for cell in cells:
        figures = []
        for seen in cell["carriers"].values():
            p50, p90, mean, trainer, engine = (f"{statistics.median(seen[name]):,.0f}" for name in QUANTITIES)
            figures.append(f"{p50} / {p90} / {mean}, {trainer} + {engine}")
        where = tuple(f"{cell[key]:g}" for key in ("busy", "think", "engine"))
        rows.append((*where, *figures, *(ratio(cell, quantity) for quantity in ("mean", "p90"))))
    title = f"A step of {ENVS} envs: median / p90 / mean, CPU of trainer + engine, us"
    table(title, f"busy | think | engine | {' | '.join(carriers)} | mean | p90", rows)


def main() -> None:
    """Measures, prints, and writes the JSON."""

    def numbers(text: str) -> list[float]:
        return [float(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=numbers, default="0,1,2,4", help="processes beside trainer and engine")
    parser.add_argument("--think", type=numbers, default="0,0.5,2", help="of the trainer before a step, ms")
    parser.add_argument("--engine", type=numbers, default="0,1,5,16", help="of the engine in a step, ms")
    parser.add_argument("--carriers", type=lambda text: text.split("+"), default=list(CARRIERS), help="which")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each carrier in each round of a cell")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--show", type=Path, nargs="+", help="only prints the table of these files' figures")
    arguments = parser.parse_args()
    if arguments.show:
        cells = [cell for file in arguments.show for cell in json.loads(file.read_text("utf-8"))]
    else:
        cells = measure(arguments)
    if arguments.json:
        arguments.json.write_text("[\n" + ",\n".join(map(json.dumps, cells)) + "\n]\n", "utf-8")
    show(cells)


if __name__ == "__main__":
    main()
