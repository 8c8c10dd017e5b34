"""Python in a process of its own, which listens."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ue_rl.connections.launching import ports


@contextmanager
def program(source: str, *flags: str, place: str = "") -> Iterator[int]:
    """The port on which it listens: its argument, and what stands in this place of the source."""
    free = ports.find()
    number = str(free.number)
    words = [sys.executable, *flags, "-c", source.replace(place, number) if place else source, number]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process, socket.socket() as probe:
        try:
            while probe.connect_ex(("127.0.0.1", free.number)):
                assert process.poll() is None, "it has ended"
                time.sleep(0.02)
            probe.close()
            yield free.number
        finally:
            process.kill()
    free.release()
