"""PPO through the bridge against DummyVecEnv, and what a step costs each side after a policy; prints markdown tables.

    python benchmarks/bench_ppo.py [--rounds 9] [--only cold,episodes,ppo,watched]

CartPole-v1, 16 envs; the bridge's engine is a second process. 128 steps a rollout, batches of 256, 4 epochs, one torch
thread. Contenders take turns, the order reversed from round to round; ratios are medians of the rounds' ratios. Between
two steps a policy acts, so that the bridge's code meets caches that are cold, which loops of steps alone hide: "cold"
has trainer and engine in one thread, with a policy that acts, and 3 MB that are read, before each call. "watched" has
what --trace and --metrics, asked once a second, cost.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
import torch
from bench_tcp import table
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

import ue_rl
from ue_rl.bridges import GymnasiumBridge, ShmHost, run_in_process, run_shm_in_process
from ue_rl.connections import open_transport
from ue_rl.devtools.metrics.serving import serve_metrics
from ue_rl.devtools.recording import RecordingTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.training.callbacks import EpisodeLog, RunNumbers
from ue_rl.training.fleet import Fleet
from ue_rl.training.report import TrainingReport
from ue_rl.training.writing import Episodes

ENVS, STEPS, ROLLOUTS = 16, 128, 4
COLD = 50  # steps of a round, of "cold"
REPEATS, LOOP = 10, 200  # of "episodes": rounds for each of --rounds, and their steps
torch.set_num_threads(1)
Measured = tuple[float, float]  # microseconds of a rollout's step, frames per second


class WithoutAutoreset(GymnasiumBridge):
    """Each vec-step in which an episode ends takes a second round trip."""

    def offered(self) -> frozenset[str]:
        """See BaseBridge.offered."""
        return super().offered() - {"AUTORESET"}


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


@contextlib.contextmanager
def alone(env: Any) -> Iterator[None]:
    """No callbacks."""
    yield None


def measured(make: Callable[[], Any], watch: Callable[[Any], Any] = alone) -> Measured:
    """Of one training; `watch` is entered with the env, and gives callbacks."""
    with contextlib.closing(make()) as env, watch(env) as callbacks:
        model = Timed("MlpPolicy", env, n_steps=STEPS, batch_size=256, n_epochs=4, device="cpu", seed=0)
        begun, steps = time.perf_counter(), STEPS * ROLLOUTS
        model.learn(steps * ENVS, callbacks)
        return model.rollouts / steps * 1e6, steps * ENVS / (time.perf_counter() - begun)


def contenders(enter: Callable[[Any], Any]) -> dict[str, Callable[[], Measured]]:
    """In process, over text, over shared memory; `enter` keeps the engines until the end."""
    factory, before = (functools.partial(kind, "CartPole-v1", ENVS) for kind in (GymnasiumBridge, WithoutAutoreset))
    text, memory = enter(run_in_process(factory)), enter(run_shm_in_process(factory))
    old_text, old_memory = enter(run_in_process(before)), enter(run_shm_in_process(before))
    return {
        "DummyVecEnv": lambda: measured(lambda: DummyVecEnv([lambda: gym.make("CartPole-v1")] * ENVS)),
        "text": lambda: measured(lambda: ue_rl.connect(text.url, channel="shared")),
        "text, no AUTORESET": lambda: measured(lambda: ue_rl.connect(old_text.url, channel="shared")),
        "shared memory": lambda: measured(lambda: ue_rl.connect(memory.url)),
        "shared memory, no AUTORESET": lambda: measured(lambda: ue_rl.connect(old_memory.url)),
    }


class Free(gym.Env[Any, Any]):
    """Choices in, the same four numbers out."""

    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Zeros."""
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Zeros."""
        return np.zeros(4, np.float32), 1.0, False, False, {}


def bench_cold(rounds: int) -> None:
    """What each side of a step, and of one env's reset, takes over shared memory: after a policy, and in a loop."""
    policy = PPO("MlpPolicy", DummyVecEnv([Free]), device="cpu").policy
    seen, junk = torch.zeros(ENVS, 4), np.zeros(3 << 20, np.uint8)
    took: dict[str, dict[bool, list[float]]] = {}
    with ShmHost(GymnasiumBridge([Free] * ENVS)) as host, contextlib.closing(ue_rl.connect(host.url)) as env:
        actions = np.zeros(ENVS, np.int64)

        def timed(name: str, cold: bool, call: Callable[[], object]) -> None:
            if cold:
                with torch.no_grad():
                    policy(seen)
                junk.sum()
            begun = time.perf_counter()
            call()
            took.setdefault(name, {True: [], False: []})[cold].append((time.perf_counter() - begun) * 1e6)

        with ThreadPoolExecutor(1) as other:
            beginning = other.submit(env.reset)
            while not beginning.done():
                host.tick(0.01)
        for cold in (True, False):
            for _ in range(rounds * COLD):
                timed("step, trainer asks", cold, lambda: env.step_async(actions))
                timed("step, engine", cold, lambda: host.tick(0.01))
                timed("step, trainer takes", cold, env.step_wait)
                timed("reset of one env, trainer asks", cold, lambda: env.transport.reset([3]))
                timed("reset of one env, engine", cold, lambda: host.tick(0.01))
                timed("reset of one env, trainer takes", cold, env.transport.receive)
    rows = [(name, *(f"{statistics.median(us[cold]):.1f}" for cold in (True, False))) for name, us in took.items()]
    table(f"{ENVS} envs with choices over shared memory, us", "what|after a policy|in a loop", rows)


