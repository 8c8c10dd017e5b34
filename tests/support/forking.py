"""A process that forks a child and is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.waiting import eventually

# The end of a script that has a `server`, sys, os and time: when a line comes it forks a child, which outlives it.
FORKS = """
print(server.url, flush=True)
sys.stdin.readline()
child = os.fork()
if not child:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    time.sleep(600)
    os._exit(0)
print(child, flush=True)
time.sleep(60)
"""


class Forking:
    """A process with a forked child."""

    def __init__(self, script: str, *words: str) -> None:
        command = [sys.executable, "-c", script, *words]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._child = 0

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def forked(self) -> None:
        """Waits for its child."""
        self._child = int(self.line())

    def fork(self) -> None:
        """Has it fork."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.forked()

    def kill(self) -> None:
        """The parent alone."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        if self._child:
            os.kill(self._child, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def forking() -> Iterator[Any]:
    made: list[Forking] = []

    def start(script: str, *words: str) -> Forking:
        made.append(Forking(script, *words))
        return made[-1]

    yield start
    for each in made:
        each.close()


def notices_over_http(game: Forking, page: str, slack: float) -> None:
    """A client of this page sees that the game is killed, and the port is free, though the game's child lives on."""
    port = int(game.line().removesuffix("/").rpartition(":")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=5 * slack) as client:
        client.sendall(f"GET /{page} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert b" 200" in client.recv(1000)[:13]
        game.fork()
        game.kill()
        while client.recv(1000):  # the rest, then the end
            pass
    # The child closes one after the other, and on a busy machine what listens may be the last.
    eventually(lambda: is_free(port), 3 * slack, f"port {port} is held by the child")


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
