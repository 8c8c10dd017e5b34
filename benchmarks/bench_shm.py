"""Shared memory against its alternatives and against what two processes cannot do without; prints markdown tables.

    python benchmarks/bench_shm.py [--quick] [--only step,large,envs,images,idle]

Contenders take turns, figures are medians. The floors (two counters, a TCP echo, a memcpy) are
benchmarks/shm_floor.c, between two processes of their own. Engines are in Python, in a process of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
import psutil
from bench_tcp import side_by_side, table
from c_engine import build
from gymnasium.vector import AsyncVectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import SubprocVecEnv

import ue_rl
from ue_rl.bridges import (
    BaseBridge,
    ShmHost,
    ShmUpgrader,
    VectorBridge,
    run_in_process,
    run_shm_in_process,
)
from ue_rl.bridges.runners import ProcessHandle
from ue_rl.cli.do_nothing import DoNothing, DoNothingBridge
from ue_rl.connections import MultiTcpConnection, SharedMemoryConnection
from ue_rl.protocol.spec import EnvSpec, ImageSpec

FLOOR = Path(__file__).with_name("shm_floor.c")
ENVS, OBS, ACT = 4096, 100, 12
SIDE = 64


class Large(VectorBridge):
    """An engine that writes every observation anew in every step, with one copy of its own state."""

    def __init__(self, num_envs: int = ENVS, obs_size: int = OBS, act_size: int = ACT) -> None:
        super().__init__(EnvSpec(obs_size, act_size, num_envs=num_envs))
        self._state = np.random.default_rng(0).normal(size=(num_envs, obs_size)).astype(np.float32)

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        self.outbox.obs[env_ids] = self._state[env_ids]

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        np.copyto(self.outbox.obs, self._state)


class Pictures(VectorBridge):
    """64 x 64 x 3 pixels per env, drawn anew in every step."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(EnvSpec(1, ACT, num_envs=num_envs, image=ImageSpec(SIDE, SIDE, only=True)))
        self._drawn = np.random.default_rng(0).integers(0, 255, (num_envs, SIDE, SIDE, 3)).astype(np.uint8)

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        self._draw()

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        self._draw()

    def _draw(self) -> None:
        assert self.outbox.image is not None
        np.copyto(self.outbox.image, self._drawn)


