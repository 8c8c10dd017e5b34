"""Spoilt messages to each carrier of sessions: is each answered in order, does nothing grow, are others served?

    python benchmarks/fuzz_sessions.py [--messages 100000] [--carriers grpc openenv mcp] [--seed 0]

The server is a process of its own, `ue-rl sessions`. Prints its memory, threads and descriptors after a tenth of the
messages and at the end.
"""

from __future__ import annotations

import argparse
import logging
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.plugins.sessions.fuzzing import TARGETS


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--carriers", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for carrier in given.carriers:
        fuzz(carrier, given.messages, given.seed)


def fuzz(carrier: str, messages: int, seed: int) -> None:
    """One carrier; raises where a message is not answered in order."""
    command = [sys.executable, "-m", "ue_rl", "sessions", "tests.plugins.sessions.game:Drift", f"--{carrier}", "0"]
    command += ["--max-sessions", "8"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True) as server, ExitStack() as end:
        end.callback(server.terminate)  # an error, too, must not wait for the server
        assert server.stdout is not None
        server.stdout.readline()
        target = TARGETS[carrier](server.stdout.readline().split(maxsplit=1)[1].strip())
        rng, process, begun = random.Random(seed), psutil.Process(server.pid), time.monotonic()
        for number in range(1, messages + 1):
            target.send(rng)
            if number in (messages // 10, messages):
                seconds = time.monotonic() - begun
                print(
                    f"{carrier}: {number} messages in {seconds:.0f} s, {process.memory_info().rss / 2**20:.1f} MiB, "
                    f"{process.num_threads()} threads, {process.num_fds()} descriptors", flush=True,
                )  # fmt: skip
        target.close()


if __name__ == "__main__":
    main()