class Short(Free):
    """Episodes of 20 steps, the first one shorter by what its seed says."""

    left = 20

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Zeros."""
        self.left = 20 - (seed or 0) % 20
        return super().reset()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Zeros."""
        self.left -= 1
        return np.zeros(4, np.float32), 1.0, self.left == 0, False, {}


def bench_episodes(rounds: int) -> None:
    """Steps of envs whose episodes are short, so that most steps end one; a loop of steps, without a policy."""
    with contextlib.ExitStack() as stack:
        envs: dict[str, Any] = {}
        for suffix, kind in (("", GymnasiumBridge), (", no AUTORESET", WithoutAutoreset)):
            factory = functools.partial(kind, [Short] * ENVS)
            for name, start in (("text", run_in_process), ("shared memory", run_shm_in_process)):
                url, options = stack.enter_context(start(factory)).url, {"channel": "shared"} if name == "text" else {}
                envs[name + suffix] = stack.enter_context(contextlib.closing(ue_rl.connect(url, **options)))
        actions = np.zeros(ENVS, np.int64)
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in envs}
        for env in envs.values():
            env.seed(0)
            env.reset()
        for n in range(rounds * REPEATS):
            for name in list(envs)[:: 1 if n % 2 else -1]:
                begun, cpu = time.perf_counter(), time.process_time()
                for _ in range(LOOP):
                    envs[name].step(actions)
                seconds, spent = time.perf_counter() - begun, time.process_time() - cpu
                took[name].append((seconds / LOOP * 1e6, spent / LOOP * 1e6))
    rows = []
    for name, figures in took.items():
        us, cpu = map(statistics.median, zip(*figures, strict=True))
        rows.append((name, f"{us:.1f}", f"{min(us for us, _ in figures):.1f}", f"{cpu:.1f}"))
    header = "env|us a step, median of rounds|the fastest round|CPU of the trainer"
    table(f"{ENVS} envs, episodes of 20 steps, {rounds * REPEATS} rounds of {LOOP} steps", header, rows)


def bench_ppo(rounds: int) -> None:
    """The trainings."""
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


