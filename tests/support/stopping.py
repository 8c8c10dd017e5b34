"""Ctrl-C while a client is in the middle of a request."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

from tests.harness.warm_cli import WarmCli

HALF = {
    "http": b"POST /reset HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b'Content-Length: 9\r\n\r\n{"a"',
    "text": b"STEP=0.1",
}


def stops_in_the_middle(cli: WarmCli, words: str, listens: str, half: bytes, folder: Path, code: int = 0) -> None:
    """`ue-rl WORDS` ends in order with this code, though half a request has come.

    Args:
        listens: the pattern of what it prints first; the port is the last of it. half: what a client has sent.
    """
    run = cli.start(words.split(), output=folder / "out.txt")
    port = int(run.wait_for(listens).rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(half)
        time.sleep(0.2)  # until it is read; nobody says so
        run.signal(signal.SIGINT, group=True)
        assert run.wait(60) == code, run.text
    assert "Traceback" not in run.text
    assert not [line for line in run.text.splitlines() if line.startswith("ERROR ")]
