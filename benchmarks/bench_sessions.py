"""Sessions of Skirmish in one process: throughput, resets, memory, threads, and how late ticks are; a markdown table.

    python benchmarks/bench_sessions.py [--quick] [--sessions 64] [--workers 2] [--game module:Class]
                                        [--json benchmarks/sessions.json]

Each line is measured in a process of its own, so that its memory is its own:

- aggregate ticks a second (and of processor time, for a busy machine) with every session advanced 50 ticks a request,
  the game being one VectorBridge, and a bridge object for each session; beside them the game alone, without a pool;
- all sessions played to the end by nobody (the opponent wins), and by how many that was;
- the time of a reset, one session after the other, while nothing else runs;
- memory above that of one session, and threads;
- 25 ticks a second for all sessions, each with an agent that thinks for 2 s: how late ticks began.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from tables import measured_here

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ue_rl.plugins.sessions.realtime import SessionPool  # noqa: E402
from ue_rl.system.loading import loaded  # noqa: E402

TICKS = 50  # of a request
Options = argparse.Namespace


def pool_of(options: Options, **more: Any) -> SessionPool:
    """A pool with all its sessions begun."""
    pool = SessionPool(options.game, **{"max_sessions": options.sessions, "workers": options.workers, **more})
    for number in range(pool.max_sessions):
        pool.create(seed=number)
    for session in pool.sessions():
        session.latest  # noqa: B018 - waits until it is there
    return pool


def throughput(options: Options, together: bool) -> dict[str, float]:
    """Ticks a second of all sessions; episodes that end begin anew."""
    with pool_of(options, together=together) as pool:
        sessions = pool.sessions()
        over: list[int] = []
        ticks, begun, worked = 0, time.perf_counter(), time.process_time()
        while (spent := time.perf_counter() - begun) < options.seconds:
            seen = pool.advance_all(sessions, TICKS, resets=over)
            ticks += sum(each.ticks_advanced for each in seen)
            over = [place for place, each in enumerate(seen) if each.done]
        return {"ticks/s": ticks / spent, "ticks a second of processor": ticks / (time.process_time() - worked)}


def alone(options: Options, num_envs: int) -> dict[str, float]:
    """The game without a pool, in one thread."""
    bridge = loaded(options.game, "game")(num_envs=num_envs)
    bridge.start_training()
    bridge.inbox.command[:] = bridge.inbox.RESET
    bridge.inbox.seeds[:] = np.arange(num_envs)
    bridge.update_rl(0.0)
    bridge.answered[:] = 0
    ticks, begun, worked = 0, time.perf_counter(), time.process_time()
    while (spent := time.perf_counter() - begun) < options.seconds:
        with bridge.lock:
            bridge.lockstep.step_all(0.0)
        ticks += num_envs
        if over := np.flatnonzero(bridge.outbox.dones).tolist():
            bridge.inbox.command[over] = bridge.inbox.RESET
            bridge.update_rl(0.0)
            bridge.answered[:] = 0
    return {"ticks/s": ticks / spent, "ticks a second of processor": ticks / (time.process_time() - worked)}


def to_the_end(options: Options) -> dict[str, float]:
    """How many of the sessions come to an end, and how long that takes."""
    with pool_of(options) as pool:
        playing, ended, begun = pool.sessions(), 0, time.perf_counter()
        while playing and time.perf_counter() - begun < 120:
            seen = pool.advance_all(playing, 1000)
            ended += sum(each.done for each in seen)
            playing = [session for session, each in zip(playing, seen, strict=True) if not each.done]
        return {"ended": ended, "of": pool.max_sessions, "s": time.perf_counter() - begun}


def resets(options: Options) -> dict[str, float]:
    """Milliseconds."""
    with pool_of(options) as pool:
        sessions, took = pool.sessions(), []
        for number in range(options.resets):
            begun = time.perf_counter()
            sessions[number % len(sessions)].reset(seed=number)
            took.append(time.perf_counter() - begun)
    p50, p99 = np.percentile(took, (50, 99)) * 1e3
    return {"p50 ms": p50, "p99 ms": p99}


def memory(options: Options, together: bool) -> dict[str, float]:
    """RSS in MB after some ticks, and threads beside the main one."""
    with pool_of(options, together=together) as pool:
        pool.advance_all(pool.sessions(), TICKS)
        return {"MB": psutil.Process().memory_info().rss / 1e6, "threads": threading.active_count() - 1}


def real_time(options: Options, together: bool) -> dict[str, float]:
    """25 ticks a second; an agent for each session thinks for 2 s, acts and looks."""
    with pool_of(options, together=together, tick_rate=25) as pool:
        stop = threading.Event()
        done = [0] * pool.max_sessions

        def agent(place: int, session: Any) -> None:
            while not stop.wait(2):
                session.act(np.zeros(pool.spec.act_size, np.float32))
                done[place] += session.observe(1) is not None

        threads = [threading.Thread(target=agent, args=each, daemon=True) for each in enumerate(pool.sessions())]
        for thread in threads:
            thread.start()
            time.sleep(0.01)
        seconds = max(options.seconds * 3, 6)
        time.sleep(seconds + 2)
        stop.set()
        clocks = [clock for world in {session.world for session in pool.sessions()} for clock in world.paces.clocks()]
        late = (
            np.array([[clock.lateness(int(seconds * 25))[name] for name in ("p50", "p99", "max")] for clock in clocks])
            * 1e3
        )
        looked = min(done)
    return {
        "p50 ms": float(np.median(late[:, 0])), "p99 ms": float(late[:, 1].max()), "max ms": float(late[:, 2].max()),
        "decisions of each agent": looked,
    }  # fmt: skip


WHAT: dict[str, Callable[[Options], dict[str, float]]] = {
    "one VectorBridge": lambda options: throughput(options, together=True),
    "a bridge a session": lambda options: throughput(options, together=False),
    "the game alone, all rows": lambda options: alone(options, options.sessions),
    "the game alone, one row": lambda options: alone(options, 1),
    "played to the end": to_the_end,
    "reset": resets,
    "memory, one VectorBridge": lambda options: memory(options, together=True),
    "memory, a bridge a session": lambda options: memory(options, together=False),
    "25 Hz, one VectorBridge": lambda options: real_time(options, together=True),
    "25 Hz, a bridge a session": lambda options: real_time(options, together=False),
}


def measured(name: str, options: Options, sessions: int | None = None) -> dict[str, float]:
    """In a process of its own."""
    words = [sys.executable, __file__, "--only", name, "--game", options.game, "--workers", str(options.workers)]
    words += ["--sessions", str(sessions or options.sessions), *(["--quick"] if options.quick else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--game", default="samples.skirmish.bridge:Skirmish")
    parser.add_argument("--only", choices=list(WHAT))
    parser.add_argument("--json", type=Path, help="the file to write, for the table of docs/performance.md")
    options = parser.parse_args()
    options.seconds, options.resets = (2.0, 500) if options.quick else (10.0, 5000)
    if options.only:
        print(json.dumps(WHAT[options.only](options)))
        return
    print(f"{options.sessions} sessions of {options.game}, {options.workers} workers\n\n| what | figure |\n|---|---|")
    figures: dict[str, dict[str, float]] = {}
    for name in WHAT:
        found = measured(name, options)
        if name.startswith("memory"):
            found["MB above one session"] = found["MB"] - measured(name, options, sessions=1)["MB"]
        figures[name] = found
        shown = ", ".join(
            f"{key} {value:,.0f}" if value >= 100 else f"{key} {value:.2f}" for key, value in found.items()
        )
        print(f"| {name} | {shown} |", flush=True)
    if options.json:
        theirs = json.loads(options.json.read_text("utf-8"))["OpenRA-RL"] if options.json.exists() else {}
        held = {**measured_here("numpy"), "figures": figures, "OpenRA-RL": theirs}
        options.json.write_text(json.dumps(held, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
