"""Pages: the carts in Node and in Chromium, and pages that Python's WebSocket client plays, right or wrong."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parents[3]
RUNTIMES = os.environ.get("UE_RL_NODE_RUNTIMES")  # the folder of those of npm, as .ci/run runtimes says
WEB = ROOT / "samples" / "web"
NODE = shutil.which("node") or shutil.which("nodejs")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CONFIG = "CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;CHANNEL=SHARED"


def in_node(*values: Any) -> Any:
    """A parameter of a test that needs Node."""
    return pytest.param(*values, marks=pytest.mark.skipif(NODE is None, reason="there is no Node here"))


def in_chromium(*values: Any) -> Any:
    """A parameter of a test that needs Chromium."""
    return pytest.param(*values, marks=pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"))


# Each `.ci/run runtimes` runs such a test; where only Python's packages are, it is the night's.
in_runtimes = pytest.mark.slow
if RUNTIMES is None:
    in_runtimes = pytest.mark.exhaustive
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node here")


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing of what it is asked for."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A folder by any static server; its address."""
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def node(script: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Node runs a module; before version 22 its WebSocket has to be asked for."""
    assert NODE is not None
    with process([NODE, "--no-warnings", "--experimental-websocket", str(script), *words]) as running:
        yield running


@contextmanager
def process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is killed at the end."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            yield running
        finally:
            running.kill()


@contextmanager
def chromium(url: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A page in headless Chromium."""
    assert CHROMIUM is not None
    flags = [*more, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        command = [CHROMIUM, *flags, f"--user-data-dir={home}", url]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process:
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


Play = Callable[[ClientConnection], None]


def well_behaved(page: ClientConnection) -> None:
    """Shakes hands, and answers each request, to the end."""
    page.send(CONFIG)
    for line in page:
        if line:
            page.send("OBS=0;REW=0;DONE=0;ENV=0")


def dial(port: int, name: str = "", seconds: float = 10.0, **options: Any) -> ClientConnection:
    """A page's connection to a trainer that may not listen yet."""
    until = time.monotonic() + seconds
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", port), timeout=10)
            if sock.getsockname() == sock.getpeername():  # to itself, as TCP may where nobody listens
                sock.close()
                raise ConnectionRefusedError
            scheme = "wss" if "ssl" in options else "ws"
            return connect(f"{scheme}://127.0.0.1:{port}/{name}", sock=sock, compression=None, legacy=True, **options)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def knock(port: int, **options: Any) -> None:
    """Dials, and goes at once."""
    dial(port, **options).socket.close()


class Page:
    """A page that plays in a thread.

    Args:
        play: what it does once it is connected. name: of its place. again: dials anew after each end, as ue_rl.js does.
        options: of `dial`.
    """

    def __init__(
        self, port: int, play: Play = well_behaved, name: str = "", again: bool = False, **options: Any
    ) -> None:
        self.port, self.play, self.name, self.again = port, play, name, again
        self._options = options
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                with dial(self.port, self.name, **self._options) as page:
                    with contextlib.suppress(ConnectionClosed):
                        self.play(page)
            except (OSError, InvalidHandshake):
                pass
            if not self.again:
                return
            self._end.wait(0.1)

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)
