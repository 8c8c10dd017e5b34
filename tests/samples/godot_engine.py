"""A Godot process for the tests: samples/godot, or a script of its own, over TCP on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ue_rl
from ue_rl.connections.launching import ports
from ue_rl.devtools import check as compliance
from ue_rl.devtools.check.checks import CHECKS

GODOT = shutil.which("godot3-server")
PROJECT = Path(__file__).resolve().parents[2] / "samples" / "godot"
PROBE = Path(__file__).resolve().parent / "godot_probe.gd"

needs_godot = pytest.mark.skipif(GODOT is None, reason="godot3-server is not installed")


@dataclass
class Engine:
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def connect(self, channel: str = "auto", **options: Any) -> ue_rl.UnrealVecEnv:
        return ue_rl.connect(f"tcp://127.0.0.1:{self.port}", channel=channel, timeout=10, wait=10, **options)

    def dial(self) -> socket.socket:
        """A bare socket that has read the handshake."""
        end = time.monotonic() + 10
        while True:
            try:
                sock = socket.create_connection(("127.0.0.1", self.port), timeout=10)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < end, self.log.read_text()
        assert read_line(sock).startswith("CONFIG:OBS=")
        return sock

    def ask(self, sock: socket.socket, line: str) -> str:
        sock.sendall(f"{line}\n".encode())
        return read_line(sock).rstrip("\n")


def read_line(sock: socket.socket) -> str:
    data = b""
    while not data.endswith(b"\n"):
        chunk = sock.recv(65536)
        if not chunk:
            return data.decode()
        data += chunk
    return data.decode()


def godot_environment(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home), "LANG": "en_US"}


@contextlib.contextmanager
def running(home: Path, *words: str, num_envs: int = 4, fixed_fps: bool = True) -> Iterator[Engine]:
    """The samples' project, on a port that nobody else of these tests takes, nor an outgoing connection.

    Args:
        words: more options, such as --task=catcher. fixed_fps: ticks come as fast as they can.
    """
    free = ports.find()
    port = free.number
    log = home / f"godot-{port}.log"
    command = [str(GODOT), "--path", str(PROJECT), *words, f"--port={port}", f"--envs={num_envs}"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command + ["--fixed-fps", "60"] * fixed_fps,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=godot_environment(home),
        )
    try:
        yield Engine(process, port, log)
    finally:
        process.kill()
        process.wait(60)
        free.release()


def check_of_godot(*words: str, num_envs: int = 4) -> compliance.CheckReport:
    """What `ue-rl check` finds. A trainer's time scale stays, and 1 is real time, so that check is the last one."""
    options = compliance.Options(patience=1, timeout=10)
    with tempfile.TemporaryDirectory() as home, running(Path(home), *words, num_envs=num_envs) as engine:
        engine.dial().close()  # it listens
        url, last = f"tcp://127.0.0.1:{engine.port}", "time scale"
        report = compliance.check(url, options, only=[each.name for each in CHECKS if each.name != last])
        report.findings += compliance.check(url, options, only=[last]).findings
        return report
