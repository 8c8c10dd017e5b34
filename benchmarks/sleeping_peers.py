"""What a peer meets whose other side is busy or asleep, on every carrier: the table of benchmarks/README.md.

    python benchmarks/sleeping_peers.py --json benchmarks/sleeping_peers.json      # all: about 20 minutes
    python benchmarks/sleeping_peers.py --only "engine stopped, tcp" --seconds 25  # single cells
    python benchmarks/sleeping_peers.py --table benchmarks/sleeping_peers.json     # the table of a file

Of each kind of sleep and each length one engine's process serves all carriers, and one trainer's process has a thread
for each; all kinds and lengths sleep at once. A trainer steps a game that counts its steps, once a second, with the
timeouts that it has by default. Then one side sleeps:

- engine blocked: the game's thread sleeps within a step (as at a breakpoint of the game's own debugger)
- trainer blocked: the trainer's thread sleeps between two steps
- engine stopped, trainer stopped: SIGSTOP of the process (as by a debugger that holds all threads)
- both stopped: SIGSTOP of both in the middle of a step, and SIGCONT of the trainer first (as a lid)
- tab hidden, tab frozen, page paused: the game is a page in headless Chromium, whose tab is behind another one; is
  frozen there by the browser, as one that saves energy does (Page.setWebLifecycleState); stands in its debugger
  (Debugger.pause). One kind after the other, since each tab has a browser of its own.

A cell says whether the steps went on with the right numbers, or what the trainer was told and after how many seconds,
and then whether a new trainer was served. It needs Linux, Node 20 or later for the page, and Chromium for the tabs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import functools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ue_rl
from ue_rl.bridges import ShmUpgrader, VectorBridge, run_in_thread, run_shm_in_thread
from ue_rl.plugins.sessions import grpc, mcp, openenv
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.protocol.spec import Channel, EnvSpec

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.plugins.web.devtools import DevTools, watched  # noqa: E402
from tests.plugins.web.pages import CHROMIUM  # noqa: E402

SECONDS = (1, 10, 25, 60, 200)
WAYS = ("engine blocked", "trainer blocked", "engine stopped", "trainer stopped", "both stopped")
TABS = ("tab hidden", "tab frozen", "page paused")
CARRIERS = ("tcp shared", "tcp per-env", "shm by name", "shm upgraded", "grpc", "page", "openenv", "mcp")
BLOCKED_STEP = 10  # the step in which a game or a trainer blocks; sleeping_page.mjs has it too
PAUSE = 1.0  # seconds between two steps
AFTER = 10.0  # seconds of stepping behind a sleep
START = 120.0  # seconds within which all have begun


class Count(VectorBridge):
    """Shows how many steps its episode has had; blocks in one of them."""

    blocked_for = 0.0

    def __init__(self, num_envs: int = 1) -> None:
        super().__init__(EnvSpec(obs_size=3, act_size=2, num_envs=num_envs, channel=Channel.ANY))

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        """Counts anew."""
        self.outbox.obs[env_ids] = 0

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        """Counts."""
        self.outbox.obs[env_ids, 0] += 1
        if (self.outbox.obs[env_ids, 0] == BLOCKED_STEP).any():
            time.sleep(self.blocked_for)


# -- the engine's process


def serve_all(carriers: list[str], blocked_for: float, told: Path, page: str) -> None:
    """All carriers until this process is killed; writes carrier -> address into `told`."""
    Count.blocked_for = blocked_for
    stack = contextlib.ExitStack()
    urls: dict[str, str] = {}
    for name in carriers:
        if name == "tcp shared":
            urls[name] = stack.enter_context(run_in_thread(Count())).url + "?channel=shared&transport=tcp"
        elif name == "tcp per-env":
            urls[name] = stack.enter_context(run_in_thread(Count())).url + "?channel=per-env&transport=tcp"
        elif name == "shm upgraded":
            url = stack.enter_context(run_in_thread(Count(), upgrader=ShmUpgrader())).url
            urls[name] = url + "?transport=shm"
        elif name == "shm by name":
            stack.enter_context(run_shm_in_thread(Count(), name=f"sleeping-{os.getpid()}"))
            urls[name] = f"shm://sleeping-{os.getpid()}"
        elif name == "page":
            urls[name] = page
        else:
            pool = stack.enter_context(SessionPool(Count, max_sessions=2, workers=2))
            served = {"grpc": grpc, "openenv": openenv, "mcp": mcp}[name].serve(pool)
            url = stack.enter_context(served).url
            urls[name] = url
            if name == "grpc":
                urls[name] = f"grpc://{url.split('://')[-1]}?num-envs=1"
    told.with_suffix(".part").write_text(json.dumps(urls))
    told.with_suffix(".part").rename(told)
    while True:
        signal.pause()


# -- the trainer's process


Step = Callable[[], float]


@contextlib.contextmanager
def vec_env(url: str) -> Iterator[Step]:
    """ue_rl.connect."""
    env = ue_rl.connect(url)
    env.reset()
    try:
        yield lambda: float(env.step(np.zeros((1, 2), np.float32))[0][0, 0])
    finally:
        env.close()


@contextlib.contextmanager
def openenv_client(url: str) -> Iterator[Step]:
    """The package websockets, with its own pings, in a thread of its own."""
    from websockets.sync.client import connect

    def first(socket: Any, message: dict[str, Any]) -> float:
        socket.send(json.dumps(message))
        answer = json.loads(socket.recv())
        if answer["type"] != "observation":
            raise RuntimeError(json.dumps(answer))
        return float(np.ravel(answer["data"]["observation"]["observation"])[0])

    with connect(url.replace("http", "ws", 1) + "/ws") as socket:
        first(socket, {"type": "reset", "data": {}})
        yield lambda: first(socket, {"type": "step", "data": {"action": [0.0, 0.0]}})


@contextlib.contextmanager
def mcp_agent(url: str) -> Iterator[Step]:
    """The client of the package mcp, in an event loop of this thread."""
    from tests.plugins.sessions.talking import mcp_client

    with asyncio.Runner() as runner:
        # Each call is a task of its own, in which the package's task groups cannot be closed: it says so when it ends.
        runner.get_loop().set_exception_handler(lambda loop, context: None)
        client = mcp_client(url)
        call = runner.run(client.__aenter__())
        runner.run(call("reset", {}))

        def step() -> float:
            seen = runner.run(call("step", {"action": [0.0, 0.0]}))
            return float(np.ravel(seen["observation"])[0])

        yield step


def trained(name: str, url: str, blocks: float, ready: Path, over: Path) -> dict[str, Any]:
    """A cell: steps until the file `over` is there; makes the file `ready` before the step in which it may block."""
    opened = {"openenv": openenv_client, "mcp": mcp_agent}.get(name, vec_env)
    longest = 0.0
    steps = 0
    begun = time.monotonic()
    try:
        with opened(url) as step:
            while not over.exists():
                steps += 1
                if steps == BLOCKED_STEP:
                    ready.touch()
                    time.sleep(blocks)
                begun = time.monotonic()
                seen = step()
                longest = max(longest, time.monotonic() - begun)
                if seen != steps:
                    return {"end": "wrong", "steps": steps, "seen": seen}
                time.sleep(PAUSE)
    except Exception as error:  # noqa: BLE001 whatever it is, is what the table is about
        waited = time.monotonic() - begun
        while not over.exists():
            time.sleep(0.2)
        return {
            "end": type(error).__name__, "text": str(error)[:400], "after": round(waited, 1), "steps": steps,
            "again": again(opened, url),
        }  # fmt: skip
    if steps <= BLOCKED_STEP:  # nobody slept in its run, or it had no step since
        return {"end": "not begun in time", "steps": steps}
    return {"end": "went on", "steps": steps, "longest": round(longest, 1)}


def again(opened: Any, url: str) -> str:
    """Whether a new trainer is served now."""
    try:
        with opened(url) as step:
            return "served" if step() == 1 else "wrong"
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"[:300]


def train_all(carriers: list[str], blocks: float, told: Path) -> None:
    """All of them, a thread each; writes carrier -> cell."""
    urls = json.loads(told.read_text())
    over = told.with_suffix(".over")
    cells: dict[str, Any] = {}

    def one(name: str) -> None:
        cells[name] = trained(name, urls[name], blocks, ready_of(told, name), over)

    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in carriers]
    for thread in threads:
        thread.start()
    while not over.exists():
        time.sleep(0.2)
    last = time.monotonic() + 45
    for thread in threads:
        thread.join(max(1.0, last - time.monotonic()))
    for name in carriers:
        cells.setdefault(name, {"end": "did not come back"})
    told.with_suffix(".cells").write_text(json.dumps(cells))


def ready_of(told: Path, carrier: str) -> Path:
    """The file that says that a trainer steps."""
    return told.with_suffix(f".{carrier.replace(' ', '-')}")


# -- all together


def forked(work: Callable[[], None]) -> int:
    """The process that does it."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def group(way: str, seconds: float, carriers: list[str], folder: Path) -> dict[str, Any]:
    """The cells of one kind of sleep and one length; in a process of its own."""
    told = folder / f"{way}-{seconds:g}.urls".replace(" ", "-")
    page = free_port()
    address = f"page://127.0.0.1:{page}"
    if way in TABS:
        address += f"?serve={folder_of_page(folder)}"
    blocked_for = seconds if way == "engine blocked" else 0.0
    blocks = seconds if way == "trainer blocked" else 0.0
    engines = [forked(lambda: serve_all(carriers, blocked_for, told, address))]
    if "page" in carriers and way not in TABS:
        words = ["node", "--no-warnings", "--experimental-websocket", str(HERE / "sleeping_page.mjs")]
        words += [f"ws://127.0.0.1:{page}", f"{blocked_for:g}"]
        node = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        engines.append(node.pid)
    while not told.exists():
        time.sleep(0.2)
    trainer = forked(lambda: train_all(carriers, blocks, told))
    browser = contextlib.ExitStack()
    tab = None
    if way in TABS:
        tab = Tab(browser.enter_context(watched(f"http://127.0.0.1:{page}/")))
    end = time.monotonic() + START
    while not all(ready_of(told, name).exists() for name in carriers):
        if time.monotonic() > end:
            print(f"{way}, {seconds:g} s: not all trainers had begun after {START:g} s", file=sys.stderr)
            break
        time.sleep(0.2)
    time.sleep(2 * PAUSE)  # those that block do so now
    if way in ("engine stopped", "both stopped"):
        for engine in engines:
            os.kill(engine, signal.SIGSTOP)
        time.sleep(2 * PAUSE if way == "both stopped" else 0)  # so that all trainers wait within a step
    if way in ("trainer stopped", "both stopped"):
        os.kill(trainer, signal.SIGSTOP)
    if tab is not None:
        tab.sleep(way)
    time.sleep(seconds)
    if tab is not None:
        tab.wake(way)
    os.kill(trainer, signal.SIGCONT)
    if way == "both stopped":
        time.sleep(0.05)
    for engine in engines:
        os.kill(engine, signal.SIGCONT)
    time.sleep(AFTER)
    told.with_suffix(".over").touch()
    os.waitpid(trainer, 0)
    browser.close()
    for engine in engines:
        os.kill(engine, signal.SIGKILL)
        os.waitpid(engine, 0)
    cells: dict[str, Any] = json.loads(told.with_suffix(".cells").read_text())
    return cells


