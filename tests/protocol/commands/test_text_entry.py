"""Text in a ring: pieces that fit, pieces that do not belong together."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.properties import examples
from ue_rl.protocol.commands.entries import TextReader, is_json, is_text, text_entries
from ue_rl.system import errors


@given(text=st.binary(max_size=300), longest=st.integers(13, 60), number=st.integers(0, 2**32 - 1))
def test_what_is_cut_is_put_together(text: bytes, longest: int, number: int) -> None:
    entries = list(text_entries(number, text, longest))
    assert all(len(entry) <= longest and is_text(entry) and not is_json(entry) for entry in entries)
    reader = TextReader("trainer", 300)
    for _ in range(2):  # the next text begins anew
        found = [reader.take(entry) for entry in entries]
        assert found == [None] * (len(entries) - 1) + [(number, text)]


def test_an_entry_byte_by_byte() -> None:
    """As docs/commands.md has it, section 1."""
    assert list(text_entries(7, b"GET=a", 15)) == [
        b"TEXT" + struct.pack("<II", 7, 2) + b"GET",
        b"TEXT" + struct.pack("<II", 7, 0) + b"=a",
    ]


def entry(number: int, rest: int, piece: bytes) -> bytes:
    return b"TEXT" + struct.pack("<II", number, rest) + piece


@pytest.mark.parametrize(
    "entries",
    [
        [b"TEXT"], [b"TEXT" + bytes(7)],
        [entry(1, 2**32 - 1, b"abc")], [entry(1, 97, b"abcd")], [entry(1, 0, b"a" * 101)],
        [entry(1, 5, b"abc"), entry(2, 0, b"defgh")], [entry(1, 5, b"abc"), entry(1, 5, b"")],
        [entry(1, 5, b"abc"), entry(1, 4, b"de")], [entry(1, 5, b"abc"), entry(1, 0, b"defghi")],
    ],
)  # fmt: skip
def test_pieces_that_cannot_be(entries: list[bytes]) -> None:
    reader = TextReader("trainer", 100)
    for good in entries[:-1]:
        assert reader.take(good) is None
    with pytest.raises(errors.MalformedMessage) as caught:
        reader.take(entries[-1])
    assert (caught.value.fault, caught.value.field) == ("trainer", "TEXT")


@examples(300)
@given(
    entries=st.lists(
        st.one_of(
            st.binary(max_size=40).map(lambda noise: b"TEXT" + noise),
            st.builds(entry, st.integers(0, 2), st.integers(0, 12), st.binary(max_size=8)),
        ),
        max_size=8,
    )
)
def test_noise_is_a_named_error_or_a_short_text(entries: list[bytes]) -> None:
    reader = TextReader("engine", 20)
    with contextlib.suppress(errors.MalformedMessage):
        for noise in entries:
            found = reader.take(noise)
            assert found is None or len(found[1]) <= 20
