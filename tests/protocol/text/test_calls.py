"""Calls, their answers, and notices: written, read back, and refused by name; nothing foreign escapes a reader."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.properties import examples
from ue_rl.protocol.text import calls
from ue_rl.protocol.text.notices import MAX_TEXT, busy_line, ended_by, error_line, notice_of
from ue_rl.protocol.text.settings import number_text, read_settings, settings_text
from ue_rl.system import errors

GOALS = np.array([[1, 2], [5, 0.1]], np.float32)


# -- the trainer's lines


@pytest.mark.parametrize(
    ("line", "text", "call"),
    [
        (calls.write_get(), "GET", calls.Call("GET")),
        (calls.write_get(["a b", "g"], 3), "GET=a%20b,g;ENV=3", calls.Call("GET", ("a b", "g"), env=3)),
        (calls.write_set({"g": 3.7, "w": 2}), "SET=g:3.7,w:2", calls.Call("SET", settings={"g": 3.7, "w": 2.0})),
        (calls.write_set({"g": np.float32(0.5)}, 0), "SET=g:0.5;ENV=0", calls.Call("SET", settings={"g": 0.5}, env=0)),
        (calls.write_time_scale(4), "TIME_SCALE=4", calls.Call("TIME_SCALE", value=4)),
        (calls.write_pause(True), "PAUSE=1", calls.Call("PAUSE", value=1)),
        (calls.write_pause(False), "PAUSE=0", calls.Call("PAUSE", value=0)),
        (calls.write_render(), "RENDER", calls.Call("RENDER")),
        (calls.write_render(2), "RENDER;ENV=2", calls.Call("RENDER", env=2)),
    ],
)
def test_a_call_is_written_and_read_back(line: str, text: str, call: calls.Call) -> None:
    assert line == text
    assert calls.is_call(line.encode())
    assert calls.read_call(line.encode()) == call
    assert calls.read_call(f" {line.lower().replace('%20', '%20').replace(';', ' ; ')} ;hint=left\r".encode()) == call


def test_goals_go_in_pairs() -> None:
    line = calls.write_goals(GOALS, GOALS[:, :1])
    assert line == "GOALS=1,2/1||5,0.1/5"
    call = calls.read_call(line.encode())
    assert call.achieved is not None
    assert call.desired is not None
    np.testing.assert_array_equal(call.achieved, GOALS)
    np.testing.assert_array_equal(call.desired, GOALS[:, :1])
    assert calls.write_rewards(np.array([-1, 0.5])) == "REW=-1,0.5"
    np.testing.assert_array_equal(calls.read_rewards("REW=-1,0.5", 2), np.array([-1, 0.5], np.float32))


@pytest.mark.parametrize(
    "write",
    [
        lambda: calls.write_get([""]),
        lambda: calls.write_set({}),
        lambda: calls.write_set({"g": float("inf")}),
        lambda: calls.write_set({"g": 10**400}),
        lambda: calls.write_set({"g": "1"}),  # type: ignore[dict-item]
        lambda: calls.write_time_scale(0),
        lambda: calls.write_time_scale(float("nan")),
        lambda: calls.write_goals(GOALS, GOALS[:1]),
        lambda: calls.write_goals(GOALS[:0], GOALS[:0]),
        lambda: calls.write_goals(GOALS * np.float32(np.inf), GOALS),
        lambda: calls.write_goals(np.ones((40_000, 20), np.float32), np.ones((40_000, 1), np.float32)),
        lambda: calls.write_picture(np.zeros((2, 2, 5), np.uint8)),
        lambda: calls.write_picture(np.zeros((2, 2, 3), np.float32)),
        lambda: calls.write_picture(np.zeros((0, 2, 3), np.uint8)),
        lambda: calls.write_picture(np.zeros((70_000, 1), np.uint8)),
    ],
)
def test_what_cannot_be_written_is_refused(write: Callable[[], str]) -> None:
    with pytest.raises(errors.ConfigurationError):
        write()


@pytest.mark.parametrize(
    ("line", "kind", "field"),
    [
        ("SET", errors.MalformedMessage, "SET"),
        ("SET=", errors.MalformedMessage, "SET"),
        ("SET=g", errors.MalformedMessage, "SET"),
        ("SET=g:1,g:2", errors.MalformedMessage, "SET"),
        ("SET=g:nan", errors.NonFiniteValue, "SET"),
        ("GET=g,g", errors.MalformedMessage, "GET"),
        ("GET=%ff", errors.MalformedMessage, "GET"),
        ("GET=a,,b", errors.MalformedMessage, "GET"),
        ("TIME_SCALE=0", errors.MalformedMessage, "TIME_SCALE"),
        ("TIME_SCALE=-1", errors.MalformedMessage, "TIME_SCALE"),
        ("TIME_SCALE=fast", errors.MalformedMessage, "TIME_SCALE"),
        ("TIME_SCALE=inf", errors.NonFiniteValue, "TIME_SCALE"),
        ("PAUSE=2", errors.MalformedMessage, "PAUSE"),
        ("RENDER;ENV=-1", errors.MalformedMessage, "ENV"),
        ("RENDER;ENV=1;ENV=1", errors.MalformedMessage, "ENV"),
        ("RENDER;ENV", errors.MalformedMessage, "ENV"),
        ("GOALS=1", errors.MalformedMessage, "GOALS"),
        ("GOALS=1/2||1,2/2", errors.WrongCount, "GOALS"),
        ("GOALS=1/nan", errors.NonFiniteValue, "GOALS"),
        ("GOALS=1/1e39", errors.NonFiniteValue, "GOALS"),
        ("GOALS=1//2", errors.MalformedMessage, "GOALS"),
        ("GOALS=1/2||", errors.MalformedMessage, "GOALS"),
        ("ACT=1;ENV=0", errors.MalformedMessage, None),
        ("SETTLE=1", errors.MalformedMessage, None),
        ("SET=\u00e9:1", errors.MalformedMessage, None),
    ],
)
def test_a_call_that_is_wrong_is_refused(line: str, kind: Any, field: str | None) -> None:
    with pytest.raises(errors.ProtocolError) as caught:
        calls.read_call(line.encode())
    assert (type(caught.value), caught.value.field, caught.value.fault) == (kind, field, "trainer")


def test_steps_and_resets_are_no_calls() -> None:
    for line in (
        b"ACT=1;ENV=0",
        b"ACT=RESET",
        b"RESET",
        b"0.5,1",
        b"TRAINING_COMPLETE",
        b"SEED=3;ACT=RESET",
        b"SETS=1",
    ):
        assert not calls.is_call(line)


# -- the engine's answers


def test_answers_are_written_and_read_back() -> None:
    text = calls.write_values({"g": 9.8, "wind & rain": -1e-7})
    assert text == "VALUES=g:9.8,wind%20%26%20rain:-1e-07"
    assert calls.read_values(text, ["wind & rain", "g"]) == {"g": 9.8, "wind & rain": -1e-7}
    calls.read_ok(calls.OK)
    calls.read_ok("ok;hint=1")
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    for picture in (pixels, pixels[:, ::2], pixels[..., :1], pixels[..., :2], pixels[:1]):
        np.testing.assert_array_equal(calls.read_picture(calls.write_picture(picture)), picture)
    assert calls.read_picture(calls.write_picture(pixels[..., 0])).flags.writeable
    assert calls.write_picture(np.zeros((1, 1, 3), np.uint8)) == "PICTURE=1,1,3;DATA=AAAA"
    with pytest.raises(errors.CommandFailed) as caught:
        calls.understood("RENDER;ENV=0", calls.write_refused("no camera, \u00fcberhaupt").encode())
    assert (caught.value.field, caught.value.got) == ("RENDER", "no camera, \u00fcberhaupt")
    assert len(calls.write_refused("\u4f60" * 5000)) < 1024
    with pytest.raises(errors.EngineDisconnected, match="ended the session: gone"):
        calls.understood("GET", b"ERROR=gone")
    with pytest.raises(errors.MalformedMessage):
        calls.understood("GET", b"\xff")
    assert calls.understood("GET", b" VALUES=g:1\r") == "VALUES=g:1"


@pytest.mark.parametrize(
    ("read", "kind", "field"),
    [
        (lambda: calls.read_ok("VALUES=g:1"), errors.UnexpectedMessage, "OK"),
        (lambda: calls.read_ok("OBS=1;REW=0;DONE=0"), errors.UnexpectedMessage, "OK"),
        (lambda: calls.read_values("OK"), errors.UnexpectedMessage, "VALUES"),
        (lambda: calls.read_values("VALUES=g"), errors.MalformedMessage, "VALUES"),
        (lambda: calls.read_values("VALUES=g:nan"), errors.NonFiniteValue, "VALUES"),
        (lambda: calls.read_values("VALUES=g:1", ["w"]), errors.WrongCount, "VALUES"),
        (lambda: calls.read_values("VALUES=g:1,w:2", ["w"]), errors.WrongCount, "VALUES"),
        (lambda: calls.read_rewards("REW=1,2", 3), errors.WrongCount, "REW"),
        (lambda: calls.read_rewards("REW=1e39", 1), errors.NonFiniteValue, "REW"),
        (lambda: calls.read_rewards("REW=", 1), errors.MalformedMessage, "REW"),
        (lambda: calls.read_picture("PICTURE=1,1,3"), errors.MalformedMessage, "DATA"),
        (lambda: calls.read_picture("PICTURE=1,1,3;DATA=AAA"), errors.WrongCount, "DATA"),
        (lambda: calls.read_picture("PICTURE=1,1,3;DATA=AA=="), errors.MalformedMessage, "DATA"),
        (lambda: calls.read_picture("PICTURE=1,1,3;DATA=A*AA"), errors.MalformedMessage, "DATA"),
        (lambda: calls.read_picture("PICTURE=1,1,3;DATA=AAAA;DATA=AAAA"), errors.MalformedMessage, "DATA"),
        (lambda: calls.read_picture("PICTURE=0,1,3;DATA="), errors.MalformedMessage, "PICTURE"),
        (lambda: calls.read_picture("PICTURE=1,1,5;DATA=AAAAAAA="), errors.MalformedMessage, "PICTURE"),
        (lambda: calls.read_picture("PICTURE=1,1;DATA=AAAA"), errors.MalformedMessage, "PICTURE"),
        (lambda: calls.read_picture("PICTURE=65535,65535,4;DATA=AAAA"), errors.MalformedMessage, "PICTURE"),
    ],
)
def test_an_answer_that_is_wrong_is_refused(read: Callable[[], object], kind: Any, field: str) -> None:
    with pytest.raises(errors.ProtocolError) as caught:
        read()
    assert (type(caught.value), caught.value.field, caught.value.fault) == (kind, field, "engine")


# -- whatever comes

_TEXT = st.text(st.sampled_from("=;:,/|%0123456789.eE+- aGSETRNDOKVALUPICXYW_"), max_size=40)


@given(st.sampled_from(calls.CALLS), _TEXT)
@examples(600)
def test_no_foreign_exception_leaves_the_reader_of_calls(name: str, rest: str) -> None:
    for line in (name + rest, f"{name}={rest}", rest):
        try:
            calls.read_call(line.encode())
        except errors.ProtocolError:
            continue
        assert calls.is_call(line.encode())


@given(st.sampled_from(["OK", "VALUES", "PICTURE", "REW", "REFUSED", ""]), _TEXT, st.binary(max_size=20))
@examples(400)
def test_no_foreign_exception_leaves_the_readers_of_answers(name: str, rest: str, noise: bytes) -> None:
    for raw in (f"{name}={rest}".encode(), name.encode() + noise, f"{name}{rest};DATA=AAAA".encode()):
        notice_of(raw)
        for read in (calls.read_ok, calls.read_values, calls.read_picture, lambda text: calls.read_rewards(text, 1)):
            try:
                read(calls.understood("GET", raw))
            except (errors.ProtocolError, errors.CommandFailed, errors.EngineDisconnected):
                continue


@given(st.dictionaries(st.text(min_size=1, max_size=6), st.floats(allow_nan=False, allow_infinity=False), min_size=1))
@examples(200, 100)
def test_settings_survive_bit_for_bit(values: dict[str, float]) -> None:
    try:
        text = settings_text(values)
    except (errors.ConfigurationError, UnicodeEncodeError):
        assert any("\ud800" <= c <= "\udfff" for name in values for c in name)  # no text that UTF-8 holds
        return
    assert read_settings(text) == values
    assert all(float(number_text(value)) == value for value in values.values())


# -- notices


def test_notices_are_written_and_read_back() -> None:
    assert busy_line() == b"BUSY\n"
    assert busy_line(12.34, "10.0.0.7:51234") == b"BUSY;SINCE=12.3;PEER=10.0.0.7:51234\n"
    assert busy_line(float("nan"), "a;b") == b"BUSY\n"
    assert notice_of(b" busy ; since = 3 ; Peer = [::1]:7 ; more\r\n") == (
        "BUSY",
        "",
        {"SINCE": "3", "PEER": "[::1]:7"},
    )
    assert error_line("no memory; sorry") == b"ERROR=no%20memory%3B%20sorry\n"
    assert notice_of(b"error = no%20memory\r\n") == ("ERROR", "no memory", {})
    assert notice_of(error_line("\u00fc | = ;")) == ("ERROR", "\u00fc | = ;", {})
    for line in (b"", b"BUSYNESS", b"ERRORS=1", b"ERROR", b"OBS=1;ERROR=2", b"CONFIG:OBS=1;ACT=1"):
        assert notice_of(line) is None
        assert ended_by(line) is None
    assert ended_by(b"BUSY") is None


def test_the_longest_reason_fits_the_shortest_line() -> None:
    line = error_line("\U0001f600" * 4000)
    assert len(line) <= 3 * MAX_TEXT + 7 < 1024
    ended = ended_by(line, 3)
    assert ended is not None
    assert ended.env_id == 3
    assert ended.message.startswith("the engine ended the session: " + "\U0001f600" * 50)


@pytest.mark.parametrize(
    ("begins", "goes_on", "times"),
    [
        (b"REFUSED=", b"%41", 20_000_000),
        (b"REW=", b"1,", 30_000_000),
        (b"PICTURE=1,1,3", b";a=b", 15_000_000),
        (b"ERROR=", b"%41", 20_000_000),
    ],
    ids=["refused", "rewards", "picture", "error"],
)
def test_an_answer_as_long_as_a_picture_may_be_is_soon_refused(
    begins: bytes, goes_on: bytes, times: int, slack: float
) -> None:
    answer = begins + goes_on * times
    start = time.process_time()
    with pytest.raises((errors.LineTooLong, errors.MalformedMessage, errors.EngineDisconnected)):
        calls.read_picture(calls.understood("RENDER", answer))
    assert time.process_time() - start < 5.0 * slack  # read again and again it would be minutes


def test_many_small_goals_are_read_at_once(slack: float) -> None:
    start = time.process_time()
    read = calls.read_call(b"GOALS=" + b"||".join([b"1/2"] * 50_000))
    assert time.process_time() - start < 5.0 * slack  # read again and again it would be minutes
    assert read.achieved is not None
    assert read.desired is not None
    assert read.achieved.shape == read.desired.shape == (50_000, 1)
    assert (read.achieved.sum(), read.desired.sum()) == (50_000, 100_000)
