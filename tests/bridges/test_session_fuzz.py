"""The server under lines of all kinds, calls among them, split anywhere and on any connection.

The session alone: target `engine` of tests/devtools/testing/test_fuzz.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tests.harness.lab import Lab
from tests.support.steps import advance, begin
from ue_rl.bridges import run_in_thread
from ue_rl.connections import MultiTcpConnection
from ue_rl.devtools.testing import RawClient
from ue_rl.protocol.calls.asking import EngineCalls

REQUESTS = [
    b"ACT=RESET;ENV=0", b"ACT=RESET;ENV=0||ACT=RESET;ENV=1", b"ACT=0.5;ENV=1", b"ACT=0.5;ENV=0||ACT=RESET;ENV=1",
    b"ACT=RESET;ENV=1;SET=gravity:3", b"",
]  # fmt: skip
OF_ONE = [b"ACT=RESET", b"ACT=0.5", b"ACT=RESET;SET=gravity:3"]
CALLS = [
    b"GET", b"GET=gravity;ENV=1", b"get = wind[m/s]", b"SET=gravity:1", b"SET=gravity:1;ENV=0", b"SET=gravity:-1",
    b"SET=gravity:nan", b"SET=", b"TIME_SCALE=2", b"TIME_SCALE=1e999", b"PAUSE=1", b"PAUSE=0", b"PAUSE=2", b"RENDER",
    b"RENDER;ENV=1", b"RENDER;ENV=9999999999", b"GOALS=1,2/3,4||5,6/7,8", b"GOALS=1/2,3", b"GOALS=/", b"GOALS=1/" * 50,
    b"GET=%ff", b"GET=" + b"x," * 300,
]  # fmt: skip
WRONG = [
    b"ACT=RESET;ENV=1;SET=gravity:99", b"ACT=RESET;ENV=1;SET=mass", b"SHM=nobody:0", b"BUSY", b"ERROR=me",
    b"ACT=1;ENV=7", b"TRAINING_COMPLETE", b"\xff\xfe\x00", b"ACT=RESET;ENV=0||ACT=RESET;ENV=0",
]  # fmt: skip


def stream(rng: random.Random, count: int, right: list[bytes], wrong: float) -> Iterator[bytes]:
    """Lines, as many of them `wrong`, cut into pieces."""
    for _ in range(count):
        line = bytearray(rng.choice(right))
        if rng.random() < wrong:
            line = bytearray(rng.choice(WRONG))
        elif line and rng.random() < wrong:
            line[rng.randrange(len(line))] = rng.randrange(256)
        line += rng.choice([b"\n", b"\r\n"])
        size = rng.choice([1, 3, 20, 1000])
        yield from (bytes(line[start : start + size]) for start in range(0, len(line), size))


def test_a_server_survives_it_and_serves_the_next(caplog: Any) -> None:
    rng = random.Random(7)
    with run_in_thread(Lab(2), port=0) as server:
        for _ in range(60):
            clients = [RawClient(("127.0.0.1", server.port)) for _ in range(rng.choice([1, 1, 2, 3]))]
            with suppress(OSError):
                for piece in stream(rng, 12, REQUESTS + OF_ONE + CALLS, 0.1):
                    rng.choice(clients).send(piece)
            for client in clients:
                client.close()
        with MultiTcpConnection("127.0.0.1", server.port, timeout=20.0, wait=20.0) as connection:
            calls = EngineCalls(connection)
            begin(connection)
            assert calls.set_parameters({"gravity": 2.0}) == {"gravity": 2.0}
            assert advance(connection, 1).obs.tolist() == [[3.0], [3.0]]
