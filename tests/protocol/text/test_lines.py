"""Limits: the longest line that is read, and that every line of the protocol fits it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text import Codec
from ue_rl.protocol.text.limits import require_lines
from ue_rl.protocol.text.lines import LineBuffer
from ue_rl.system.errors import HandshakeError, LineTooLong


@pytest.mark.parametrize("feed", [1, 1000])
def test_the_limit_counts_the_newline_and_not_one_byte_more(feed: int) -> None:
    for ending in (b"\n", b"\r\n"):
        lines = LineBuffer(100)
        fits = b"x" * (100 - len(ending)) + ending
        for at in range(0, 100, feed):
            lines.feed(fits[at : at + feed])
        assert lines.next_line() == fits.rstrip()
        lines.feed(b"x" + fits)
        with pytest.raises(LineTooLong):
            lines.next_span()
    lines = LineBuffer(100)
    lines.feed(b"x" * 99)
    assert lines.next_span() is None
    lines.check_limit()
    lines.feed(b"x")
    for call in (lines.next_span, lines.check_limit):
        with pytest.raises(LineTooLong):
            call()


def test_the_longest_numbers_of_printf_fit_the_limit(compiled: bool) -> None:
    n, obs_size, act_size = 64, 40, 41
    codec = Codec(EnvSpec(obs_size, act_size, num_envs=n), compiled=compiled)
    longest = b"%f" % -np.finfo(np.float32).max
    assert len(longest) == 47
    states = [b"OBS=%b;REW=%b;DONE=1;TRUNC=1;ENV=%d" % (b",".join([longest] * obs_size), longest, i) for i in range(n)]
    asks = [b"ACT=%b;ENV=%d" % (b",".join([longest] * act_size), i) for i in range(n)]
    buffers, batch = StepBuffers(n, obs_size), ActionBatch(n, act_size)
    buffers.pending[:] = 1
    for rows, decode, target in ((states, codec.decode_states, buffers), (asks, codec.decode_requests, batch)):
        lines = LineBuffer(codec.max_line)
        lines.feed(b"||".join(rows) + b"\r\n")
        span = lines.next_span()
        assert span is not None
        assert decode(lines.data, target, None, *span) == n  # type: ignore[operator]


def test_storage_for_a_line_grows_no_further_than_its_limit() -> None:
    lines = LineBuffer(1_000_000)
    with pytest.raises(LineTooLong):
        for _ in range(100):
            lines.feed(b"x" * 20_000)
            lines.next_span()
    assert len(lines.data) <= 1_000_000 + 65_536


def test_one_piece_that_is_longer_than_a_line_may_be_costs_little() -> None:
    """asyncio gives up to 256 KiB at once: the storage grew by one byte at a time, and was copied each time."""
    called: list[str] = []
    lines, piece = LineBuffer(100), b"x" * (256 * 1024)
    sys.setprofile(lambda frame, event, arg: called.append(event))
    lines.feed(piece)
    sys.setprofile(None)
    assert len(called) < 1000  # it doubles, and takes 64 KiB more at a time behind the limit
    assert lines.unread() == piece
    with pytest.raises(LineTooLong):
        lines.next_span()


def test_a_session_whose_lines_could_be_too_long_is_refused_by_name() -> None:
    require_lines(EnvSpec(128, 2, num_envs=65_536))
    require_lines(EnvSpec(1, 1, num_envs=65_536, features=frozenset({"INFO"})))
    with pytest.raises(HandshakeError, match=r"too long for text \(field ENV_COUNT\).*536870912.*got 8\d{8} bytes"):
        require_lines(EnvSpec(256, 2, num_envs=65_536))
