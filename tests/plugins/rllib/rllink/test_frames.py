"""Frames, however the stream is split."""

from __future__ import annotations

import random

import pytest

from ue_rl.plugins.rllib.rllink.frames import MAX_BODY, FrameReader, frame
from ue_rl.system.errors import ConfigurationError, MalformedMessage


def test_captured_frames() -> None:
    assert frame(b"\x81\xa4type\xa4PING") == b"00000011\x81\xa4type\xa4PING"
    assert frame(b'{"type": "PING"}') == b'00000016{"type": "PING"}'


def test_any_split_gives_the_same_bodies() -> None:
    chance = random.Random(0)
    bodies = [b"\x81" + chance.randbytes(chance.randrange(300)) for _ in range(50)]
    stream = b"".join(map(frame, bodies))
    reader, got = FrameReader(), []
    while stream:
        size = chance.randrange(1, 100)
        reader.feed(stream[:size])
        stream = stream[size:]
        while (body := reader.next_body()) is not None:
            got.append(body)
    assert got == bodies
    assert len(reader) == 0


@pytest.mark.parametrize("header", [b"000000-1", b"HTTP/1.1", b" 0000011", b"0000001_", b"\x00" * 8, "٣".encode() * 4])
def test_a_header_that_is_none(header: bytes) -> None:
    reader = FrameReader()
    reader.feed(header)
    with pytest.raises(MalformedMessage, match="begins with its length"):
        reader.next_body()


def test_a_header_of_nine_digits_is_seen_at_once() -> None:
    """RLlib writes one for a body of 100 MB or more; the first eight of them would be waited for."""
    reader = FrameReader()
    reader.feed(b"123456789\x81")
    with pytest.raises(MalformedMessage, match="100 MB or more"):
        reader.next_body()


def test_no_message_is_longer_than_is_taken() -> None:
    reader = FrameReader(most=100)
    reader.feed(b"00000101")
    with pytest.raises(MalformedMessage, match="100 at most"):
        reader.next_body()

    class Long(bytes):
        def __len__(self) -> int:
            return MAX_BODY + 1

    with pytest.raises(ConfigurationError, match="longer than RLlink can say"):
        frame(Long())