def write_group(way: str, seconds: float, carriers: list[str], out: Path) -> None:
    """The same, into a file."""
    out.write_text(json.dumps(group(way, seconds, carriers, out.parent)))


def folder_of_page(folder: Path) -> Path:
    """The game of sleeping_page.mjs as a page; module addresses are those of the repository."""
    page = folder / "page"
    (page / "samples" / "web").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE.parent / "samples" / "web" / "ue_rl.js", page / "samples" / "web")
    shutil.copy(HERE / "sleeping_page.mjs", page)
    (page / "index.html").write_text('<!doctype html><script type="module" src="sleeping_page.mjs"></script>')
    return page


class Tab:
    """A page in Chromium that is sent to sleep, and woken."""

    def __init__(self, tools: DevTools) -> None:
        self._tools = tools
        self._id = tools.target()

    def sleep(self, way: str) -> None:
        """Behind another tab, frozen there, or in the debugger."""
        if way == "page paused":
            self._tools.of(self._id, "Debugger.enable")
            self._tools.of(self._id, "Debugger.pause")
            return
        self._tools.browser("Target.createTarget", url="about:blank")
        until = time.monotonic() + 10
        while self._visibility() != "hidden":
            if time.monotonic() > until:
                raise RuntimeError("the tab is still seen")
            time.sleep(0.1)
        if way == "tab frozen":
            self._tools.of(self._id, "Page.setWebLifecycleState", state="frozen")

    def wake(self, way: str) -> None:
        """As it was."""
        if way == "page paused":
            self._tools.of(self._id, "Debugger.resume")
            return
        if self._visibility() != "hidden":
            raise RuntimeError("the tab was seen meanwhile")
        if way == "tab frozen":
            self._tools.of(self._id, "Page.setWebLifecycleState", state="active")
        self._tools.browser("Target.activateTarget", targetId=self._id)

    def _visibility(self) -> str:
        said = self._tools.of(self._id, "Runtime.evaluate", expression="document.visibilityState")
        return str(said["result"]["value"])