class Picture(gym.Env[Any, Any]):
    """The same, one env."""

    observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
    action_space = gym.spaces.Box(-1, 1, (ACT,), np.float32)

    def __init__(self) -> None:
        self._drawn = np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3)).astype(np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._drawn, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._drawn, 0.0, False, False, {}


def serve_bare(bridge: BaseBridge, options: dict[str, Any], stop: Any, ready: Callable[[ShmHost], None]) -> None:
    """An engine that only answers: the transport's own cost on its side, without a bridge's."""
    with ShmHost(bridge) as host:
        ready(host)
        memory, seen = host.memory, 0
        bell, answered_seq = memory.bell(engine=True), memory.answered_seq
        assert answered_seq is not None
        while not stop.is_set():
            now = bell.wait(seen, 0, 20)
            if now != seen:
                seen = answered_seq[0] = now
                bell.publish()
        bell.release()


def floor(*arguments: object) -> float:
    """Microseconds a round, the median."""
    out = subprocess.run([str(build(FLOOR)), *map(str, arguments)], capture_output=True, text=True, check=True).stdout
    return int(out) / 1000


def step_times(transport: Any, rounds: int) -> list[float]:
    """Microseconds of each step at the transport's own level."""
    spec = transport.connect()
    actions = np.full((spec.num_envs, spec.act_size), 0.25, np.float32)
    transport.reset()
    transport.receive()
    clock, took = time.perf_counter, []
    for _ in range(rounds):
        begun = clock()
        transport.send_actions(actions)
        transport.receive()
        took.append((clock() - begun) * 1e6)
    return took


def in_turn(contenders: dict[str, Callable[[], list[float]]], repeats: int) -> dict[str, tuple[float, float]]:
    """(median, 99th percentile) of all steps of each."""
    seen: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            seen[name] += run()
    return {name: (statistics.median(times), float(np.percentile(times, 99))) for name, times in seen.items()}


def bench_step(repeats: int) -> None:
    """One env x 8 observations, at the transport's level: waiting is all there is."""
    one = functools.partial(DoNothingBridge, 1)
    with contextlib.ExitStack() as stack:
        enter: Any = stack.enter_context
        bare = enter(ProcessHandle(serve_bare, one, {}))
        spinning = enter(run_shm_in_process(one))
        napping = enter(run_shm_in_process(one, spin_us=0.0))
        ringing = enter(run_in_process(one, upgrader=ShmUpgrader(spin_us=0.0)))
        text = enter(run_in_process(one))
        text_too = enter(run_in_process(one))
        transports: dict[str, Any] = {
            "shared memory, spinning, engine without a bridge": SharedMemoryConnection(bare.name),
            "shared memory, spinning": SharedMemoryConnection(spinning.name),
            "shared memory, doorbell in memory (futex)": SharedMemoryConnection(napping.name, spin_us=0.0),
            "shared memory, doorbell on the socket": SharedMemoryConnection(
                engine=("127.0.0.1", ringing.port), spin_us=0.0
            ),
            "TCP text, shared channel": MultiTcpConnection(port=text.port, channel="shared"),
            "TCP text, per-env sockets": MultiTcpConnection(port=text_too.port, channel="per_env"),
        }
        contenders: dict[str, Callable[[], list[float]]] = {
            "two counters, both sides spinning (C)": lambda: [floor("spin", 100_000)],
            "TCP echo, 100 bytes, blocking (C)": lambda: [floor("echo", 5_000, 100)],
        }
        for name, transport in transports.items():
            enter(contextlib.closing(transport))
            # the scheduler takes some milliseconds to give each of two spinning processes a core
            contenders[name] = functools.partial(step_times, transport, 40_000 if "spinning" in name else 3_000)
        us = in_turn(contenders, repeats)
    spin, echo = (us[name][0] for name in list(us)[:2])
    rows = [
        (name, f"{p50:.2f}", f"{p99:.1f}" if "(C)" not in name else "", f"{p50 / spin:.0f}x", f"{p50 / echo:.2f}x")
        for name, (p50, p99) in us.items()
    ]
    table("A step of one env, transport level", "what | p50 us | p99 us | vs counters | vs echo", rows)


def bench_large(repeats: int) -> None:
    """4096 envs x 100 observations x 12 actions; the engine writes all of it in every step."""
    up, down = 4 * ENVS * ACT, ENVS * (4 * OBS + 4 + 2)
    with contextlib.ExitStack() as stack:
        enter: Any = stack.enter_context
        memory = enter(run_shm_in_process(Large))
        copied = enter(run_shm_in_process(Large))
        views = enter(run_shm_in_process(Large))
        text = enter(run_in_process(Large))
        bare = enter(contextlib.closing(SharedMemoryConnection(memory.name)))
        env = enter(contextlib.closing(ue_rl.connect(copied.url, monitor=False)))
        env_views = enter(contextlib.closing(ue_rl.connect(views.url, monitor=False, copy=False)))
        tcp = enter(contextlib.closing(ue_rl.connect(text.url, "tcp", channel="shared", monitor=False)))
        actions = np.zeros((ENVS, ACT), np.float32)
        for each in (env, env_views, tcp):
            each.reset()

        def steps(each: Any, rounds: int) -> list[float]:
            took = []
            for _ in range(rounds):
                begun = time.perf_counter()
                each.step(actions)
                took.append((time.perf_counter() - begun) * 1e6)
            return took

        us = in_turn(
            {
                "memcpy of the same bytes between two processes (C)": lambda: [floor("copy", 2_000, up, down)],
                "shared memory, transport level": lambda: step_times(bare, 500),
                "shared memory, VecEnv": lambda: steps(env, 500),
                "shared memory, VecEnv, copy=False": lambda: steps(env_views, 500),
                "TCP text, shared channel, VecEnv": lambda: steps(tcp, 6),
            },
            repeats,
        )
    base, slow = us[next(iter(us))][0], us[list(us)[-1]][0]
    rows = [(name, f"{p50:,.1f}", f"{p50 / base:.1f}x", f"{slow / p50:.0f}x") for name, (p50, _) in us.items()]
    table(
        f"A step of {ENVS} envs x {OBS} observations x {ACT} actions ({up} bytes up, {down} down)",
        "what | p50 us | vs memcpy | faster than text",
        rows,
    )


def bench_envs(repeats: int) -> None:
    """16 small envs, as a trainer sees them."""
    n = 16
    actions = np.zeros((n, 2), np.float32)
    with contextlib.ExitStack() as stack:
        enter: Any = stack.enter_context
        factory = functools.partial(DoNothingBridge, n)
        host = enter(run_shm_in_process(factory))
        one, two = enter(run_in_process(factory)), enter(run_in_process(factory))
        envs: dict[str, Any] = {
            "SubprocVecEnv": SubprocVecEnv([DoNothing] * n),
            "AsyncVectorEnv(shared_memory=True)": AsyncVectorEnv([DoNothing] * n, shared_memory=True),
            "TCP text, per-env sockets": ue_rl.connect(two.url, channel="per_env"),
            "TCP text, shared channel": ue_rl.connect(one.url, channel="shared"),
            "shared memory": ue_rl.connect(host.url),
        }
        for env in envs.values():
            enter(contextlib.closing(env))
            env.reset()
        us = side_by_side(
            {
                name: (functools.partial(env.step, actions), 100 if "Env" in name else 1500)
                for name, env in envs.items()
            },
            repeats,
        )
    rows = [
        (
            name,
            f"{t:.1f}",
            f"{n * 1e6 / t:,.0f}",
            f"{us['SubprocVecEnv'] / t:.1f}x",
            f"{us['AsyncVectorEnv(shared_memory=True)'] / t:.1f}x",
        )
        for name, t in us.items()
    ]
    table(
        "VecEnv.step: 16 do-nothing envs x 8 observations, engine in Python",
        "carrier | us a step | env-steps/s | vs SubprocVecEnv | vs AsyncVectorEnv",
        rows,
    )


def bench_images(repeats: int) -> None:
    """64 envs of 64 x 64 x 3 pixels."""
    n = 64
    actions = np.zeros((n, ACT), np.float32)
    with run_shm_in_process(functools.partial(Pictures, n)) as host:
        env, others = ue_rl.connect(host.url), AsyncVectorEnv([Picture] * n, shared_memory=True)
        envs: dict[str, Any] = {"AsyncVectorEnv(shared_memory=True)": others, "shared memory": env}
        for each in envs.values():
            each.reset()
        us = side_by_side({name: (functools.partial(each.step, actions), 30) for name, each in envs.items()}, repeats)
        for each in envs.values():
            each.close()
    base = us["AsyncVectorEnv(shared_memory=True)"]
    rows = [(name, f"{t:,.0f}", f"{1e6 / t:,.0f}", f"{n * 1e6 / t:,.0f}", f"{base / t:.1f}x") for name, t in us.items()]
    table(
        f"{n} envs of {SIDE} x {SIDE} x 3 pixels",
        "carrier | us a step | vec-steps/s | env-steps/s | vs AsyncVectorEnv",
        rows,
    )


class Slow(Large):
    """Thinks for 50 ms a step."""

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        time.sleep(0.05)


def bench_idle() -> None:
    """CPU of a side that waits: for a slow engine, and for a trainer that thinks."""
    slow = functools.partial(Slow, 1, 8, 2)
    rows = []
    for name, run in {
        "by name": run_shm_in_process,
        "upgraded from TCP": lambda f: run_in_process(f, upgrader=ShmUpgrader()),
    }.items():
        with run(slow) as engine:
            process = psutil.Process(engine.process.pid)
            env = ue_rl.connect(engine.url, "shm")
            env.reset()
            begun, cpu = time.perf_counter(), time.process_time()
            for _ in range(40):
                env.step(np.zeros((1, 2), np.float32))
            waiting = (time.process_time() - cpu) / (time.perf_counter() - begun)
            before, begun = sum(process.cpu_times()[:2]), time.perf_counter()
            time.sleep(3)
            idle = (sum(process.cpu_times()[:2]) - before) / (time.perf_counter() - begun)
            env.close()
        rows.append((name, f"{waiting:.1%}", f"{idle:.1%}"))
    table(
        "CPU of a waiting side", "carrier | trainer, engine takes 50 ms a step | engine, trainer thinks for 3 s", rows
    )


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", default="step,large,envs,images,idle", help="which tables")
    arguments = parser.parse_args()
    repeats = 3 if arguments.quick else 9
    names = ("numpy", "stable-baselines3", "gymnasium")
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in names)
    )
    chosen = arguments.only.split(",")
    runs: dict[str, Callable[[], None]] = {
        "step": lambda: bench_step(repeats),
        "large": lambda: bench_large(repeats),
        "envs": lambda: bench_envs(repeats),
        "images": lambda: bench_images(repeats),
        "idle": bench_idle,
    }
    for name, run in runs.items():
        if name in chosen:
            run()


if __name__ == "__main__":
    main()
