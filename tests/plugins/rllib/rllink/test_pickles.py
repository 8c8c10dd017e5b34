"""Pickles are read as data: nothing is imported, called or made, whatever they say."""

from __future__ import annotations

import collections
import dataclasses
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ue_rl.plugins.rllib.rllink.pickles import MOST_OPCODES, Name, Object, read_pickle
from ue_rl.system.errors import MalformedMessage

PLAIN = [
    None, True, False, 0, -1, 255, 65_536, 2**31, -(2**70), 0.5, "text", "ü" * 300, b"b", b"\n" * 300,
    (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1, [2, [3]]], {}, {"a": 1, 2: (3,), None: [], True: ""},
    [f"text {n}" for n in range(500)],
]  # fmt: skip


@dataclasses.dataclass
class Config:
    batch: int
    model: dict[str, Any]


class Trap:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.file}",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_what_they_were(protocol: int) -> None:
    for value in PLAIN:
        if protocol < 3 and isinstance(value, (bytes, bytearray)):
            continue  # made by a call there
        assert read_pickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_objects_are_names_arguments_and_state(protocol: int) -> None:
    said = read_pickle(pickle.dumps([Config(4000, {"hiddens": [64, 64]}), Config], protocol))
    assert isinstance(said[0], Object)
    assert said[0].state == {"batch": 4000, "model": {"hiddens": [64, 64]}}
    assert said[1] == Name(Config.__module__, "Config")
    made = read_pickle(pickle.dumps(collections.OrderedDict(a=1), protocol))
    assert made.items == [("a", 1)]
    assert str(made.made_by) == "collections.OrderedDict"


def test_arrays_and_what_holds_itself() -> None:
    assert isinstance(read_pickle(pickle.dumps(np.arange(3))), Object)
    loop: list[Any] = [1]
    loop.append(loop)
    said = read_pickle(pickle.dumps(loop))
    assert said[1] is said


def test_a_trap_stays_unrun(tmp_path: Path) -> None:
    file = tmp_path / "sprung"
    said = read_pickle(pickle.dumps({"config": Trap(file)}))
    assert not file.exists()
    assert said["config"].made_by.name == "system"
    assert said["config"].args == (f"touch {file}",)


@pytest.mark.parametrize(
    "data",
    [
        b"", b".", b"garbage", b"\x80\x04", b"\x80\x04N", b"(t", b"]a.", b"N}s.", b"}(Nu.", b"0.", b"2.", b"t.",
        b"h\x05.",        b"\x8a\xff.", b"I99\n", b"Vab", b"(dp0\n(.", b"cos\nsystem\n",
        b"P1\n.", b"\x82\x01.", b"Nb.", b"NNNR", b"(.",
        pickle.dumps([1, 2, 3])[:-1],
    ],
)  # fmt: skip
def test_what_is_no_pickle_is_a_named_error(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="cannot be read"):
        read_pickle(data)


def test_one_without_an_end_of_opcodes_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="opcodes"):
        read_pickle(b"N" * (MOST_OPCODES + 10) + b".")


def test_a_number_of_megabytes_is_no_key() -> None:
    """Its hash takes as long as it is, each time: the time would be the square of the bytes."""
    number = b"\x8b" + (4000).to_bytes(4, "little") + b"\x7f" * 4000
    with pytest.raises(MalformedMessage, match="LONG4"):
        read_pickle(b"\x80\x04" + number + b"\x940}" + b"h\x00K\x01s" * 10 + b".")
