"""Engines that are a few lines of Python, started without `site`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.connections.launching.standing_in import Dialled, python
from tests.support.waiting import eventually
from ue_rl.connections.engines.lifecycle import LifeState
from ue_rl.connections.launching.engine import LaunchedEngine
from ue_rl.system.errors import EngineDisconnected

# argv: a token that tells this test's processes from all others, the port
SERVES = """
import socket, sys, time, os
s = socket.create_server(("127.0.0.1", int(sys.argv[2])))
print("waiting on", sys.argv[2], flush=True)
c, _ = s.accept()
s.close()
c.sendall(b"hello\\n")
while c.recv(100):
    pass
time.sleep(60)
"""


QUIET = "\n".join(line for line in SERVES.splitlines() if not line.startswith("print"))
STARTED = [LifeState.LAUNCHING, LifeState.LOADING, LifeState.CONNECTING, LifeState.STREAMING]


def gone() -> EngineDisconnected:
    return EngineDisconnected("the engine closed the connection", fault="engine")


def engine_pid(token: str) -> int:
    """Of the engine itself: its keeper's command line has the token, too."""
    watching = [keeper.pid for keeper in keepers(token)]
    return next(p.pid for p in processes_with(token) if p.pid not in watching)


def processes_with(token: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            named = any(token in word for word in process.cmdline())
            if named and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != os.getpid()]


def lock_of(keeper: psutil.Process) -> Path:
    """The lock file of the port that a keeper's engine has."""
    words = keeper.cmdline()
    return Path(words[next(i for i, word in enumerate(words) if word.endswith("keeper.py")) + 4])


def keepers(token: str) -> list[psutil.Process]:
    return [p for p in processes_with(token) if any(word.endswith("keeper.py") for word in p.cmdline())]


@pytest.fixture
def token() -> Iterator[str]:
    """In the command line of all processes of a test; none is left at its end."""
    name = f"ue_rl_test_{uuid.uuid4().hex}"
    yield name
    try:
        eventually(lambda: not processes_with(name), 20.0)
    finally:
        for process in processes_with(name):
            process.kill()


@pytest.fixture
def make(token: str, tmp_path: Path) -> Iterator[Callable[..., LaunchedEngine]]:
    """make(code, open=Dialled, **arguments): an engine that is ended after the test."""
    made = []

    def engine(code: str = SERVES, *words: str, **options: Any) -> LaunchedEngine:
        arguments: dict[str, Any] = {
            "num_envs": 2, "seed": None, "engine": 0, "output": tmp_path / "engine-0.log", "open": Dialled,
            "start_timeout": 20.0,
            "last_words": 20.0,  # half a second may pass before a busy machine has ended an engine that was killed
            **options,
        }  # fmt: skip
        command = arguments.pop("command", None) or python(code, token, "{port}", *words)
        made.append(LaunchedEngine(command, **arguments))
        return made[-1]

    yield engine
    for one in made:
        one.close()
    while Dialled.kept:
        Dialled.kept.pop().close()
