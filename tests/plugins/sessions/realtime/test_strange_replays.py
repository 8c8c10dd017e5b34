"""Replays of strangers: their checksums are right, and what is in them is not. Each is refused as a replay."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from click.testing import CliRunner

from ue_rl.cli import cli
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.realtime.player import ReplayPlayer
from ue_rl.plugins.sessions.realtime.replay import Replay, checksum
from ue_rl.system.errors import ReplayInvalid

GAME = "tests.plugins.sessions.realtime.games:Sums"
Change = Callable[[dict[str, Any], list[list[Any]]], object]


@pytest.fixture(scope="module")
def whole() -> tuple[dict[str, Any], list[list[Any]]]:
    """The header and the records of an episode: an action, a tool call and three ticks."""
    with SessionPool(GAME, max_sessions=1, workers=1) as pool:
        first = checksum(pool.create().reset(seed=1))
        header = {"format": "ue_rl replay", "version": 1, "game": GAME, "kwargs": {}, "handshake": pool.handshake,
                  "session_id": "a", "hold": False, "max_ticks": 0, "tick_rate": None}  # fmt: skip
    action = np.ones(1, "<f4").tobytes()
    records = [[0, 0, 1, [None, first]], [1, 0, action, None], [2, 0, "add", {"amount": 1}]]
    return header, records


def written(path: Path, header: dict[str, Any], records: list[list[Any]]) -> Path:
    last = zlib.crc32(msgpack.packb(header))
    out = msgpack.packb({**header, "checksum": last})
    for record in records:
        last = zlib.crc32(msgpack.packb(record), last)
        out += msgpack.packb([*record, last])
    path.write_bytes(out)
    return path


def _deep() -> Any:
    found: Any = {}
    for _ in range(500):
        found = {"a": found}
    return found


VALUES: list[Any] = [
    None, True, -1, 2**63, 1.5, float("nan"), "x", "[1]", "{", b"", b"abc", [], [1], {}, {1: 2}, {"a": [1]}, [None],
    [None, None], [5, 5], [{"a": 1}, -1], ["[]", 0], msgpack.Timestamp(0), msgpack.ExtType(5, b"a"), _deep(),
]  # fmt: skip
WRONG: dict[str, Change] = {
    "no game": lambda header, records: header.pop("game"),
    "a game that is a number": lambda header, records: header.update(game=5),
    "no handshake": lambda header, records: header.pop("handshake"),
    "kwargs that are a list": lambda header, records: header.update(kwargs=[1]),
    "kwargs without names": lambda header, records: header.update(kwargs={1: 2}),
    "hold that is a text": lambda header, records: header.update(hold="no"),
    "max_ticks below 0": lambda header, records: header.update(max_ticks=-1),
    "max_ticks that are true": lambda header, records: header.update(max_ticks=True),
    "a tick rate without end": lambda header, records: header.update(tick_rate=float("inf")),
    "an unknown kind": lambda header, records: records.append([4, 0, None, None]),
    "a kind that is 1.0": lambda header, records: records.append([1.0, 0, b"", None]),
    "a kind that is a list": lambda header, records: records.append([[], 0, None, None]),
    "an action before the episode": lambda header, records: records.insert(0, records[1]),
    "a seed that is a text": lambda header, records: records[0].__setitem__(2, "1"),
    "a seed below 0": lambda header, records: records[0].__setitem__(2, -1),
    "an episode without options": lambda header, records: records[0].__setitem__(3, None),
    "options that are no JSON": lambda header, records: records[0].__setitem__(3, ["{broken", 0]),
    "options that are a list": lambda header, records: records[0].__setitem__(3, ["[1]", 0]),
    "a checksum that is a text": lambda header, records: records[0].__setitem__(3, [None, "0"]),
    "an action that is a text": lambda header, records: records[1].__setitem__(2, "abcd"),
    "an action of three bytes": lambda header, records: records[1].__setitem__(2, b"abc"),
    "an action of too many numbers": lambda header, records: records[1].__setitem__(2, bytes(40)),
    "an action that is not finite": lambda header, records: records[1].__setitem__(2, np.float32("nan").tobytes()),
    "a tool without a name": lambda header, records: records[2].__setitem__(2, None),
    "a tool that there is not": lambda header, records: records[2].__setitem__(2, "fly"),
    "arguments that are a list": lambda header, records: records[2].__setitem__(3, [1]),
    "arguments without names": lambda header, records: records[2].__setitem__(3, {1: 2}),
    "arguments that the tool does not take": lambda header, records: records[2].__setitem__(3, {"amount": "much"}),
    "arguments nested without end": lambda header, records: records[2].__setitem__(3, '{"a":' * 100_000),
    "a tick that is a list": lambda header, records: records.append([3, [1], 0, None]),
    "a tick that is a text": lambda header, records: records.append([3, "1", 0, None]),
    "a tick without end": lambda header, records: records.append([3, 10**15, 0, None]),
    "ticks that go back": lambda header, records: records.extend([[3, 3, 0, None], [3, 2, 0, None]]),
    "an observation's checksum that is a list": lambda header, records: records.append([3, 1, [0], None]),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_no_session_writes_is_refused(what: str, whole: Any, tmp_path: Path) -> None:
    header, records = dict(whole[0]), [list(record) for record in whole[1]]
    WRONG[what](header, records)
    file = written(tmp_path / "a.replay", header, records)
    with pytest.raises(ReplayInvalid) as refused, ReplayPlayer(Replay.load(file)) as player:
        list(player.play())
    assert "Nobody expected this" not in str(refused.value)


def test_any_value_in_any_place_is_refused_or_plays(whole: Any, tmp_path: Path) -> None:
    refused = 0
    places = [(n, part) for n in range(len(whole[1])) for part in range(4)]
    for value in VALUES:
        for place, part in [*((None, key) for key in whole[0]), *places]:
            header, records = dict(whole[0]), [list(record) for record in whole[1]]
            (header if place is None else records[place])[part] = value
            try:
                Replay.load(written(tmp_path / "a.replay", header, records))
            except ReplayInvalid:
                refused += 1
    assert refused > len(VALUES) * len(places)


def test_the_command_says_it_in_one_line(whole: Any, tmp_path: Path) -> None:
    header, records = whole
    done = CliRunner().invoke(cli, ["sessions", "replay", str(written(tmp_path / "a.replay", header, records))])
    assert done.exit_code == 0, done
    done = CliRunner().invoke(
        cli, ["sessions", "replay", str(written(tmp_path / "b.replay", {**header, "hold": 1}, records))]
    )
    assert isinstance(done.exception, ReplayInvalid)
    assert "field hold" in str(done.exception)
