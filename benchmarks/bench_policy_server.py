"""Latency of the policy server with 1, 16 and 64 engines that ask as fast as they are answered.

python benchmarks/bench_policy_server.py [--seconds 3]

The server runs in a process of its own; the engines are sockets of this one, served by one loop, each with one request
open at a time. Prints a markdown table: latency as an engine sees it (from send to answer).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np


class Engine(asyncio.Protocol):
    """Asks, waits, asks again."""

    def __init__(self, seen: list[float]) -> None:
        self._seen = seen
        self.running = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Says hello and asks."""
        self._transport = transport
        transport.write(b"CONFIG:OBS=8;ACT=2\n")
        self._ask()

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        self._transport.write(b"OBS=0.1,-0.25,0.3331,0.5,-1.5,0.125,0.75,-0.0625\n")

    def data_received(self, data: bytes) -> None:
        """Notes the latency and asks again."""
        self._seen.append(time.perf_counter() - self._asked)
        if self.running:
            self._ask()


async def measure(port: int, count: int, seconds: float) -> list[float]:
    """Latencies in seconds of `count` engines over `seconds`."""
    seen: list[float] = []
    loop = asyncio.get_running_loop()
    pairs = [await loop.create_connection(lambda: Engine(seen), "127.0.0.1", port) for _ in range(count)]
    await asyncio.sleep(0.5)
    seen.clear()
    await asyncio.sleep(seconds)
    for transport, engine in pairs:
        engine.running = False
        transport.close()
    return seen


def main() -> None:
    """Exports a 2x64 policy, serves it, measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds = parser.parse_args().seconds
    from stable_baselines3 import PPO

    from ue_rl.cli.do_nothing import DoNothing
    from ue_rl.inference import export_onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.onnx"
        export_onnx(PPO("MlpPolicy", DoNothing(), device="cpu"), path)
        command = [sys.executable, "-m", "ue_rl", "policy-server", str(path), "--port", "0", "--every", "1000"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            found = re.search(r"127\.0\.0\.1:(\d+)", server.stdout.readline())
            assert found is not None
            print("| engines | p50 us | p99 us | actions/s |\n|---|---|---|---|")
            for count in (1, 16, 64):
                seen = asyncio.run(measure(int(found.group(1)), count, seconds))
                p50, p99 = np.percentile(seen, [50, 99]) * 1e6
                print(f"| {count} | {p50:,.0f} | {p99:,.0f} | {len(seen) / seconds:,.0f} |", flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
