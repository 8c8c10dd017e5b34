"""Handshakes and space trees that nobody wrote: a named error or a spec, soon, and nothing else."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.properties import examples
from ue_rl.protocol.text import MAX_HANDSHAKE, decode_handshake
from ue_rl.protocol.text.space_text import read_space, space_text
from ue_rl.system.errors import ConfigurationError, HandshakeError

TREES = [
    "DICT(camera:BOX(0:255)[2,3]UINT8,body:DICT(speed:BOX(-inf:inf)[2],legs:MULTI_BINARY(2)),gear:DISCRETE(-1:5))",
    "TUPLE(DISCRETE(3),BOX(-1:1)[2],MULTI_DISCRETE(2,3,1:4)[3],IMAGE)",
    "BOX(0:1,-2:2,-inf:inf)",
    "MULTI_BINARY(6)[2,3]",
]
TOKENS = ["DICT(", "TUPLE(", "BOX(", ")", "(", "[", "]", ":", ",", ";", "=", "IMAGE", "DISCRETE(3)", "[0]", "[-1]",
          "inf", "nan", "-inf", "1e999", "99999999999999999999", "%", "%FF", "_", "1_0", "UINT8", "FLOAT32",
          "AGENTS=a:1", "OBS.a=1", "PARAMS=", "16777217", "[65536,65536]", " ", "\t", "\x00",
          "\u0663", "-", "0", "9"]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, bases: list[str]) -> str:
    text = draw(st.sampled_from(bases))
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(text)))
        kind = draw(st.integers(0, 2))
        if kind == 0:
            text = text[:at] + draw(st.sampled_from(TOKENS)) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + draw(st.integers(1, 8)) :]
        else:
            text = text[:at] + text[draw(st.integers(0, len(text))) :][: draw(st.integers(1, 16))] + text[at:]
    return text


@given(mutated(TREES))
@example("BOX(0:1_0)")
@example("BOX(nan:nan)INT8")
@example("DICT(a:BOX(-1:1)[\u0663])")
@examples(600)
def test_a_space_is_read_or_refused_by_name(text: str) -> None:
    try:
        space = read_space(text)
    except ConfigurationError:
        return
    assert read_space(space_text(space)) == space
    assert read_space(space_text(space).lower()).size == space.size


@pytest.mark.parametrize(
    "key", ["PARAMS=g:1_0", "PARAMS=g:1:0_0:9", "ACT_SPACE=BOX(-1_0:1)", "OBS_SPACE=TUPLE(BOX(-1_0:1))"]
)
def test_pythons_own_spelling_of_numbers_is_refused(key: str) -> None:
    with pytest.raises(HandshakeError):
        decode_handshake(f"CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;VERSION=1;{key}".encode())


@pytest.mark.parametrize(("digits", "fits"), [(18, True), (19, False)])
def test_an_integer_has_18_digits_at_most(digits: int, fits: bool) -> None:
    text = f"CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;VERSION={'1'.zfill(digits)}".encode()
    if fits:
        assert decode_handshake(text).version == 1
        return
    with pytest.raises(HandshakeError, match="VERSION"):
        decode_handshake(text)


def test_a_bound_beyond_float32_is_none() -> None:
    spec = decode_handshake(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;VERSION=1;OBS_SPACE=BOX(0:1e39)")
    assert spec.obs_high == (float("inf"),)


_ROOM = MAX_HANDSHAKE - 100


@pytest.mark.parametrize(
    "text",
    [
        "(" * _ROOM,
        "DICT(" * (_ROOM // 5),
        "TUPLE(" * (_ROOM // 6),
        "DICT(a:" * 7 + "BOX(0:1)" + ")" * 7,
        "TUPLE(" + ",".join(["DISCRETE(2)"] * (_ROOM // 12)) + ")",
        "TUPLE(" + ",".join(["IMAGE"] * (_ROOM // 6)) + ")",
        "BOX(" + ",".join(["0:1"] * (_ROOM // 4)) + ")",
        "BOX(" + ",".join(["0:1"] * (_ROOM // 4)) + "",
        "BOX(0:1)[" + "1," * (_ROOM // 2) + "1]",
        "BOX(0:1)[4096,4096]",
        "MULTI_DISCRETE(" + ",".join(["1"] * (_ROOM // 2)) + ")",
        "MULTI_BINARY(16777216)",
        "TUPLE(" + ",".join(["MULTI_BINARY(16777216)"] * 1000) + ")",
        "TUPLE(" + ",".join(["BOX(0:1)[4096,4096]"] * 1000) + ")",
        "DICT(" + ",".join(f"a{i}:DISCRETE(2)" for i in range(1024)) + ")",
        "DICT(" + ",".join("a:DISCRETE(2)" for _ in range(1024)) + ")",
        " " * _ROOM,
        "DICT(" + "%61" * (_ROOM // 3) + ":DISCRETE(2))",
    ],
    ids=lambda text: str(text)[:24],
)
def test_the_longest_handshakes_take_no_time(text: str, slack: float) -> None:
    start = time.process_time()
    for key in ("OBS_SPACE", "ACT_SPACE"):
        line = f"CONFIG:OBS=2;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;FEATURES=MASK;{key}={text}"[:MAX_HANDSHAKE]
        try:
            decode_handshake(line.encode())
        except HandshakeError:
            continue
    assert time.process_time() - start < 5.0 * slack


_MANY = ",".join(f"g{n}:1" for n in range(3000))
_LEAVES = "DICT(" + ",".join(f"p{n}:BOX(0:1)" for n in range(1024)) + ")"


@pytest.mark.parametrize(
    "text",
    [
        f"OBS=1;ACT=1;AGENTS={_MANY}",
        f"OBS=1024;ACT=1;AGENTS={_MANY};OBS_SPACE={_LEAVES}",
        f"OBS=9000;ACT=1;AGENTS={_MANY};OBS_NAMES={','.join('a' * 9000)}",
        f"OBS=9000;ACT=1;AGENTS={_MANY};OBS_SPACE=BOX({','.join(['0:1'] * 9000)})",
        f"OBS=1;ACT=9000;AGENTS={_MANY};ACT_SPACE=MULTI_DISCRETE({','.join('2' * 9000)});FEATURES=MASK",
        f"OBS=1024;ACT=2000;AGENTS={_MANY[:14000]};OBS_SPACE={_LEAVES};"
        + ";".join(f"ACT.g{n}={n + 1}" for n in range(1500)),
        f"OBS=1;ACT=262144;AGENTS={_MANY};"
        + ";".join(f"ACT_SPACE.g{n}=MULTI_BINARY({262144 - n})" for n in range(900)),
        f"OBS=65536;ACT=65536;AGENTS={_MANY};" + ";".join(f"OBS.g{n}={65536 - n}" for n in range(2000)),
    ],
    ids=["alone", "leaves", "names", "bounds", "choices", "sizes", "switches", "numbers"],
)
def test_groups_of_agents_do_not_multiply_what_a_handshake_costs(text: str, slack: float) -> None:
    line = f"CONFIG:ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;{text}".encode()
    assert len(line) < MAX_HANDSHAKE
    start = time.process_time()
    with contextlib.suppress(HandshakeError):  # some are too much, and refused
        decode_handshake(line)
    assert time.process_time() - start < 3.0 * slack


def test_groups_that_say_the_same_are_one_spec() -> None:
    spec = decode_handshake(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1;AGENTS=a:1,b:2,c:1;ACT_SPACE.c=DISCRETE(2)")
    one, two, other = (group.spec for group in spec.groups)
    assert one is two
    assert other.action_spec.counts == (2,)
