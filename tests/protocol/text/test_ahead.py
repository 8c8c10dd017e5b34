"""Lines that ask for resets ahead (FEATURES=AUTORESET)."""

from __future__ import annotations

from typing import Any

import pytest

from ue_rl.protocol.spec import EnvSpec, EnvType, Parameter
from ue_rl.protocol.text import Codec
from ue_rl.protocol.text.ahead import AHEAD, decode_ahead, encode_ahead
from ue_rl.system import errors

SPEC = EnvSpec(
    2, 1, num_envs=12, features=frozenset({"SEED", "SEQ", "AUTORESET"}), parameters=(Parameter("top speed", 1, 0, 9),)
)


@pytest.mark.parametrize(
    ("following", "line"),
    [
        ({3: (None, None)}, b"NEXT=RESET;ENV=3\n"),
        ({11: (2**31, None)}, b"NEXT=RESET;ENV=11;SEED=2147483648\n"),
        (
            {0: (7, {"top speed": 2.5}), 4: (None, {"top speed": 0.1})},
            b"NEXT=RESET;ENV=0;SEED=7;SET=top%20speed:2.5||NEXT=RESET;ENV=4;SET=top%20speed:0.1\n",
        ),
    ],
)
def test_what_is_written_is_read(following: dict[int, Any], line: bytes, compiled: bool) -> None:
    codec, into = Codec(SPEC, compiled=compiled), {5: (1, None)}
    assert encode_ahead(codec.spec, following) == line
    assert AHEAD.match(line)
    decode_ahead(codec, line[:-1], into)
    assert into == {5: (1, None), **following}
    loose: dict[int, Any] = {}
    spaced = line[:-1].lower().replace(b"next=", b" Next = ").replace(b"seed=", b"SEED =").replace(b";", b" ; ")
    assert AHEAD.match(spaced)
    decode_ahead(codec, spaced, loose)
    assert loose == following


def test_an_engine_of_one_env_names_none() -> None:
    codec, into = Codec(EnvSpec(2, 1, EnvType.SINGLE)), {}
    line = encode_ahead(codec.spec, {0: (4, None)})
    assert line == b"NEXT=RESET;SEED=4\n"
    decode_ahead(codec, line[:-1], into)
    assert into == {0: (4, None)}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"NEXT=1;ENV=3", errors.MalformedMessage),
        (b"NEXT=RESET;ENV=3||ACT=1;ENV=4", errors.MalformedMessage),
        (b"NEXT=RESET;ENV=12", errors.UnknownEnv),
        (b"NEXT=RESET;ENV=3||NEXT=RESET;ENV=3", errors.RepeatedEnv),
        (b"NEXT=RESET;ENV=3;SEED=-1", errors.MalformedMessage),
        (b"NEXT=RESET;ENV=3;SET=mass:1", errors.ProtocolError),
        (b"NEXT=RESET;ENV=3;SEQ=4", errors.MalformedMessage),
    ],
)
def test_what_cannot_be_followed_is_refused(line: bytes, error: type[Exception]) -> None:
    into: dict[int, Any] = {}
    with pytest.raises(error):
        decode_ahead(Codec(SPEC), line, into)
    assert not into
