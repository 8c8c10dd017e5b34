"""Minds that block their thread, over every carrier and in three languages: what they see then, and whether they stay.

    python benchmarks/blocked_minds.py                       # blocks of 0.06 and 0.5 s: half a minute
    python benchmarks/blocked_minds.py --seconds 0.06 0.5 25 90 --node-modules FOLDER

A game ticks 20 times a second. Each mind takes what is seen, blocks its thread without giving way to its event loop,
and acts; all of them play at once, in processes of their own. A row says how many of its turns it had, how old
what it saw was at most (a tick of the game says when it was made), how many observations it was told that it had
missed, and how it ended.

Minds in JavaScript need the packages @grpc/grpc-js, @grpc/proto-loader and ws in `FOLDER/node_modules`; those in C++ a
compiler (g++). What is not there is left out, and said.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
RATE = 20.0  # ticks a second


def said(info: dict[str, Any], dropped: int) -> None:
    """A turn, for who reads this process's output."""
    made = info.get("made")  # not of a reset
    age = 0.0 if made is None else time.time() - made
    print(json.dumps({"age": age, "dropped": dropped}), flush=True)


# -- minds in Python: each a process


async def grpc_mind(url: str, seconds: float, turns: int) -> None:
    """SessionClient, as on the page."""
    from ue_rl.plugins.sessions.grpc.client import SessionClient

    async with SessionClient(url, tick_rate=RATE) as client:
        async for seen in client.play():
            said(json.loads(seen.info_json or "{}"), seen.dropped_observations)
            turns -= 1
            if not turns:
                return
            time.sleep(seconds)
            await client.act([0.0, 0.0])


async def websocket_mind(url: str, seconds: float, turns: int) -> None:
    """A WebSocket as OpenEnv's clients open it: the package websockets with its own pings."""
    from websockets.asyncio.client import connect

    async with connect(url.replace("http", "ws", 1) + "/ws") as socket:

        async def ask(message: dict[str, Any]) -> None:
            await socket.send(json.dumps(message))
            answer = json.loads(await socket.recv())
            assert answer["type"] == "observation", answer
            info = answer["data"]["observation"]["info"]
            said(info, info["dropped_observations"])

        await ask({"type": "reset", "data": {}})
        for _ in range(turns - 1):
            time.sleep(seconds)
            await ask({"type": "step", "data": {"action": [0.0, 0.0]}})


async def mcp_mind(url: str, seconds: float, turns: int) -> None:
    """The client of the package mcp."""
    sys.path.insert(0, str(HERE.parent))
    from tests.plugins.sessions.talking import mcp_client

    async with mcp_client(url) as call:
        seen = await call("reset", {})
        for _ in range(turns):
            seen = await call("step", {"action": [0.0, 0.0]})
            said(seen["info"], seen["dropped_observations"])
            time.sleep(seconds)


async def text_mind(url: str, seconds: float, turns: int) -> None:
    """RealTimeEnv."""
    import numpy as np

    from ue_rl import RealTimeEnv

    env = RealTimeEnv(url)
    env.reset()
    for _ in range(turns):
        info = env.step(np.zeros(2, np.float32))[4]
        said(info, info["dropped_observations"])
        time.sleep(seconds)
    env.close()


MINDS: dict[str, Callable[[str, float, int], Any]] = {
    "grpc": grpc_mind, "websocket": websocket_mind, "mcp": mcp_mind, "text": text_mind,
}  # fmt: skip


# -- the game


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[dict[str, Callable[[], str]]]:
    """carrier -> what gives an address for one more mind."""
    sys.path.insert(0, str(HERE.parent))
    from tests.plugins.sessions.game import Endless
    from ue_rl.plugins.sessions import grpc, mcp, openenv
    from ue_rl.plugins.sessions.realtime import SessionPool
    from ue_rl.plugins.sessions.realtime.engine import serve as serve_engine

    class Dated(Endless):
        """Says when it made what is seen."""

        def step_envs(self, actions: Any, env_ids: Any) -> None:
            super().step_envs(actions, env_ids)
            for env in env_ids.tolist():
                self.write_info(env, {"made": time.time()})

    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(SessionPool(Dated, max_sessions=64, tick_rate=RATE))
        urls = {
            name: stack.enter_context(carrier.serve(pool)).url
            for name, carrier in (("grpc", grpc), ("websocket", openenv), ("mcp", mcp))
        }

        def engine() -> str:
            own = stack.enter_context(SessionPool(Dated, max_sessions=1, workers=1, tick_rate=RATE))
            return stack.enter_context(serve_engine(own, "127.0.0.1", 0)).url

        yield {**{name: lambda url=url: url for name, url in urls.items()}, "text": engine}  # type: ignore[misc]


