"""100,000 messages that nobody should send, to each side: each is read or named; nothing breaks, nothing grows."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import socket
import subprocess
import time
import tracemalloc
from pathlib import Path

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from tests.plugins.web.pages import NODE, free_port, knock, needs_node
from ue_rl.connections.tcp.link import Link
from ue_rl.devtools.check.garbage import mutate
from ue_rl.plugins.web.page_port import PagePort
from ue_rl.plugins.web.page_socket import PageSocket
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.text import Codec
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.system.errors import UeRlError

FEW = 3_000  # in each run of the tests
MANY = 100_000
GROWTH = 2 << 20  # bytes
COUNTS = [FEW, pytest.param(MANY, marks=[pytest.mark.exhaustive, pytest.mark.timeout(1800)])]
CONFIG = b"CONFIG:OBS=2;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;CHANNEL=SHARED;FEATURES=SEQ,INFO,TRUNC,ERROR"
ANSWERS = (
    b"OBS=0.5,-1;REW=1;DONE=0;ENV=0||OBS=1e-5,3;REW=-0.5;DONE=1;ENV=1;TRUNC=1;SEQ=1",
    b"OBS=0,1;REW=0;DONE=0;ENV=0;INFO=%7B%22a%22%3A1%7D||OBS=1,1;REW=0;DONE=0;ENV=1;SEQ=1",
    b"ERROR=out%20of%20cake",
    CONFIG,
)


def frames(rng: random.Random) -> bytes:
    """A message, changed as a line, or as frames, or both."""
    line = mutate(rng, rng.choice(ANSWERS), ANSWERS)
    opcode = rng.choices((Opcode.TEXT, Opcode.BINARY, Opcode.PING, Opcode.PONG, Opcode.CLOSE), (90, 2, 4, 2, 2))[0]
    if opcode in (Opcode.PING, Opcode.PONG, Opcode.CLOSE):
        line = line[:125]
        if opcode is Opcode.CLOSE and rng.random() < 0.5:
            line = b"\x03\xe8"  # 1000, a normal end: what a line begins with is no code
    cut = rng.randrange(len(line) + 1)
    if rng.random() < 0.2 and opcode is Opcode.TEXT:
        said = Frame(opcode, line[:cut], False).serialize(mask=True) + Frame(Opcode.CONT, line[cut:]).serialize(
            mask=True
        )
    else:
        said = Frame(opcode, line).serialize(mask=True)
    if rng.random() < 0.1:
        said = mutate(rng, said, (said,))
    return said


class Trainer:
    """Its side of a connection, of which a page is the other end."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.page = socket.create_connection(listener.getsockname())
            mine, _ = listener.accept()
        self.page.setblocking(False)
        self.codec = Codec(decode_handshake(CONFIG))
        self.buffers = StepBuffers.of(self.codec.spec)
        self.link = Link(PageSocket(mine, ServerProtocol(state=State.OPEN)), self.codec.max_line)
        mine.settimeout(0.0)

    def hear(self) -> None:
        """All lines that have come, as answers; raises OSError or UeRlError."""
        while True:
            start, end = self.link.next_span(time.monotonic() - 1)
            self.buffers.pending[:] = 1
            self.codec.decode_states(self.link.lines.data, self.buffers, None, start, end, 1)

    def close(self) -> None:
        """Both ends."""
        self.link.close()
        self.page.close()


@pytest.mark.parametrize("count", COUNTS)
def test_the_trainers_side(count: int) -> None:
    rng = random.Random(1)
    trainer = Trainer()
    named: dict[str, int] = {}
    tracemalloc.start()
    before = 0
    for n in range(count):
        with contextlib.suppress(BlockingIOError):
            trainer.page.sendall(frames(rng))
        try:
            trainer.hear()
        except (OSError, UeRlError) as error:
            name = type(error).__name__
            named[name] = named.get(name, 0) + 1
            if name != "EngineTimeout" or "unfinished" in str(error):
                trainer.close()
                trainer = Trainer()
        if n == count // 10:
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
    trainer.close()
    gc.collect()
    growth = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert growth < GROWTH, f"{growth} bytes"
    assert {"EngineTimeout", "EngineDisconnected", "MalformedMessage"} <= named.keys()


@needs_node
@pytest.mark.parametrize("count", COUNTS)
def test_the_pages_side(count: int) -> None:
    assert NODE is not None
    script = Path(__file__).with_name("fuzz.mjs")
    done = subprocess.run(
        [NODE, "--expose-gc", str(script), str(count), "1"], capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["sessions"] > count / 10
    assert told["growth"] < GROWTH


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_ports_side() -> None:
    """Requests of HTTP, changed; afterwards a page is let in."""
    rng = random.Random(1)
    asked = (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    port = PagePort.at("127.0.0.1", free_port(), "")
    try:
        for _ in range(500):
            with socket.create_connection(("127.0.0.1", port.port), timeout=10) as visitor:
                with contextlib.suppress(OSError):
                    visitor.sendall(mutate(rng, asked, (asked,)))
                    visitor.shutdown(socket.SHUT_WR)
        knock(port.port)
    finally:
        port.leave("")