@contextlib.contextmanager
def numbered(folder: Path, asked: bool, env: Any) -> Iterator[list[Any]]:
    """The callbacks that each run has; `asked`: their numbers are served, and scraped once a second."""
    episodes = Episodes(folder / f"{time.monotonic_ns()}.csv", TrainingReport(), 10**9)
    numbers, over = RunNumbers(episodes, Fleet(env.transport)), threading.Event()

    def scrape(url: str) -> None:
        while not over.wait(1):
            with urllib.request.urlopen(url, timeout=10) as answer:
                answer.read()

    with contextlib.ExitStack() as stack:
        stack.callback(episodes.close)
        if asked:
            scraper = threading.Thread(target=scrape, args=[stack.enter_context(serve_metrics("0", numbers.metrics))])
            scraper.start()
            stack.callback(scraper.join)
            stack.callback(over.set)
        yield [EpisodeLog(episodes), numbers]


def bench_watched(rounds: int) -> None:
    """What a trace, and numbers that are scraped, cost."""
    factory, rows = functools.partial(GymnasiumBridge, "CartPole-v1", ENVS), []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for carrier, start in (("text", run_in_process), ("shared memory", run_shm_in_process)):

            def opened(trace: bool = False, start: Any = start) -> Callable[[], Any]:
                url = stack.enter_context(start(factory)).url

                def make() -> UnrealVecEnv:
                    transport = open_transport(url)
                    file = folder / f"{time.monotonic_ns()}.trace"
                    return UnrealVecEnv(RecordingTransport(transport, file) if trace else transport)

                return make

            without, scraped = (functools.partial(numbered, folder, asked) for asked in (False, True))
            runs: dict[str, tuple[Callable[[], Any], Any]] = {
                "plain": (opened(), without),
                "again": (opened(), without),  # how far two of a kind are apart
                "--trace": (opened(trace=True), without),
                "--metrics": (opened(), scraped),
            }
            trained: dict[str, list[Measured]] = {name: [] for name in runs}
            for n in range(rounds):
                for name in list(runs)[:: 1 if n % 2 else -1]:
                    trained[name].append(measured(*runs[name]))
            looped = loops(runs, rounds * 12)
            for name in runs:
                ratios = [against(trained[name], trained["plain"], k) for k in (0, 1)]
                ratios += [against(looped[name], looped["plain"], k) for k in (0, 1)]
                middle = [statistics.median(us) for us in zip(*looped[name], strict=True)]
                us = statistics.median(us for us, _ in trained[name]), *middle
                rows.append((carrier, name, *(f"{each:.1f}" for each in us), *(f"{ratio:.3f}" for ratio in ratios)))
    header = "carrier|run|us a step of the rollout|in a loop|its CPU|rollout, of plain|fps|loop|its CPU"
    table(f"What watching costs, {ENVS} envs, medians of {rounds} rounds", header, rows)


def against(figures: list[Any], base: list[Any], k: int) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(one[k] / other[k] for one, other in zip(figures, base, strict=True))


def loops(runs: dict[str, tuple[Callable[[], Any], Any]], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Microseconds of a step without a policy, and of the trainer's CPU; rounds of 500 steps, in turn."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    with contextlib.ExitStack() as stack:
        envs = {}
        for name, (make, watch) in runs.items():
            envs[name] = stack.enter_context(contextlib.closing(make()))
            stack.enter_context(watch(envs[name]))
            envs[name].reset()
        chosen = np.random.default_rng(0).integers(2, size=(500, ENVS))
        for n in range(rounds):
            for name in list(envs)[:: 1 if n % 2 else -1]:
                begun, cpu = time.perf_counter(), time.process_time()
                for actions in chosen:
                    envs[name].step(actions)
                spent = time.perf_counter() - begun, time.process_time() - cpu
                took[name].append((spent[0] / 500 * 1e6, spent[1] / 500 * 1e6))
    return took


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="cold,episodes,ppo,watched", help="which tables")
    arguments = parser.parse_args()
    tables = {"cold": bench_cold, "episodes": bench_episodes, "ppo": bench_ppo, "watched": bench_watched}
    for name, run in tables.items():
        if name in arguments.only.split(","):
            run(arguments.rounds)


if __name__ == "__main__":
    main()
