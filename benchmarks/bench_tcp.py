"""The TCP path against its alternatives, side by side in one run; prints markdown tables.

    python benchmarks/bench_tcp.py [--quick]

Rounds alternate between the contenders, figures are medians over rounds, ratios are what to quote: absolute
times differ from machine to machine and from minute to minute. The engine behind the client is
benchmarks/engine.c, whose answer costs the same whatever the client does.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from c_engine import CEngine, exchange
from plain_codec import PlainCodec
from stable_baselines3.common.vec_env import SubprocVecEnv

import ue_rl
from ue_rl.bridges import run_in_process
from ue_rl.cli.bench import side_by_side as in_turn
from ue_rl.cli.do_nothing import DoNothing, DoNothingBridge
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text import Codec

OBS, ACT = 8, 2


def side_by_side(contenders: dict[str, tuple[Callable[[], object], int]], repeats: int) -> dict[str, float]:
    """Median microseconds a call of each, the rounds taken in turn."""
    steps = {name: step for name, (step, _) in contenders.items()}
    return in_turn(steps, {name: rounds for name, (_, rounds) in contenders.items()}, repeats)


def table(title: str, header: str, rows: list[tuple[object, ...]]) -> None:
    """Prints one markdown table."""
    columns = header.split("|")
    print(f"\n### {title}\n\n| {' | '.join(c.strip() for c in columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")
    sys.stdout.flush()


def bench_codec(repeats: int) -> None:
    """Parse a batch of states and format a batch of actions, fully checked."""
    n = 64
    spec = EnvSpec(OBS, ACT, EnvType.MULTI, n)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(n, OBS)).astype(np.float32)
    actions = rng.uniform(-1, 1, (n, ACT)).astype(np.float32)
    zeros = np.zeros(n, np.uint8)
    line = Codec(spec).encode_states(obs, rng.normal(size=n).astype(np.float32), zeros, zeros)
    buffers = StepBuffers(n, OBS)

    def use(codec: Any) -> Callable[[], None]:
        def once() -> None:
            buffers.pending[:] = 1
            codec.decode_states(line, buffers)
            codec.encode_actions(actions)

        return once

    plain, fast, pure = PlainCodec(spec), Codec(spec, compiled=True), Codec(spec, compiled=False)
    us = side_by_side(
        {"plain Python": (use(plain), 60), "pure twin": (use(pure), 60), "compiled": (use(fast), 2000)}, repeats
    )
    numbers = n * (OBS + 1 + ACT)
    rows = [(name, f"{t:.1f}", f"{t / numbers * 1000:.0f}", f"{us['plain Python'] / t:.1f}x") for name, t in us.items()]
    table(
        "Codec: 64 envs x 8 observations in, 2 actions out", "codec | us a step | ns a number | vs plain Python", rows
    )


def bench_vec_env(repeats: int) -> None:
    """The VecEnv on both wirings against SubprocVecEnv, 16 envs; and the reference server."""
    n = 16
    actions = np.random.default_rng(1).uniform(-1, 1, (n, ACT)).astype(np.float32)
    sub = SubprocVecEnv([DoNothing for _ in range(n)])
    sub.reset()
    with CEngine(num_envs=n, obs_size=OBS, act_size=ACT) as one, CEngine(num_envs=n, obs_size=OBS, act_size=ACT) as two:
        shared = ue_rl.connect(one.url, channel="shared")
        per_env = ue_rl.connect(two.url, channel="per_env")
        with run_in_process(functools.partial(DoNothingBridge, n)) as server:
            reference = ue_rl.connect(server.url, channel="shared")
            envs = {"shared channel": shared, "per-env sockets": per_env, "client + reference server": reference}
            for env in envs.values():
                env.reset()
            us = side_by_side(
                {
                    "SubprocVecEnv": (lambda: sub.step(actions), 300),
                    **{name: ((lambda e=env: e.step(actions)), 2000) for name, env in envs.items()},
                },
                repeats,
            )
            for env in envs.values():
                env.close()
    sub.close()
    rows = [
        (name, f"{t:.1f}", f"{1e6 / t:,.0f}", f"{n * 1e6 / t:,.0f}", f"{us['SubprocVecEnv'] / t:.1f}x")
        for name, t in us.items()
    ]
    table(
        "VecEnv.step: 16 envs x 8 observations",
        "carrier | us a step | vec-steps/s | env-steps/s | vs SubprocVecEnv",
        rows,
    )


def bench_bare(repeats: int) -> None:
    """64 envs on the shared channel against a bare socket that exchanges the same bytes."""
    n = 64
    actions = np.random.default_rng(1).uniform(-1, 1, (n, ACT)).astype(np.float32)
    with CEngine(num_envs=n, obs_size=OBS, act_size=ACT) as engine:
        env = ue_rl.connect(engine.url, channel="shared")
        env.reset()
        request = len(env.transport._codec.encode_actions(actions))  # type: ignore[attr-defined]
        env.step(actions)
        reply = len(
            env.transport._codec.encode_states(  # type: ignore[attr-defined]
                env.transport.buffers.obs,
                env.transport.buffers.rewards,
                env.transport.buffers.dones,  # type: ignore[attr-defined]
            )
        )
        with CEngine.bare(request, reply) as peer:
            us = side_by_side(
                {
                    "bare socket": (lambda: exchange(peer, rounds=200), 10),
                    "VecEnv": (lambda: env.step(actions), 2000),
                },
                repeats,
            )
        us["bare socket"] /= 200
        env.close()
    rows = [(name, f"{t:.1f}", f"{t / us['bare socket']:.2f}x") for name, t in us.items()]
    table(f"64 envs x 8 observations: {request} bytes up, {reply} down", "what | us a step | vs bare", rows)


def bench_connect() -> None:
    """Connect and reset 64 envs; what the client's memory grows by."""
    script = (
        "import sys,time,stable_baselines3,gymnasium;"
        "rss=lambda:int(open('/proc/self/statm').read().split()[1])*4096/2**20;"
        "a=rss();import ue_rl;t=time.perf_counter();e=ue_rl.connect(sys.argv[1],channel=sys.argv[2]);e.reset();"
        "dt=time.perf_counter()-t;import numpy as np;x=np.zeros((64,2),np.float32);"
        "[e.step(x) for _ in range(2000)];print(dt,rss()-a);e.close()"
    )
    rows = []
    for channel in ("shared", "per_env"):
        with CEngine(num_envs=64, obs_size=OBS, act_size=ACT) as engine:
            out = subprocess.run(
                [sys.executable, "-c", script, engine.url, channel], capture_output=True, text=True, check=True
            ).stdout.split()
        rows.append((channel, f"{float(out[0]) * 1000:.0f}", f"{float(out[1]):.1f}"))
    table("64 envs: connect and reset; memory over importing SB3", "wiring | ms | MB", rows)


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    repeats = 3 if parser.parse_args().quick else 9
    names = ("numpy", "stable-baselines3", "gymnasium", "torch")
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in names)
    )
    bench_codec(repeats)
    bench_vec_env(repeats)
    bench_bare(repeats)
    bench_connect()


if __name__ == "__main__":
    main()
