"""How long the one that is served waits for its answers while others crowd a server: 500 connections that say nothing,
500 that drip a byte at a time, and one that sends the largest messages it may.

python benchmarks/bench_crowd.py [--server bridge|policy|both] [--connections 500] [--seconds 4]

The server runs in a process of its own. The trainer (or engine) that is served steps once a millisecond, as a game
does, in this process; the crowd is a third process. Prints a markdown table of round trips as the served one sees
them. Where there are fewer idle cores than processes, the machine's own scheduling is in the numbers: compare with the
first row.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

HELLO = b"CONFIG:OBS=8;ACT=2\n"
ASK = b"OBS=0.1,-0.25,0.3331,0.5,-1.5,0.125,0.75,-0.0625\n"
LARGE = 4000  # envs of the engine that sends the largest messages


def serve_bridge(pipe: Any) -> None:
    import logging

    from ue_rl.bridges import VectorBridge, run_in_thread
    from ue_rl.protocol.spec import EnvSpec

    logging.disable(logging.CRITICAL)

    class Still(VectorBridge):
        def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
            self.outbox.obs[env_ids] = 0

        def step_envs(self, actions: Any, env_ids: Any) -> None:
            self.outbox.obs[env_ids] += 1

    with run_in_thread(Still(EnvSpec(8, 2, num_envs=1)), port=0) as engine:
        pipe.send(engine.port)
        pipe.recv()


def serve_policy(pipe: Any) -> None:
    import asyncio
    import logging

    from tests.harness.do_nothing import do_nothing_model
    from ue_rl.inference.server.server import PolicyServer

    logging.disable(logging.CRITICAL)

    async def main() -> None:
        policy: Any = SimpleNamespace(current=do_nothing_model(), poll=lambda: None)
        async with PolicyServer(policy, port=0) as server:
            pipe.send(server.port)
            while not pipe.poll():
                await asyncio.sleep(0.05)

    asyncio.run(main())


def crowd(port: int, count: int, kind: str, pipe: Any) -> None:
    """Connects, says it is there, and crowds until it is told to stop."""
    socks: list[socket.socket] = []

    def dial() -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", port))
        socks.append(sock)

    if kind == "large":
        dial()
        rows = b"||".join(b"OBS=1,1,1,1,1,1,1,1;ENV=%d" % env for env in range(2400))  # 64 KB
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"CONFIG:OBS=8;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=%d\n" % LARGE)
            pipe.send("there")
            with contextlib.suppress(OSError):
                while not pipe.poll():
                    sock.sendall(rows[:65_000].rpartition(b"||")[0] + b"\n")
                    while not sock.recv(1 << 20).endswith(b"\n"):
                        pass
                    time.sleep(0.02)
        return
    told, turn = False, 0
    while not pipe.poll():
        for _ in range(20):
            if len(socks) < count:
                dial()
        if len(socks) >= count and not told:
            pipe.send("there")
            told = True
        for at, sock in enumerate(socks):
            try:
                if kind == "drip":
                    sock.send(b"A" if at % 2 else b"\n")
                while sock.recv(4096):
                    pass
                raise ConnectionError
            except BlockingIOError:
                pass
            except OSError:  # sent away: comes again
                sock.close()
                if kind != "silent" and at % 10 == turn % 10:  # once a second
                    socks[at] = socket.socket()
                    socks[at].setblocking(False)
                    socks[at].connect_ex(("127.0.0.1", port))
        turn += 1
        time.sleep(0.1)


def step_bridge(sock: socket.socket) -> Callable[[], None]:
    stream = sock.makefile("rb")
    stream.readline()

    def ask(text: bytes) -> None:
        sock.sendall(text)
        stream.readline()

    ask(b"\nACT=RESET;ENV=0\n")
    return lambda: ask(b"ACT=0.5,0.5;ENV=0\n")


def step_policy(sock: socket.socket) -> Callable[[], None]:
    stream = sock.makefile("rb")
    sock.sendall(HELLO)

    def ask() -> None:
        sock.sendall(ASK)
        stream.readline()

    return ask


def measure(server: str, kind: str, count: int, seconds: float) -> list[float]:
    """Round trips in seconds."""
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    serving = context.Process(target=serve_bridge if server == "bridge" else serve_policy, args=(its,), daemon=True)
    serving.start()
    port = mine.recv()
    seen: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        step = (step_bridge if server == "bridge" else step_policy)(sock)
        pipe, end = context.Pipe()
        others = None
        if kind != "nobody":
            others = context.Process(target=crowd, args=(port, count, kind, end), daemon=True)
            others.start()
            while not pipe.poll():  # while they connect, too
                seen.append(timed(step))
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            seen.append(timed(step))
        if others is not None:
            pipe.send("stop")
            others.join()
    mine.send("stop")
    serving.join()
    return seen


def timed(step: Callable[[], None]) -> float:
    time.sleep(0.001)
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=("bridge", "policy", "both"), default="both")
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=4.0)
    given = parser.parse_args()
    print("| server | crowd | p50 us | p99 us | longest ms |\n|---|---|---|---|---|")
    for server in ("bridge", "policy") if given.server == "both" else (given.server,):
        for kind in ("nobody", "silent", "drip", *(("large",) if server == "policy" else ())):
            seen = np.array(measure(server, kind, given.connections, given.seconds)) * 1e6
            p50, p99, longest = *np.percentile(seen, [50, 99]), seen.max() / 1000
            print(f"| {server} | {kind} | {p50:,.0f} | {p99:,.0f} | {longest:.1f} |", flush=True)


if __name__ == "__main__":
    main()
