"""This checkout against another one, alternately in one run; prints a markdown table.

    git worktree add ../before COMMIT
    (cd ../before && python setup.py build_ext --inplace)
    python benchmarks/compare.py ../before [--rounds 7] [--only shared,codec] [--ppo]

Each checkout runs in a process of its own with engines of its own. In every round both do the same number of steps of
each kind, one after the other, the order reversed from round to round; a figure is the median of the rounds' medians,
and the ratio the median of the rounds' ratios, which is what to quote. Only names that both checkouts have are used;
where a module has moved, `either` knows both its names.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
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
from c_engine import CEngine
from numpy.typing import NDArray

import ue_rl
from ue_rl.bridges import VectorBridge, run_in_process, run_shm_in_process
from ue_rl.connections import SharedMemoryConnection


def either(*modules: str) -> Any:
    """The first of these modules that the checkout under test has: one part's place now, and its places before."""
    *first, last = modules
    for module in first:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(module)
    return importlib.import_module(last)


StepBuffers: Any = either("ue_rl.protocol.buffers", "ue_rl.buffers").StepBuffers
EnvSpec: Any = either("ue_rl.protocol.spec", "ue_rl.spec").EnvSpec
Codec: Any = either("ue_rl.protocol.text", "ue_rl.wire").Codec
HERE = Path(__file__).resolve().parents[1]
Contender = tuple[Callable[[], object], int]  # a step, and how many to take in a round


class Engine(VectorBridge):
    """Writes every observation anew in every step, and nothing else."""

    def __init__(self, num_envs: int, obs_size: int = 8, act_size: int = 2) -> None:
        super().__init__(EnvSpec(obs_size, act_size, num_envs=num_envs))
        self._state = np.random.default_rng(0).normal(size=(num_envs, obs_size)).astype(np.float32)

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        """Writes the first observations."""
        self.outbox.obs[env_ids] = self._state[env_ids]

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """Writes the next ones."""
        np.copyto(self.outbox.obs, self._state)


def codec(compiled: bool) -> Callable[[], None]:
    """A line of states in, a line of actions out: 64 envs x 8 observations, 2 actions."""
    one = Codec(EnvSpec(8, 2, num_envs=64), compiled=compiled)
    rng, zeros, buffers = np.random.default_rng(0), np.zeros(64, np.uint8), StepBuffers(64, 8)
    obs, rewards = rng.normal(size=(64, 8)).astype(np.float32), rng.normal(size=64).astype(np.float32)
    actions = rng.uniform(-1, 1, (64, 2)).astype(np.float32)
    line = one.encode_states(obs, rewards, zeros, zeros)

    def step() -> None:
        buffers.pending[:] = 1
        one.decode_states(line, buffers)
        one.encode_actions(actions)

    return step


def contenders(enter: Callable[[Any], Any]) -> dict[str, Contender]:
    """What is timed; `enter` keeps engines and envs until the end."""

    def env(url: str, num_envs: int = 16, act_size: int = 2, **options: Any) -> Callable[[], object]:
        made = enter(contextlib.closing(ue_rl.connect(url, **options)))
        made.reset()
        return functools.partial(made.step, np.full((num_envs, act_size), 0.25, np.float32))

    def transport(engine: Callable[[], VectorBridge], num_envs: int, act_size: int = 2, **options: Any) -> Any:
        made = enter(contextlib.closing(SharedMemoryConnection(enter(run_shm_in_process(engine, **options)).name)))
        made.connect()
        made.reset()
        made.receive()
        actions = np.full((num_envs, act_size), 0.25, np.float32)
        return lambda: (made.send_actions(actions), made.receive())

    c_engines = [enter(CEngine(num_envs=16, obs_size=8, act_size=2)) for _ in range(2)]
    small, large = functools.partial(Engine, 16), functools.partial(Engine, 4096, 100, 12)
    text = [enter(run_in_process(small)) for _ in range(2)]
    return {
        "codec, compiled, 64 envs x 8": (codec(True), 2000),
        "codec, pure, 64 envs x 8": (codec(False), 40),
        "VecEnv, shared channel, 16 envs, engine in C": (env(c_engines[0].url, channel="shared"), 2000),
        "VecEnv, per-env sockets, 16 envs, engine in C": (env(c_engines[1].url, channel="per_env"), 800),
        "VecEnv, shared channel, 16 envs, engine in Python": (env(text[0].url, channel="shared"), 800),
        "VecEnv, per-env sockets, 16 envs, engine in Python": (env(text[1].url, channel="per_env"), 300),
        "VecEnv, shared memory, 16 envs": (env(enter(run_shm_in_process(small)).url), 3000),
        "VecEnv, shared memory, 4096 envs x 100": (
            env(enter(run_shm_in_process(large)).url, 4096, 12, monitor=False), 200,
        ),
        "transport, shared memory, 4096 envs x 100": (transport(large, 4096, 12), 300),
        "transport, shared memory, 1 env, spinning": (transport(functools.partial(Engine, 1), 1), 20_000),
        "transport, shared memory, 1 env, futex": (transport(functools.partial(Engine, 1), 1, spin_us=0.0), 800),
    }  # fmt: skip


