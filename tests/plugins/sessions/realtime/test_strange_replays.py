"""Replays of strangers: their checksums are right, and what is in them is not. Each is refused as a replay."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ue_rl.cli import cli
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.realtime.player import ReplayPlayer
from ue_rl.plugins.sessions.realtime.replay import SIDE, Replay, checksum
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.traces.writing import TraceWriter
from ue_rl.system.errors import ReplayInvalid

GAME = "tests.plugins.sessions.realtime.games:Sums"
Change = Callable[[dict[str, Any], list[list[Any]]], object]


@pytest.fixture(scope="module")
def whole() -> tuple[EnvSpec, dict[str, Any], list[list[Any]]]:
    """Engine, header and messages of an episode: an action and a tool call."""
    with SessionPool(GAME, max_sessions=1, workers=1) as pool:
        first = checksum(pool.create().reset(seed=1))
        spec = pool.spec
    header = {"game": GAME, "kwargs": {}, "session_id": "a", "hold": False, "max_ticks": 0, "tick_rate": None}
    messages = [
        [9, {"seed": 1, "options": None, "sum": first}],
        [10, {"tick": 0, "action": [1.0]}],
        [10, {"tick": 0, "tool": "add", "arguments": {"amount": 1}}],
    ]
    return spec, header, messages


def written(path: Path, spec: EnvSpec, header: dict[str, Any], messages: list[list[Any]]) -> Path:
    writer = TraceWriter(path, spec, SIDE, about=header)
    before: list[Any] = []
    for message in messages:
        if message is not before:  # a hundred thousand times the same is written once
            before = message
            kind, facts = message
            text = facts.encode() if isinstance(facts, str) else json.dumps(facts).encode()
        writer.pieces += [struct.pack("<BdI", kind, 0.0, len(text)), text]
    writer.close()
    return path


def _deep() -> Any:
    found: Any = {}
    for _ in range(500):
        found = {"a": found}
    return found


VALUES: list[Any] = [
    None, True, -1, 2**63, 10**400, 1.5, float("nan"), "x", "[1]", "{", [], [1], {}, {"a": [1]}, [None], [None, None],
    [5, 5], [10**400], [{"a": 1}, -1], ["[]", 0], _deep(),
]  # fmt: skip
WRONG: dict[str, Change] = {
    "no game": lambda header, messages: header.pop("game"),
    "a game that is a number": lambda header, messages: header.update(game=5),
    "kwargs that are a list": lambda header, messages: header.update(kwargs=[1]),
    "hold that is a text": lambda header, messages: header.update(hold="no"),
    "max_ticks below 0": lambda header, messages: header.update(max_ticks=-1),
    "max_ticks that are true": lambda header, messages: header.update(max_ticks=True),
    "a tick rate without end": lambda header, messages: header.update(tick_rate=float("inf")),
    "an unknown kind": lambda header, messages: messages.append([12, {"tick": 0}]),
    "a kind of other traces": lambda header, messages: messages.append([5, {"line": "GET=a"}]),
    "an action before the episode": lambda header, messages: messages.insert(0, messages[1]),
    "a seed that is a text": lambda header, messages: messages[0][1].update(seed="1"),
    "a seed below 0": lambda header, messages: messages[0][1].update(seed=-1),
    "options that are a text": lambda header, messages: messages[0][1].update(options="{broken"),
    "options that are a list": lambda header, messages: messages[0][1].update(options=[1]),
    "a checksum that is a text": lambda header, messages: messages[0][1].update(sum="0"),
    "no checksum": lambda header, messages: messages[0][1].pop("sum"),
    "an action that is a text": lambda header, messages: messages[1][1].update(action="abcd"),
    "an action of texts": lambda header, messages: messages[1][1].update(action=["1"]),
    "an action that is no number of a float": lambda header, messages: messages[1][1].update(action=[10**400]),
    "an action of too many numbers": lambda header, messages: messages[1][1].update(action=[0.0] * 10),
    "an action that is not finite": lambda header, messages: messages[1][1].update(action=[float("nan")]),
    "no action": lambda header, messages: messages[1][1].pop("action"),
    "a tool without a name": lambda header, messages: messages[2][1].update(tool=None),
    "a tool that there is not": lambda header, messages: messages[2][1].update(tool="fly"),
    "arguments that are a list": lambda header, messages: messages[2][1].update(arguments=[1]),
    "no arguments": lambda header, messages: messages[2][1].pop("arguments"),
    "arguments that the tool does not take": lambda header, messages: messages[2][1]["arguments"].update(amount="much"),
    "arguments nested without end": lambda header, messages: messages.append([10, '{"arguments":' * 100_000]),
    "a tick that is a list": lambda header, messages: messages.append([11, {"tick": [1], "sum": 0}]),
    "a tick that is a text": lambda header, messages: messages.append([11, {"tick": "1", "sum": 0}]),
    "a tick without end": lambda header, messages: messages.append([11, {"tick": 10**15, "sum": 0}]),
    "a message that is a list": lambda header, messages: messages.append([11, [1]]),
    "ticks that go back": lambda header, messages: messages.extend(
        [[11, {"tick": 3, "sum": 0}], [11, {"tick": 2, "sum": 0}]]
    ),
    "an observation's checksum that is a list": lambda header, messages: messages.append([11, {"tick": 3, "sum": [0]}]),
    "actions without end": lambda header, messages: messages.extend([messages[1]] * 100_001),
}


def copied(whole: Any) -> tuple[EnvSpec, dict[str, Any], list[list[Any]]]:
    spec, header, messages = whole
    return spec, dict(header), deepcopy(messages)


@pytest.mark.parametrize("what", WRONG)
def test_what_no_session_writes_is_refused(what: str, whole: Any, tmp_path: Path) -> None:
    spec, header, messages = copied(whole)
    WRONG[what](header, messages)
    file = written(tmp_path / "a.replay", spec, header, messages)
    with pytest.raises(ReplayInvalid) as refused, ReplayPlayer(Replay.load(file)) as player:
        list(player.play())
    assert "Nobody expected this" not in str(refused.value)


def test_any_value_in_any_place_is_refused_or_plays(whole: Any, tmp_path: Path) -> None:
    refused = 0
    _, known, said = whole
    places = [(None, key) for key in known] + [(n, key) for n, (_, facts) in enumerate(said) for key in facts]
    for value in VALUES:
        for place, key in places:
            spec, header, messages = copied(whole)
            (header if place is None else messages[place][1])[key] = value
            try:
                Replay.load(written(tmp_path / "a.replay", spec, header, messages))
            except ReplayInvalid:
                refused += 1
    assert refused > len(VALUES) * len(places) // 2


def test_the_command_says_it_in_one_line(whole: Any, tmp_path: Path) -> None:
    spec, header, messages = whole
    done = CliRunner().invoke(cli, ["sessions", "replay", str(written(tmp_path / "a.replay", spec, header, messages))])
    assert done.exit_code == 0, done
    done = CliRunner().invoke(
        cli, ["sessions", "replay", str(written(tmp_path / "b.replay", spec, {**header, "hold": 1}, messages))]
    )
    assert isinstance(done.exception, ReplayInvalid)
    assert "field hold" in str(done.exception)