class Kind(NamedTuple):
    """A kind of mind. `command`: without address, seconds and turns."""

    language: str
    carrier: str
    way: str
    command: list[str]


def kinds(node_modules: Path | None, folder: Path) -> Iterator[Kind]:
    """Those that this machine can run."""
    for name in MINDS:
        yield Kind("Python", name, "", [sys.executable, str(HERE / "blocked_minds.py"), "--mind", name])
    node = shutil.which("node")
    if node is None or node_modules is None:
        print("no minds in JavaScript: they need node, and --node-modules")
    else:
        shutil.copy(HERE.parent / "ue_rl" / "plugins" / "sessions" / "sessions.proto", folder)
        shutil.copy(HERE / "blocked_minds.js", folder)
        (folder / "node_modules").symlink_to((node_modules / "node_modules").resolve())
        for carrier, way in (("grpc", "asked"), ("grpc", "each"), ("websocket", "")):
            yield Kind("Node", carrier, way, [node, str(folder / "blocked_minds.js"), carrier, way])
    compiler = shutil.which("g++")
    if compiler is None:
        print("no mind in C++: it needs g++")
    else:
        program = folder / "blocked_minds"
        subprocess.run([compiler, "-O1", "-o", str(program), str(HERE / "blocked_minds.cpp")], check=True)
        yield Kind("C++", "text", "", [str(program)])


async def measured(kind: Kind, url: str, seconds: float, turns: int) -> str:
    """A row of the table."""
    process = await asyncio.create_subprocess_exec(
        *kind.command, url, str(seconds), str(turns), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    seen = [json.loads(line) for line in out.decode().splitlines()]
    oldest = max((turn["age"] for turn in seen), default=0.0)
    dropped = seen[-1]["dropped"] - seen[0]["dropped"] if seen else 0
    ended = "stayed"
    if process.returncode or len(seen) < turns:
        ended = (err.decode().strip().splitlines() or [f"exit code {process.returncode}"])[-1][:80]
    carrier = f"{kind.carrier} {kind.way}".strip()
    return (
        f"| {kind.language} | {carrier} | {seconds:g} | {len(seen)} of {turns} | {oldest:.3f} | {dropped} | {ended} |"
    )


def main() -> None:
    """See the module's docstring; exit code 1: somebody was sent away."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", nargs="+", type=float, default=[0.06, 0.5])
    parser.add_argument("--node-modules", type=Path, metavar="FOLDER")
    parser.add_argument("--only", default="", help="kinds whose name has this in it, such as grpc or Node")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        every = list(kinds(given.node_modules, Path(folder)))
        chosen = [kind for kind in every if given.only in f"{kind.language} {kind.carrier}"]
        rows = asyncio.run(table(chosen, given.seconds))
    sys.exit(any(not row.endswith(" stayed |") for row in rows))


async def table(chosen: list[Kind], blocks: list[float]) -> list[str]:
    """Its rows, each printed once it is there: first the minds that block for a moment, then the others."""
    print("| language | carrier | blocks for (s) | turns | oldest (s) | missed | end |")
    print("|---|---|---|---|---|---|---|")
    rows: list[str] = []
    async with served() as addresses:
        for turns, group in ((10, [each for each in blocks if each < 5]), (3, [each for each in blocks if each >= 5])):
            under_way = [
                measured(kind, addresses[kind.carrier](), seconds, turns) for seconds in group for kind in chosen
            ]
            for row in asyncio.as_completed(under_way):
                rows.append(await row)
                print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--mind"]:
        name, where, block, count = sys.argv[2:]
        asyncio.run(MINDS[name](where, float(block), int(count)))
    else:
        main()
