"""Env-steps a second of every engine's side, through UnrealVecEnv; prints a markdown table.

    python benchmarks/bench_engine_sides.py [--quick] [--envs 1,16,64,1024] [--only C++,C#]

Each engine runs in a process of its own, once for each carrier: text on the shared channel, text on env sockets, and
shared memory by upgrade where the engine has it. In every round all of them take steps for the same time, one after the
other, the order reversed from round to round. A figure is the median of the rounds; in brackets the median of the
rounds' ratios to the Python bridge over the same carrier, which is what to quote. `by the median step` leaves out the
moments in which this machine did something else.

`reach` (a point with inertia, 8 observations, 2 actions, no episode ends) is the same task in C++ (samples/cpp) and in
C# (samples/unity, with mono); Python's bridge does nothing, so it is the fastest that Python can be; MuJoCo steps
InvertedPendulum (4 observations), Godot the cart-pole of samples/godot (4 observations, rigid bodies, episodes end).
What a machine lacks (mono, godot3-server, mujoco, a compiler) is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from bench_mujoco import endless
from bench_tcp import table

import ue_rl
from ue_rl.bridges import ShmUpgrader, run_in_process
from ue_rl.cli.do_nothing import DoNothingBridge
from ue_rl.envs.vec_env import UnrealVecEnv

ROOT = Path(__file__).resolve().parents[1]
CARRIERS: dict[str, dict[str, str]] = {
    "text, shared": {"channel": "shared", "transport": "tcp"},
    "text, per-env": {"channel": "per_env", "transport": "tcp"},
    "shared memory": {"transport": "shm"},
}
REFERENCE = "Python, does nothing"
Start = Callable[[int], "contextlib.AbstractContextManager[str]"]


@dataclass
class Engine:
    """How to start one with so many envs (it gives its URL), and what it cannot do.

    Attributes:
        shm: it offers shared memory. most: envs that it is measured with at most.
    """

    start: Start
    shm: bool = True
    most: int = 1024


@contextlib.contextmanager
def process(command: list[str], **options: Any) -> Iterator[str]:
    """An engine that says its port as the last word of its first line."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options)
    assert running.stdout is not None
    try:
        words = running.stdout.readline().replace(":", " ").split()
        if not words:
            raise RuntimeError(f"{command[0]} has ended: exit code {running.wait()}")
        yield f"tcp://127.0.0.1:{words[-1]}"
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


@contextlib.contextmanager
def python(make: Callable[[int], Any], num_envs: int) -> Iterator[str]:
    """A bridge of ours in a process of its own."""
    with run_in_process(functools.partial(make, num_envs), upgrader=ShmUpgrader()) as handle:
        yield handle.url


