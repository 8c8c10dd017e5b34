"""The command ring at its edges: where an entry just fits, just does not, and what stands in memory then."""

from __future__ import annotations

import struct

import pytest

from ue_rl.protocol.memory.ring import READ_POS, WRITE_POS, Ring
from ue_rl.system import errors


def positions(memory: bytearray) -> tuple[int, int]:
    return struct.unpack_from("<2I", memory)  # type: ignore[return-value]


def rings(size: int) -> tuple[bytearray, Ring, Ring]:
    memory = bytearray(size)
    return memory, Ring(memory, "cmd_s2c"), Ring(memory, "cmd_s2c")


@pytest.mark.parametrize(("size", "longest"), [(24, 4), (32, 4), (40, 12), (64, 20), (264, 124), (524_288, 262_132)])
def test_the_longest_message_is_known(size: int, longest: int) -> None:
    """Half of the data and 8 bytes stay free, less the length: it fits wherever the positions stand."""
    assert Ring(bytearray(size)).max_payload == longest


@pytest.mark.parametrize("size", [0, 8, 16, 23, 25, 28, 100])
def test_sizes_are_refused(size: int) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        Ring(bytearray(size))
    assert caught.value.fault == "caller"
    assert str(size) in str(caught.value)


def test_a_ring_is_full_when_eight_bytes_are_left_before_the_reader() -> None:
    memory, writer, reader = rings(8 + 64)
    for _ in range(7):  # reader at 0: 56 of 64 bytes, not to the end, where the positions would be equal
        assert writer.try_write(b"1234")
    assert not writer.try_write(b"")
    assert positions(memory) == (56, 0)
    assert writer.write_pos == 56
    assert reader.try_read() == b"1234"
    assert writer.try_write(b"5678")  # now to the very end
    assert positions(memory) == (0, 8)
    assert not writer.try_write(b"")  # and again eight bytes stay free
    for _ in range(6):
        assert reader.try_read() == b"1234"
    assert reader.try_read() == b"5678"
    assert reader.try_read() is None
    assert positions(memory) == (0, 0)


def test_an_entry_that_does_not_fit_the_end_goes_to_the_start_with_a_mark_behind_it() -> None:
    memory, writer, reader = rings(8 + 64)
    for _ in range(2):
        assert writer.try_write(b"x" * 20)
    for _ in range(2):
        assert reader.try_read() == b"x" * 20
    assert positions(memory) == (48, 48)
    assert writer.try_write(b"y" * 20)  # 24 bytes: 16 are left at the end, 48 - 8 at the start
    assert struct.unpack_from("<I", memory, 8 + 48) == (0xFFFFFFFF,)
    assert positions(memory) == (24, 48)
    assert not writer.try_write(b"z" * 20)  # 24 - 8 bytes are left before the reader
    assert writer.try_write(b"z" * 12)
    assert positions(memory) == (40, 48)
    assert reader.try_read() == b"y" * 20
    assert reader.try_read() == b"z" * 12
    assert positions(memory) == (40, 40)


def test_an_entry_fits_the_start_exactly() -> None:
    memory, writer, reader = rings(8 + 64)
    assert writer.try_write(b"x" * 28)
    assert writer.try_write(b"x" * 12)
    assert reader.try_read()
    assert positions(memory) == (48, 32)
    assert not writer.try_write(b"y" * 21)  # 32 bytes: eight would stay free neither here nor there
    assert writer.try_write(b"y" * 20)  # 24 = 32 - 8
    assert positions(memory) == (24, 32)


def test_where_the_start_has_no_room_either_nothing_is_written() -> None:
    memory, writer, reader = rings(8 + 64)
    assert writer.try_write(b"x" * 20)
    assert writer.try_write(b"x" * 20)
    assert reader.try_read()
    before = bytes(memory)
    assert not writer.try_write(b"y" * 20)  # the start has 24 bytes, of which 8 stay free
    assert bytes(memory) == before
    assert writer.try_write(b"y" * 12)  # fits the end exactly
    assert positions(memory) == (0, 24)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 11, 12, 13])
