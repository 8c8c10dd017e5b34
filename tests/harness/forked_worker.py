"""A worker of pytest-xdist that is forked from a WarmRoot, and so need not import torch and the like itself.

xdist starts this file instead of Python, with Python's own words behind it: it connects to the root, hands over its
standard streams, and waits until the process that the root forks has ended. POSIX only.
"""

from __future__ import annotations

import atexit
import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any


def python_of_workers(path: str) -> str:
    """The `python=` of an execnet specification whose workers are forked by the root that listens there."""
    # Neither site nor the environment: this process only hands over.
    return shlex.join([sys.executable, "-E", "-S", __file__, path])


def become_worker(client: socket.socket) -> Mapping[str, Any]:
    """Makes of this forked process what was asked for on the connection: its streams, folder, environment, words.

    Returns:
        What `warm_cli` is to run: the text behind `-c`.
    """
    _, streams, *_ = socket.recv_fds(client, 1, 3)
    with client.makefile("rb") as lines:
        asked: Mapping[str, Any] = json.loads(lines.readline())
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
        os.close(fd)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", 1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, closefd=False)  # noqa: SIM115
    take_surroundings(asked)
    sys.argv[:] = ["-c"]
    # Whoever waits is told, though a process that a test has left behind may hold the connection, too. Registered
    # before everything else is, so that it comes last.
    atexit.register(client.shutdown, socket.SHUT_RDWR)
    return asked


def take_surroundings(asked: Mapping[str, Any]) -> None:
    """The environment and the folder of whoever asked for this forked process."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["cwd"])


def _hand_over(path: str, words: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest and the worker
    asked = {"text": words[-1], "path": None, "cwd": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as root:
        root.connect(path)
        socket.send_fds(root, [b"\n"], [0, 1, 2])
        root.sendall(json.dumps(asked).encode() + b"\n")
        for stream in (0, 1):  # else pytest would never see that the worker has closed them
            os.close(stream)
        root.recv(1)


if __name__ == "__main__":
    _hand_over(sys.argv[1], sys.argv[2:])
