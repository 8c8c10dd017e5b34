"""The command ring against a model, against a hostile other side, and between two processes."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from collections import deque

import pytest

from ue_rl.protocol.memory.ring import Ring
from ue_rl.protocol.memory.segment import Segment
from ue_rl.system import errors


def pair(size: int = 256) -> tuple[bytearray, Ring, Ring]:
    memory = bytearray(size)
    return memory, Ring(memory, "cmd_c2s"), Ring(memory, "cmd_c2s")


@pytest.mark.parametrize("size", [32, 64, 256, 4096])
def test_a_ring_is_a_queue(size: int) -> None:
    """Tens of thousands of random operations against a deque; every message comes once, whole, in order."""
    _, writer, reader = pair(size)
    rng = random.Random(size)
    model: deque[bytes] = deque()
    full = empty = 0
    for _ in range(20_000):
        if rng.random() < 0.52:
            message = rng.randbytes(rng.randint(0, writer.max_payload))
            if writer.try_write(message):
                model.append(message)
            else:
                full += 1
                assert model, "an empty ring took nothing"
        else:
            got = reader.try_read()
            assert got == (model.popleft() if model else None)
            empty += got is None
    while model:
        assert reader.try_read() == model.popleft()
    assert reader.try_read() is None
    assert full
    assert empty


def test_an_empty_ring_takes_the_longest_message_wherever_it_stands() -> None:
    _, writer, reader = pair(128)
    for _ in range(200):
        assert writer.try_write(b"x" * writer.max_payload)
        assert reader.try_read() == b"x" * writer.max_payload
        assert writer.try_write(b"")
        assert reader.try_read() == b""


@pytest.mark.parametrize("position", [1, 4, 12, 248, 256, 2**31, 2**32 - 8, 2**32 - 1])
@pytest.mark.parametrize("at", [0, 4])
def test_hostile_positions_are_refused_on_every_use(position: int, at: int) -> None:
    memory, writer, reader = pair()
    writer.try_write(b"hello")
    struct.pack_into("<I", memory, at, position)
    name = "write_pos" if at == 0 else "read_pos"
    with pytest.raises(errors.SegmentInvalid, match=name):
        if at == 0:
            reader.try_read()
        else:
            writer.try_write(b"more")


def test_any_content_is_read_inside_the_ring() -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(3000):
        memory = bytearray(rng.randbytes(128))
        struct.pack_into("<2I", memory, 0, rng.randrange(0, 120, 8), rng.randrange(0, 120, 8))
        for at in range(8, 128, 8):
            if rng.random() < 0.7:
                struct.pack_into("<I", memory, at, rng.choice([0, 4, 12, 60, 2**32 - 1]))
        reader = Ring(memory)
        try:
            for _ in range(40):
                if reader.try_read() is None:
                    break
        except errors.SegmentInvalid:
            refused += 1
    assert refused > 100


def test_two_processes_exchange_every_message_once_and_in_order() -> None:
    count = 8_000
    code = (
        "import sys\n"
        "from ue_rl.protocol.memory.segment import Segment\nfrom ue_rl.protocol.memory.ring import Ring\n"
        "ring = Ring(memoryview(Segment.open(sys.argv[1]).memory)[4096:])\n"
        f"for i in range({count}):\n"
        "    data = i.to_bytes(4, 'little') * (i % 9 + 1)\n"
        "    while not ring.try_write(data): pass\n"
    )
    with Segment.create(8192) as segment:
        reader = Ring(memoryview(segment.memory)[4096:4608])
        view = code.replace("[4096:]", "[4096:4608]")
        writer = subprocess.Popen([sys.executable, "-c", view, segment.name])
        got = 0
        while got < count:
            data = reader.try_read()
            if data is None:
                assert writer.poll() in (None, 0)
                continue
            assert data == got.to_bytes(4, "little") * (got % 9 + 1)
            got += 1
        assert writer.wait(60) == 0
        assert reader.try_read() is None
        reader.release()