def test_entries_are_padded_to_eight_bytes(length: int) -> None:
    memory, writer, reader = rings(8 + 64)
    assert writer.try_write(b"x" * length)
    assert positions(memory) == (8 * ((length + 11) // 8), 0)
    assert memory[8:] == (struct.pack("<I", length) + b"x" * length).ljust(64, b"\0")
    assert reader.try_read() == b"x" * length
    assert positions(memory)[1] == positions(memory)[0]


def test_a_message_that_is_too_long_says_how_long_it_may_be() -> None:
    _, writer, _ = rings(8 + 64)
    with pytest.raises(errors.ConfigurationError, match=r"longer than its ring takes.*at most 28 bytes.*29") as caught:
        writer.try_write(bytes(29))
    assert (caught.value.field, caught.value.fault) == ("cmd_s2c", "caller")
    assert writer.try_write(bytes(28))


@pytest.mark.parametrize("offset", [WRITE_POS, READ_POS])
@pytest.mark.parametrize("value", [64, 60, 1, 2**32 - 8])
def test_a_position_is_a_multiple_of_eight_within_the_data(offset: int, value: int) -> None:
    memory = bytearray(8 + 64)
    struct.pack_into("<I", memory, offset, value)
    with pytest.raises(errors.SegmentInvalid, match=f"multiple of 8 below 64.*{value}") as caught:
        Ring(memory, "cmd_s2c")
    assert caught.value.field == f"cmd_s2c.{'write_pos' if offset == WRITE_POS else 'read_pos'}"
    struct.pack_into("<I", memory, offset, 56)
    Ring(memory, "cmd_s2c")


def reading(at: int, write: int, *lengths: tuple[int, int]) -> Ring:
    """A reader at `at` of a ring of 64 bytes; (offset, length) stand in its data."""
    memory = bytearray(8 + 64)
    struct.pack_into("<2I", memory, 0, at, at)
    reader = Ring(memory, "cmd_s2c")
    struct.pack_into("<I", memory, 0, write)
    for offset, length in lengths:
        struct.pack_into("<I", memory, 8 + offset, length)
    return reader


WRAP = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("reader", "match"),
    [
        (reading(8, 24, (8, 13)), "longer than what was written.*at most 16 bytes.*24"),  # up to the writer
        (reading(8, 24, (8, 2**31)), "longer than what was written"),
        (reading(8, 24, (8, 2**32 - 5)), "longer than what was written"),
        (reading(48, 8, (48, 13)), "longer than what was written.*at most 16 bytes.*24"),  # up to the end of the data
        (reading(8, 24, (8, WRAP)), r"a length at 8.*0xffffffff"),  # the writer stands behind it: it has not wrapped
        (reading(8, 0, (8, WRAP)), "a message at 0"),  # the mark, and its writer went no further
        (reading(48, 16, (48, WRAP), (0, 13)), "longer than what was written.*at most 16 bytes.*24"),
        (reading(48, 16, (48, WRAP), (0, WRAP)), "longer than what was written"),
    ],
    ids=["writer", "signed", "largest", "end", "wrap-before-writer", "wrap-alone", "after-wrap", "wrap-twice"],
)
def test_what_cannot_have_been_written_is_refused(reader: Ring, match: str) -> None:
    with pytest.raises(errors.SegmentInvalid, match=match) as caught:
        reader.try_read()
    assert caught.value.field == "cmd_s2c.entry"
    assert caught.value.fault == "engine"


def test_the_longest_entries_that_can_have_been_written_are_read() -> None:
    assert reading(8, 24, (8, 12)).try_read() == bytes(12)
    assert reading(48, 8, (48, 12)).try_read() == bytes(12)
    assert reading(48, 16, (48, WRAP), (0, 12)).try_read() == struct.pack("<I", 0) * 3


def test_repair_empties_a_broken_ring_and_leaves_a_sound_one() -> None:
    memory, writer, reader = rings(8 + 64)
    writer.try_write(b"12345678")
    writer.repair()
    assert positions(memory) == (16, 0)
    for offset in (WRITE_POS, READ_POS):
        struct.pack_into("<I", memory, offset, 61)
        writer.repair()
        assert positions(memory) == (0, 0)
        assert writer.write_pos == 0
        assert writer.try_write(b"12345678")
        assert positions(memory) == (16, 0)
    reader.skip_all()
    assert positions(memory) == (16, 16)


def test_news_are_what_came_since_the_last_look() -> None:
    _, writer, reader = rings(8 + 64)
    assert not reader.has_news()
    writer.try_write(b"a")
    assert reader.has_news()
    assert reader.try_read() == b"a"
    assert not reader.has_news()
    writer.try_write(b"old")
    reader.skip_all()
    assert not reader.has_news()
    assert reader.try_read() is None
    writer.try_write(b"new")
    assert reader.try_read() == b"new"


def test_release_lets_go_of_the_memory() -> None:
    memory, writer, reader = rings(8 + 64)
    writer.release()
    with pytest.raises(BufferError):
        memory.extend(b"x")
    reader.release()
    memory.extend(b"x")
