"""`ue-rl bench`: the bridge against SB3's own ways on this machine, in one run."""

from __future__ import annotations

import functools
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import click

from ue_rl.cli.common import table_of


@click.command(short_help="Measure the bridge here.")
@click.option("--num-envs", type=click.IntRange(1), default=16, show_default=True, help="How many envs.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="How often each is measured.")
@click.option(
    "--subproc/--no-subproc", default=True, help="Compare with SubprocVecEnv, one process per env.  [default: yes]"
)
def bench(num_envs: int, repeats: int, subproc: bool) -> None:
    """Measure the codec and the VecEnv on this machine, beside SubprocVecEnv.

    The envs do nothing, so only the transport is measured. Quote the ratios, not the times.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import numpy as np
    from rich.console import Console

    import ue_rl
    from ue_rl.bridges import run_in_process, run_shm_in_process
    from ue_rl.cli.do_nothing import ACT, DoNothing, DoNothingBridge
    from ue_rl.system.processes import out_of_ctrl_c

    console = Console()
    packages = ("numpy", "stable-baselines3", "gymnasium")
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in packages)
    )
    _codec_table(console, repeats)
    actions = np.random.default_rng(0).uniform(-1, 1, (num_envs, ACT)).astype(np.float32)
    factory = functools.partial(DoNothingBridge, num_envs)
    with run_in_process(factory) as one, run_in_process(factory) as two, run_shm_in_process(factory) as memory:
        envs: dict[str, Any] = {
            "ue_rl, shared memory": ue_rl.connect(memory.url),
            "ue_rl, shared channel": ue_rl.connect(one.url, channel="shared"),
            "ue_rl, per-env sockets": ue_rl.connect(two.url, channel="per_env"),
        }
        if subproc:
            from stable_baselines3.common.vec_env import SubprocVecEnv

            with out_of_ctrl_c():
                envs["SubprocVecEnv"] = SubprocVecEnv([DoNothing] * num_envs)
        try:
            for env in envs.values():
                env.reset()
            rounds = {name: 150 if name == "SubprocVecEnv" else 1000 for name in envs}
            steps = {name: functools.partial(env.step, actions) for name, env in envs.items()}
            us = side_by_side(steps, rounds, repeats)
        finally:
            for env in envs.values():
                env.close()
    title = f"VecEnv.step, {num_envs} do-nothing envs, engine in another process"
    table = table_of("carrier", "us a step", "env-steps/s", "vs SubprocVecEnv", left=["carrier"], title=title)
    base = us.get("SubprocVecEnv")
    for name, t in us.items():
        factor = "-"
        if base:
            factor = f"{base / t:.1f}x"
        table.add_row(name, f"{t:.1f}", f"{num_envs * 1e6 / t:,.0f}", factor)
    console.print(table)


def _codec_table(console: Any, repeats: int) -> None:
    import numpy as np

    from ue_rl.cli.do_nothing import ACT, OBS
    from ue_rl.protocol.buffers import StepBuffers
    from ue_rl.protocol.spec import EnvSpec
    from ue_rl.protocol.text import Codec
    from ue_rl.system.compiled import load, name_of

    n = 64
    spec = EnvSpec(OBS, ACT, num_envs=n)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (n, ACT)).astype(np.float32)
    buffers = StepBuffers(n, OBS)
    obs = rng.normal(size=(n, OBS)).astype(np.float32)
    zeros = np.zeros(n, np.uint8)
    line = Codec(spec).encode_states(obs, rng.normal(size=n).astype(np.float32), zeros)
    codecs = {"pure": Codec(spec, compiled=False)}
    if name_of(load("kernels")) == "compiled":
        codecs["compiled"] = Codec(spec, compiled=True)

    def use(codec: Codec) -> Callable[[], None]:
        def once() -> None:
            buffers.pending[:] = 1
            codec.decode_states(line, buffers)
            codec.encode_actions(actions)

        return once

    us = side_by_side({k: use(c) for k, c in codecs.items()}, {"pure": 10, "compiled": 100}, repeats)
    title = f"codec, {n} envs x {OBS} observations in, {ACT} actions out"
    table = table_of("loops", "us a step", "ns a number", left=["loops"], title=title)
    for name, t in us.items():
        table.add_row(name, f"{t:.1f}", f"{t * 1000 / (n * (OBS + 1 + ACT)):.0f}")
    console.print(table)


def side_by_side(steps: Mapping[str, Callable[[], object]], rounds: dict[str, int], repeats: int) -> dict[str, float]:
    """Median microseconds a call of each contender, taken in turn."""
    seen: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            begun = time.perf_counter()
            for _ in range(rounds[name]):
                step()
            seen[name].append((time.perf_counter() - begun) / rounds[name] * 1e6)
    return {name: statistics.median(times) for name, times in seen.items()}
