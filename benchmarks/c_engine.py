"""Builds and runs benchmarks/engine.c: an engine of constant cost, in a process of its own.

    with CEngine(num_envs=64, obs_size=8) as engine:
        env = ue_rl.connect(engine.url)
    with CEngine.bare(request_bytes, reply_bytes) as peer:
        seconds = exchange(peer, rounds=1000)

Needs a C compiler (`cc`, or $CC) and POSIX sockets. As a script it prints what a bare socket exchange
costs here:

    python benchmarks/c_engine.py --envs 64 --obs 8
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("engine.c")


class NoCompiler(RuntimeError):
    """There is no C compiler here."""


@functools.cache
def build(source: Path = SOURCE) -> Path:
    """The compiled program, in the temporary folder of this machine; built once per version of its source."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or sys.platform == "win32":
        raise NoCompiler(f"{source.name} needs a C compiler and POSIX sockets")
    key = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"ue_rl-bench-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to someone else")
    binary = folder / f"{source.stem}-{key}"
    if not binary.exists():
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as half:
            pass
        flags = ["-O3", "-march=native", "-Wall", "-Wextra"]
        subprocess.run([compiler, *flags, "-o", half.name, str(source)], check=True)
        os.replace(half.name, binary)
    return binary


class CEngine:
    """The engine's process; ends when the `with` block does, or when this process dies.

    Args:
        num_envs, obs_size, act_size: the handshake's.
    """

    def __init__(self, num_envs: int = 16, obs_size: int = 8, act_size: int = 2) -> None:
        self.num_envs, self.obs_size, self.act_size = num_envs, obs_size, act_size
        self._arguments = ["--envs", str(num_envs), "--obs", str(obs_size), "--act", str(act_size)]
        self._process: subprocess.Popen[str] | None = None
        self.request_bytes = self.reply_bytes = 0
        self.port = 0

    @classmethod
    def bare(cls, request_bytes: int, reply_bytes: int) -> CEngine:
        """A peer without protocol: on each connection it reads and writes so many bytes, again and again."""
        peer = cls()
        peer.request_bytes, peer.reply_bytes = request_bytes, reply_bytes
        peer._arguments = ["--bare", str(request_bytes), str(reply_bytes)]
        return peer

    @property
    def url(self) -> str:
        """As ue_rl.connect takes it."""
        return f"tcp://127.0.0.1:{self.port}"

    def __enter__(self) -> CEngine:
        self._process = subprocess.Popen(
            [str(build()), *self._arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        word, _, port = self._process.stdout.readline().partition(" ")
        if word != "PORT":
            raise RuntimeError(f"the engine did not start: exit code {self._process.wait()}")
        self.port = int(port)
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process is not None
        self._process.communicate()  # closes its standard input, which ends it


def exchange(peer: CEngine, rounds: int, sockets: int = 1) -> float:
    """Seconds for `rounds` exchanges with a bare peer, send all then receive all; the least a client could
    need."""
    links = [socket.create_connection(("127.0.0.1", peer.port)) for _ in range(sockets)]
    try:
        for link in links:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request, reply = b"x" * peer.request_bytes, memoryview(bytearray(max(1, peer.reply_bytes)))
        start = time.perf_counter()
        for _ in range(rounds):
            for link in links:
                link.sendall(request)
            for link in links:
                left = peer.reply_bytes
                while left:
                    count = link.recv_into(reply, left)
                    if not count:
                        raise ConnectionError("the peer has gone")
                    left -= count
        return time.perf_counter() - start
    finally:
        for link in links:
            link.close()


def message_sizes(num_envs: int, obs_size: int, act_size: int) -> tuple[int, int]:
    """(request, reply) bytes of one step on the shared channel, with actions like 0.1234567."""
    action = ",".join(["0.1234567"] * act_size)
    request = len("||".join(f"ACT={action};ENV={env}" for env in range(num_envs))) + 1
    with CEngine(num_envs, obs_size, act_size) as engine, socket.create_connection(("127.0.0.1", engine.port)) as link:
        reader = link.makefile("rb")
        reader.readline()
        link.sendall(b"||".join(b"ACT=RESET;ENV=%d" % env for env in range(num_envs)) + b"\n")
        return request, len(reader.readline())


def main() -> None:
    """Prints the cost of a bare exchange of one step's bytes, on one socket and on one socket per env."""
    parser = argparse.ArgumentParser(description="what a bare socket exchange costs on this machine")
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--obs", type=int, default=8)
    parser.add_argument("--act", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2000)
    options = parser.parse_args()
    request, reply = message_sizes(options.envs, options.obs, options.act)
    for name, sockets, sizes in (
        ("one socket", 1, (request, reply)),
        ("per-env sockets", options.envs, (request // options.envs, reply // options.envs)),
    ):
        with CEngine.bare(*sizes) as peer:
            took = statistics.median(exchange(peer, options.rounds, sockets) for _ in range(5))
        micros = took / options.rounds * 1e6
        print(f"{name:16} {sizes[0]:6} + {sizes[1]:6} bytes x {sockets:3}: {micros:8.1f} us a step")


if __name__ == "__main__":
    main()
