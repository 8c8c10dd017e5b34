"""Messages that nobody should send, to each side: each is read or named; nothing breaks, nothing grows."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import socket
import struct
import subprocess
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from tests.plugins.web.pages import NODE, knock, needs_node
from tests.support.listening import free_port
from ue_rl.connections.tcp.link import Link
from ue_rl.connections.tcp.numbers import AnswerNumbers
from ue_rl.devtools.check.garbage import mutate
from ue_rl.plugins.web.page_port import PagePort
from ue_rl.plugins.web.page_socket import PageSocket
from ue_rl.plugins.web.row_wiring import RowWiring
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.text import Codec
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.system.errors import UeRlError

FEW = 300  # in each run of the tests
MANY = 100_000
GROWTH = 2 << 20  # bytes
COUNTS = [FEW, pytest.param(MANY, marks=[pytest.mark.exhaustive, pytest.mark.timeout(1800)])]
CONFIG = b"CONFIG:OBS=2;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;CHANNEL=SHARED;FEATURES=SEQ,INFO,TRUNC,ERROR,BINARY"
SPEC = decode_handshake(CONFIG)
ANSWERS = (
    b"OBS=0.5,-1;REW=1;DONE=0;ENV=0||OBS=1e-5,3;REW=-0.5;DONE=1;ENV=1;TRUNC=1;SEQ=1",
    b"OBS=0,1;REW=0;DONE=0;ENV=0;INFO=%7B%22a%22%3A1%7D||OBS=1,1;REW=0;DONE=0;ENV=1;SEQ=1",
    b"ERROR=out%20of%20cake",
    CONFIG,
)
# In binary: of both envs, and of one.
ROWS = (
    b"URB1" + struct.pack("<5IQ", 2, 2, 2, 0, 0, 1) + struct.pack("<2I6f2B", 0, 1, 1, -0.5, 0.5, -1, 1e-5, 3, 0, 3),
    b"URB1" + struct.pack("<5IQ", 2, 1, 2, 0, 0, 1) + struct.pack("<I3fB", 1, 1, 0.5, -1, 1),
)
WORDS = (0, 1, 2, 3, 0x7FC00000, 0xFF800000, 0x7F7FFFFF, 0xFFFFFFFF)  # NaN and infinity among them
ACTIONS = np.zeros((2, 1), np.float32)


def rows(rng: random.Random) -> bytes:
    """A binary message, right or with words of it changed, or any bytes."""
    message = rng.choice(ROWS)
    if rng.random() < 0.4:
        return message
    if rng.random() < 0.4:
        return mutate(rng, message, ROWS)
    changed = bytearray(message)
    for _ in range(rng.choice((1, 1, 2))):
        struct.pack_into("<I", changed, 4 * rng.randrange(len(message) // 4), rng.choice(WORDS))
    if rng.random() < 0.3:
        changed[-rng.choice((1, 2))] = rng.randrange(256)
    return bytes(changed)


def frames(rng: random.Random) -> bytes:
    """A message, changed as a line, or as frames, or both."""
    line = mutate(rng, rng.choice(ANSWERS), ANSWERS)
    opcode = rng.choices((Opcode.TEXT, Opcode.BINARY, Opcode.PING, Opcode.PONG, Opcode.CLOSE), (46, 46, 4, 2, 2))[0]
    if opcode is Opcode.BINARY:
        line = rows(rng)
    if opcode in (Opcode.PING, Opcode.PONG, Opcode.CLOSE):
        line = line[:125]
        if opcode is Opcode.CLOSE and rng.random() < 0.5:
            line = b"\x03\xe8"  # 1000, a normal end: what a line begins with is no code
    cut = rng.randrange(len(line) + 1)
    if rng.random() < 0.2 and opcode in (Opcode.TEXT, Opcode.BINARY):
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
        codec = Codec(SPEC)
        self.buffers = StepBuffers.of(codec.spec)
        page = PageSocket(mine, ServerProtocol(state=State.OPEN))
        sock: Any = page
        self.link = Link(sock, codec.max_line)
        mine.settimeout(0.0)
        self._wiring = RowWiring(page, self.link, codec, self.buffers, AnswerNumbers(codec))
        self.read = 0

    def hear(self) -> None:
        """All that has come, as answers to a step; raises OSError or UeRlError."""
        while True:
            self.buffers.pending[:] = 1
            self._wiring.count_from(0)
            self._wiring.send(ACTIONS, None, time.monotonic() + 10)
            self.page.recv(65_536)
            self._wiring.receive(2, time.monotonic() - 1)
            self.read += 1

    def close(self) -> None:
        """Both ends."""
        self.link.close()
        self.page.close()


@pytest.mark.parametrize("count", COUNTS)
def test_the_trainers_side(count: int) -> None:
    rng = random.Random(1)
    trainer = Trainer()
    named: dict[str, int] = {}
    read = 0
    gc.collect()
    gc.freeze()  # what other tests have left is looked at once
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
                read += trainer.read
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
    assert {"EngineTimeout", "EngineDisconnected", "MalformedMessage", "NonFiniteValue"} <= named.keys()
    assert {"UnknownEnv", "RepeatedEnv", "WrongCount", "UnexpectedMessage", "LineTooLong"} <= named.keys()
    assert read > count / 50


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
    assert told["inRows"] > count / 20
    assert told["growth"] < GROWTH


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("count", [100, pytest.param(2_000, marks=pytest.mark.exhaustive)])
def test_the_ports_side(count: int) -> None:
    """Requests of HTTP, changed; afterwards a page is let in."""
    rng = random.Random(1)
    asked = (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    port = PagePort.at("127.0.0.1", free_port(), "")
    try:
        for _ in range(count):
            with socket.create_connection(("127.0.0.1", port.port), timeout=10) as visitor:
                with contextlib.suppress(OSError):
                    visitor.sendall(mutate(rng, asked, (asked,)))
                    visitor.shutdown(socket.SHUT_WR)
        knock(port.port)
    finally:
        port.leave("")