def worker(ppo: bool) -> None:
    """One checkout's process: prints the names, then a figure for each name that it reads."""
    with contextlib.ExitStack() as stack:
        rates: dict[str, Any] = {}
        if ppo:
            from bench_ppo import contenders as trainings

            rates = trainings(stack.enter_context)
        steps = {} if ppo else contenders(stack.enter_context)
        print("|".join([*rates, *steps]), flush=True)
        for name in map(str.strip, sys.stdin):
            if name in rates:
                print(rates[name]()[1], flush=True)
                continue
            step, count = steps[name]
            took = []
            for _ in range(count + count // 20):
                begun = time.perf_counter()
                step()
                took.append(time.perf_counter() - begun)
            print(statistics.median(took[count // 20 :]) * 1e6, flush=True)


def start(tree: Path, ppo: bool) -> subprocess.Popen[str]:
    """A worker over `tree`."""
    return subprocess.Popen(
        [sys.executable, __file__, "--worker", *(["--ppo"] if ppo else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tree)},  # for the engines' processes, too
    )


def main() -> None:
    """Compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", help="the other checkout, its extensions built in place")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="words of the names to run, separated by commas")
    parser.add_argument("--ppo", action="store_true", help="PPO's frames per second instead of single steps")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.ppo)
        return
    if arguments.other is None:
        parser.error("the other checkout is missing")
    workers = {"other": start(arguments.other.resolve(), arguments.ppo), "this": start(HERE, arguments.ppo)}

    def say(process: subprocess.Popen[str], name: str | None) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        if name is not None:
            print(name, file=process.stdin, flush=True)
        return process.stdout.readline().strip()

    names = [say(process, None).split("|") for process in workers.values()]
    words = [word for word in arguments.only.split(",") if word]
    seen: dict[str, dict[str, list[float]]] = {}
    for n in range(arguments.rounds):
        for name in names[0]:
            if name not in names[1] or (words and not any(word in name for word in words)):
                continue
            figures = seen.setdefault(name, {"other": [], "this": []})
            for which in list(workers)[:: 1 if n % 2 else -1]:
                figures[which].append(float(say(workers[which], name)))
    for process in workers.values():
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    print(f"| what | other, {'fps' if arguments.ppo else 'us'} | this | this / other | lowest, highest |")
    print("|---|---|---|---|---|")
    for name, figures in seen.items():
        ratios = [b / a for a, b in zip(figures["other"], figures["this"], strict=True)]
        other, this = (statistics.median(figures[which]) for which in ("other", "this"))
        middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
        print(f"| {name} | {other:,.1f} | {this:,.1f} | {middle:.2f} | {low:.2f}, {high:.2f} |")
    if arguments.ppo:
        for which in ("other", "this"):
            for name in list(seen)[1:]:
                pairs = zip(seen[name][which], seen["DummyVecEnv"][which], strict=True)
                print(f"{which}: {name} at {statistics.median(a / b for a, b in pairs):.2f} of DummyVecEnv")


if __name__ == "__main__":
    main()