def free_port() -> int:
    """One that nobody listens on now."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def shown(cell: dict[str, Any] | None) -> str:
    """A cell as text."""
    if cell is None:
        return "not run"
    if cell["end"] == "went on":
        return "goes on"
    if "after" not in cell:
        return f"**{cell['end']}**"
    text = f"{cell['end']} after {cell['after']:.0f} s"
    if cell["again"] != "served":
        text += f", then {cell['again'].split(':')[0]}"
    return text


def table(held: dict[str, Any]) -> list[str]:
    """The table in Markdown."""
    columns = sorted({float(one) for row in held["cells"].values() for one in row})
    lines = [f"| who sleeps, carrier | {' | '.join(f'{one:g} s' for one in columns)} |"]
    lines.append(f"|---|{'---|' * len(columns)}")
    for name, row in held["cells"].items():
        lines.append(f"| {name} | {' | '.join(shown(row.get(f'{one:g}')) for one in columns)} |")
    return lines


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        metavar="ROW",
        help='rows that begin so: "engine stopped, grpc"',
    )
    parser.add_argument("--seconds", nargs="+", type=float, default=list(SECONDS))
    parser.add_argument("--json", type=Path, help="the file to write; rows that it holds already are kept")
    parser.add_argument("--table", type=Path, help="print the table of this file, and run nothing")
    given = parser.parse_args()
    if given.table:
        print(*table(json.loads(given.table.read_text())), sep="\n")
        return
    warnings.simplefilter("ignore")
    every = [(way, name) for way in WAYS for name in CARRIERS] + [(way, "page") for way in TABS]
    chosen = [(way, name) for way, name in every if f"{way}, {name}".startswith(tuple(given.only))]
    node = shutil.which("node")
    if node is None:
        print("NOT RUN: page, which needs Node", file=sys.stderr)
        chosen = [(way, name) for way, name in chosen if name != "page" or way in TABS]
    if CHROMIUM is None:
        print("NOT RUN: tabs, which need Chromium", file=sys.stderr)
        chosen = [(way, name) for way, name in chosen if way not in TABS]
    held: dict[str, Any] = {"cells": {}}
    if given.json and given.json.exists():
        held = json.loads(given.json.read_text())
    held["date"] = datetime.date.today().isoformat()
    held["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    held["versions"] = {"ue_rl": ue_rl.__version__, "Python": platform.python_version()}
    if node:
        held["versions"]["Node"] = subprocess.check_output([node, "--version"], text=True).strip()
    if CHROMIUM is not None:
        said = subprocess.check_output([CHROMIUM, "--version"], text=True, stderr=subprocess.DEVNULL)
        held["versions"]["Chromium"] = next(word for word in said.split() if word[0].isdigit())
    for package in ("grpcio", "websockets", "mcp"):
        held["versions"][package] = __import__("importlib.metadata").metadata.version(package)
    # Children of a process without threads: a browser's tools have some.
    with tempfile.TemporaryDirectory() as folder:
        for batch in (WAYS, *((way,) for way in TABS)):
            running: list[tuple[str, float, Path, int]] = []
            for way in batch:
                carriers = [name for one, name in chosen if one == way]
                for seconds in given.seconds if carriers else ():
                    out = Path(folder) / f"{way}-{seconds:g}.json"
                    work = functools.partial(write_group, way, seconds, carriers, out)
                    running.append((way, seconds, out, forked(work)))
            for way, seconds, out, child in running:
                os.waitpid(child, 0)
                for name, cell in json.loads(out.read_text()).items():
                    held["cells"].setdefault(f"{way}, {name}", {})[f"{seconds:g}"] = cell
    order = [f"{way}, {name}" for way, name in every]
    held["cells"] = {name: held["cells"][name] for name in order if name in held["cells"]}
    print(*table(held), sep="\n")
    if given.json:
        given.json.write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    main()