@contextlib.contextmanager
def godot(num_envs: int) -> Iterator[str]:
    """samples/godot; it is told its port."""
    with socket.create_server(("127.0.0.1", 0)) as free, tempfile.TemporaryDirectory() as home:
        port = int(free.getsockname()[1])
        free.close()
        command = ["godot3-server", "--path", str(ROOT / "samples" / "godot"), "--fixed-fps", "60"]
        running = subprocess.Popen(
            [*command, f"--port={port}", f"--envs={num_envs}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home},
        )  # fmt: skip
        try:
            yield f"tcp://127.0.0.1:{port}"
        finally:
            running.kill()
            running.wait()


def engines(folder: Path) -> dict[str, Engine]:
    """Those that this machine can run, built."""
    found = {REFERENCE: Engine(functools.partial(python, DoNothingBridge))}
    reach = ["--port", "0", "--obs-size", "8", "--max-steps", "0", "--num-envs"]
    if compiler := shutil.which("g++") or shutil.which("clang++"):
        binary, source = folder / "reach", ROOT / "samples" / "cpp" / "reach.cpp"
        flags = ["-std=c++17", "-O2", "-ffp-contract=off", "-pthread"]
        subprocess.run([compiler, *flags, "-o", str(binary), str(source), "-lrt"], check=True)
        found["C++, reach"] = Engine(lambda n: process([str(binary), "--shm", *reach, str(n)]))
    if shutil.which("mcs") and shutil.which("mono"):
        program, unity = folder / "engine.exe", ROOT / "samples" / "unity"
        bridge = [unity / f"UeRl{part}.cs" for part in ("Bridge", "SharedMemory", "Heuristic")]
        sources = [*bridge, *sorted((unity / "console").glob("*.cs"))]
        subprocess.run(["mcs", "-optimize+", f"-out:{program}", *map(str, sources)], check=True)
        found["C#, reach"] = Engine(lambda n: process(["mono", str(program), *reach, str(n)]))
    with contextlib.suppress(ImportError):
        __import__("mujoco")
        pendulum = functools.partial(endless, "InvertedPendulum")
        found["MuJoCo, InvertedPendulum"] = Engine(functools.partial(python, pendulum))
    if shutil.which("godot3-server"):
        found["Godot, cart-pole"] = Engine(godot, shm=False, most=64)  # 1024 take half a minute to load
    return found


def times(env: UnrealVecEnv, actions: Any, seconds: float) -> list[float]:
    """Of as many steps as fit, three at least."""
    clock, took = time.perf_counter, []
    begun = last = clock()
    while last < begun + seconds or len(took) < 3:
        env.step(actions)
        now = clock()
        took.append(now - last)
        last = now
    return took


def measured(found: dict[str, Engine], num_envs: int, rounds: int, seconds: float) -> dict[tuple[str, str], Any]:
    """(engine, carrier) -> of each round (env-steps a second, the same by the median step)."""
    with contextlib.ExitStack() as stack:
        envs: dict[tuple[str, str], tuple[UnrealVecEnv, Any]] = {}
        for name, engine in found.items():
            for carrier, options in CARRIERS.items():
                if num_envs > engine.most or (carrier == "shared memory" and not engine.shm):
                    continue
                url = stack.enter_context(engine.start(num_envs))
                env = ue_rl.connect(url, timeout=60, wait=30, **options)
                stack.callback(env.close)
                rng = np.random.default_rng(0)
                env.reset()
                actions = rng.uniform(-0.1, 0.1, (num_envs, env.engine_spec.act_size)).astype(np.float32)
                times(env, actions, seconds / 4)
                envs[name, carrier] = env, actions
        taken: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in envs}
        for k in range(rounds):
            for key in list(envs)[:: -1 if k % 2 else 1]:
                took = times(*envs[key], seconds)
                taken[key].append((num_envs * len(took) / sum(took), num_envs / statistics.median(took)))
    return taken


def short(value: float) -> str:
    """Three digits."""
    return f"{value / 1e6:.2f} M" if value >= 999_500 else f"{float(f'{value:.3g}'):,.0f}"


def rows(taken: dict[tuple[str, str], Any], num_envs: int, which: int) -> list[tuple[object, ...]]:
    """Of one table: which is 0 for all steps, 1 by the median step."""
    found = []
    for name in dict.fromkeys(name for name, _ in taken):
        cells = []
        for carrier in CARRIERS:
            ours, reference = taken.get((name, carrier)), taken.get((REFERENCE, carrier))
            if ours is None:
                cells.append("-")
                continue
            cell = short(statistics.median(one[which] for one in ours))
            if reference and name != REFERENCE:
                ratio = statistics.median(a[which] / b[which] for a, b in zip(ours, reference, strict=True))
                cell += f" ({ratio:.2f})"
            cells.append(cell)
        found.append((num_envs, name, *cells))
    return found


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="five short rounds")
    parser.add_argument("--envs", default="1,16,64,1024")
    parser.add_argument("--only", default="", help="engines whose names begin so, beside Python's bridge")
    options = parser.parse_args()
    count, seconds = (5, 0.15) if options.quick else (9, 0.4)
    only = (REFERENCE, *filter(None, options.only.split(",")))
    tables: dict[int, list[tuple[object, ...]]] = {0: [], 1: []}
    with tempfile.TemporaryDirectory() as folder:
        found = engines(Path(folder))
        if len(only) > 1:
            found = {name: engine for name, engine in found.items() if name.startswith(only)}
        for num_envs in map(int, options.envs.split(",")):
            taken = measured(found, num_envs, count, seconds)
            for which, written in tables.items():
                written.extend(more := rows(taken, num_envs, which))
                print(f"{num_envs} envs, {('all steps', 'median step')[which]}", *more, sep="\n", flush=True)
    header = " | ".join(("envs", "engine", *CARRIERS))
    table("env-steps per second (ratio to Python's bridge)", header, tables[0])
    table("the same by the median step", header, tables[1])


if __name__ == "__main__":
    main()
