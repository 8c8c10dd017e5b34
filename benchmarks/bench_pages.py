"""A step of a page, in text and in binary form, beside one of the same game in Node over TCP; prints a markdown table.

    python benchmarks/bench_pages.py [--quick] [--sizes 16x4,256x64] [--json FILE]

The same game (pages_game.mjs) runs in Node over TCP, in Node over a WebSocket, and in headless Chromium, the last two
in text and in binary. All are connected at once, and in each round take steps one after the other, the order reversed
from round to round. `us` is the median of the rounds' time a step as a clock has it, `CPU` that of the trainer's
process, with all its threads and its spinning. In brackets stand the medians of the rounds' ratios to Node over TCP,
and `form` is that of binary to text. A game whose steps take 0.5 ms shows what a trainer uses that sleeps meanwhile, as
it does for a browser: it is woken up by the system, and finds its caches cold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.plugins.web.pages import CHROMIUM, NODE, chromium, free_port, node  # noqa: E402
from ue_rl.connections.base.base import BaseTransport  # noqa: E402
from ue_rl.connections.dialling import open_transport  # noqa: E402

REFERENCE = "Node, TCP"
# Runtime, carrier, form, and the milliseconds that a step takes at least.
PEERS = {
    REFERENCE: ("node", "tcp", "text", "0"),
    "Node, TCP, 0.5 ms": ("node", "tcp", "text", "0.5"),
    "Node, text": ("node", "page", "text", "0"),
    "Node, binary": ("node", "page", "binary", "0"),
    "Chromium, text": ("chromium", "page", "text", "0"),
    "Chromium, binary": ("chromium", "page", "binary", "0"),
}
INDEX = """<!doctype html><title>bench_pages.py</title><script type="module">
import { begin } from "./pages_game.mjs";
await begin(null, ...new URLSearchParams(location.search).getAll("word"));
</script>"""
WAIT = 60.0  # seconds for a program to start


def folder_of_page(folder: Path) -> None:
    """The page, its game and ue_rl.js."""
    (folder / "index.html").write_text(INDEX, "utf-8")
    shutil.copy(ROOT / "benchmarks" / "pages_game.mjs", folder)
    shutil.copy(ROOT / "samples" / "web" / "ue_rl.js", folder)


def opened(stack: ExitStack, folder: Path, peer: tuple[str, str, str, str], envs: int, numbers: int) -> BaseTransport:
    """A game that runs, and the trainer's end of its connection."""
    runtime, carrier, *rest = peer
    port = free_port()
    words = (str(envs), str(numbers), *rest)
    address = f"{carrier}://127.0.0.1:{port}"
    if runtime == "chromium":
        query = "&".join(f"word={word}" for word in words)
        address += f"?serve={folder}"
        stack.enter_context(chromium(f"http://127.0.0.1:{port}/index.html?{query}"))
    elif carrier == "page":
        stack.enter_context(node(folder / "pages_game.mjs", f"ws://127.0.0.1:{port}", *words))
    else:
        stack.enter_context(node(folder / "pages_game.mjs", str(port), *words))
    return stack.enter_context(open_transport(address, wait=WAIT))


def steps(transport: BaseTransport, actions: np.ndarray[Any, Any], seconds: float) -> tuple[float, float]:
    """Microseconds a step, by the clock and of this process."""
    for _ in range(5):  # caches are another game's
        transport.send_actions(actions[0])
        transport.receive()
    count = 0
    began = time.perf_counter()
    used = time.process_time()
    while count < 20 or time.perf_counter() - began < seconds:
        transport.send_actions(actions[count % len(actions)])
        transport.receive()
        count += 1
    used = time.process_time() - used
    return (time.perf_counter() - began) / count * 1e6, used / count * 1e6


def measured(envs: int, numbers: int, rounds: int, seconds: float) -> dict[str, list[tuple[float, float]]]:
    """For each peer of its rounds: microseconds by the clock, and of the trainer's CPU."""
    missing = {"node": NODE is None, "chromium": CHROMIUM is None}
    actions = np.random.default_rng(1).uniform(-1, 1, (64, envs, 2)).astype(np.float32)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder_of_page(folder)
        transports = {}
        for name, peer in PEERS.items():
            if not missing[peer[0]]:
                transports[name] = opened(stack, folder, peer, envs, numbers)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in transports}
        for transport in transports.values():
            transport.reset()
            transport.receive()
            steps(transport, actions, seconds)  # the page's code becomes machine code
        order = [*transports]
        for _ in range(rounds):
            for name in order:
                found[name].append(steps(transports[name], actions, seconds))
            order.reverse()
    return found


def ratio(found: dict[str, list[tuple[float, float]]], name: str, to: str, column: int) -> float:
    """The median of the rounds' ratios."""
    pairs = zip(found[name], found[to], strict=True)
    return statistics.median(mine[column] / theirs[column] for mine, theirs in pairs)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 short rounds")
    parser.add_argument("--sizes", default="16x4,256x64", help="envs x numbers of an observation")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    given = parser.parse_args()
    rounds = 25
    seconds = 0.25
    if given.quick:
        rounds = 3
        seconds = 0.1
    told: dict[str, Any] = {"rounds": rounds, "load": os.getloadavg()[0], "sizes": {}}
    print("| envs x numbers | peer | us | CPU | form |\n|---|---|---|---|---|")
    for size in given.sizes.split(","):
        envs, numbers = map(int, size.split("x"))
        found = measured(envs, numbers, rounds, seconds)
        told["sizes"][size] = {}
        for name, each in found.items():
            clock, used = (statistics.median(column) for column in zip(*each, strict=True))
            row: dict[str, Any] = {
                "us": round(clock, 1),
                "cpu_us": round(used, 1),
                "to_tcp": round(ratio(found, name, REFERENCE, 0), 2),
                "cpu_to_tcp": round(ratio(found, name, REFERENCE, 1), 2),
            }
            form = ""
            if name.endswith("binary"):
                text = name.replace("binary", "text")
                row |= {"to_text": round(ratio(found, name, text, 0), 2)}
                row |= {"cpu_to_text": round(ratio(found, name, text, 1), 2)}
                form = f"{row['to_text']}, CPU {row['cpu_to_text']}"
            told["sizes"][size][name] = row
            print(
                f"| {size} | {name} | {row['us']} ({row['to_tcp']}) | {row['cpu_us']} ({row['cpu_to_tcp']}) | {form} |"
            )
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
