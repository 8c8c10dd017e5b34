"""What tools return, in JSON: each kind of Python's values is converted, or the error says what it is and where."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime
import decimal
import enum
import gc
import ipaddress
import itertools
import json
import pathlib
import uuid
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pydantic
import pytest

from tests.plugins.sessions.game import Drift
from ue_rl.bridges.tools import ToolRegistry, tool
from ue_rl.plugins.arena import AgentArena, AgentBehavior, AgentDecision, LLMAgentBehavior, Observation, RunLog, replay
from ue_rl.plugins.arena.backends import ScriptedBackend
from ue_rl.plugins.arena.log import decisions_in
from ue_rl.plugins.arena.scenes import Foraging
from ue_rl.plugins.arena.seats import Outcome
from ue_rl.plugins.sessions.realtime import SessionPool, ToolCall
from ue_rl.system.errors import GameFailed, ToolError
from ue_rl.system.json_values import MAX_VALUES, json_value, readable


class Kind(enum.Enum):
    BERRY = "berry"
    FIRE = 2


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: float
    y: float


@dataclasses.dataclass
class Thing:
    name: str
    kind: Kind = Kind.BERRY
    at: Any = None


class Model(pydantic.BaseModel):
    when: datetime.date
    kinds: set[Kind] = {Kind.FIRE}


def counted() -> Iterator[Any]:
    yield 1
    yield Kind.FIRE


def breaks() -> Iterator[Any]:
    yield 1
    raise LookupError("no more")


class Tensor:
    """As tensors and series of other libraries are."""

    def tolist(self) -> list[float]:
        return [1.0, 2.0]


CONVERTED: list[tuple[Any, Any]] = [
    (None, None), (True, True), ("half \ud800", "half \ud800"), (2**64 - 1, 2**64 - 1), (-(2**63), -(2**63)),
    (Kind.BERRY, "berry"), (Level.LOW, 1), ({Kind.FIRE: Kind.BERRY, Level.LOW: 0}, {"2": "berry", "1": 0}),
    (Thing("a", at=Thing("b")), {"name": "a", "kind": "berry", "at": {"name": "b", "kind": "berry", "at": None}}),
    (Model(when=datetime.date(2020, 1, 2)), {"when": "2020-01-02", "kinds": [2]}),
    (Point(1, 2), [1, 2]), ((1, (2,)), [1, [2]]), ({3, 1, 2}, [1, 2, 3]), ({"b", 1}, ["b", 1]), (frozenset(), []),
    (range(3), [0, 1, 2]), (collections.deque([1]), [1]), (counted(), [1, 2]), ({"a": 1}.items(), [["a", 1]]),
    (map(str, [1]), ["1"]), (collections.Counter("aab"), {"a": 2, "b": 1}), (Tensor(), [1.0, 2.0]),
    (datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.timezone.utc), "2020-01-02T03:00:00+00:00"),
    (datetime.time(3, 4), "03:04:00"), (datetime.timedelta(minutes=1.5), 90.0), (decimal.Decimal("1.10"), "1.10"),
    (Fraction(1, 3), "1/3"), (uuid.UUID(int=1), str(uuid.UUID(int=1))), (pathlib.PurePosixPath("a/b"), "a/b"),
    (ipaddress.ip_address("::1"), "::1"), (b"\xff\x00", "/wA="), (memoryview(b"a"), "YQ=="),
    (np.float32(0.5), 0.5), (np.float64(0.1), 0.1), (np.longdouble(2), 2.0), (np.uint64(2**64 - 1), 2**64 - 1),
    (np.bool_(True), True), (np.str_("a"), "a"), (np.array(3.0), 3.0), (np.zeros((1, 2), np.uint8), [[0, 0]]),
    (np.array([Thing("a")]), [{"name": "a", "kind": "berry", "at": None}]), (np.longdouble([1, 2]), [1.0, 2.0]),
    (np.ma.masked_array([1, 2], [False, True]), [1, None]), (np.ma.masked, None),
    (np.zeros(1, [("hp", "i4"), ("at", "f4", 2)]), [{"hp": 0, "at": [0.0, 0.0]}]),
    (np.datetime64("2020-01-02"), "2020-01-02"), (np.timedelta64(5, "m"), 300.0), (np.datetime64("NaT", "s"), None),
    ({np.int64(8): 2, np.float32(0.5): 3, None: 4, True: 5, 6: 7}, {"8": 2, "0.5": 3, "null": 4, "true": 5, "6": 7}),
    ({datetime.date(2020, 1, 2): 1, pathlib.PurePosixPath("a"): 2}, {"2020-01-02": 1, "a": 2}),
]  # fmt: skip


def _circle() -> list[Any]:
    found: list[Any] = []
    found.append({"a": found})
    return found


def _deep() -> Any:
    found: Any = 0
    for _ in range(3000):
        found = [found]
    return found


REFUSED: list[tuple[Any, str]] = [
    (float("nan"), "nan at result"), ({"a": {"b": [1, float("inf")]}}, "inf at result['a']['b'][1]"),
    (Thing("a", at=float("-inf")), "-inf at result.at"), (np.array([[0, np.nan]]), "nan at result[0][1]"),
    (np.float32("nan"), "nan at result"), (decimal.Decimal("NaN"), "NaN at result"), (1j, "1j at result"),
    (np.complex64(1), "(1+0j) at result"), (np.timedelta64(5, "Y"), "5 years at result"),
    ({float("nan"): 1}, "nan at a key of result"), ({(1, 2): 3}, "a key of type tuple at result"),
    ({"b": {1: 1, "1": 2}}, "two keys that are both '1' in JSON, at result['b']"), ([object()], "object at result[0]"),
    (Thing, "type at result"), (breaks, "function at result"), (Exception("a"), "Exception at result"),
    (2**64, "an integer of more than 64 bits at result"), (10**5000, "an integer of more than 64 bits at result"),
    (_circle(), "a list that contains itself, at result[0]['a']"), (_deep(), "more than 100 levels"),
    (itertools.count(), f"more than {MAX_VALUES:,} values"), (np.zeros(MAX_VALUES), f"more than {MAX_VALUES:,} values"),
]  # fmt: skip
ODD: dict[str, Any] = {f"converted {n}": value for n, (value, _) in enumerate(CONVERTED)}
ODD |= {f"refused {n}": value for n, (value, _) in enumerate(REFUSED)}
ODD["async"] = asyncio.sleep


@tool
def look(what: str) -> Any:
    """Look at something."""
    found = ODD[what]
    return found(0) if what == "async" else found


class Odd(Drift):
    """Its tool returns what no game should return, and what some do."""

    def map_info(self, env_id: int) -> Any:
        return {"kinds": set(Kind), "size": np.array([3, 4])} if self.ticks[env_id] == 0 else {"size": float("nan")}

    @tool
    def look(self, env_id: int, what: str) -> Any:
        """Look at something.

        Args:
            what: to look at.
        """
        return look(what)


@pytest.mark.parametrize("number", range(len(CONVERTED)))
def test_what_python_functions_return_is_converted(number: int) -> None:
    value, expected = CONVERTED[number]
    if isinstance(value, Iterator):  # it can be read once
        value = counted() if expected == [1, 2] else map(str, [1])
    found = json_value(value)
    assert found == expected
    assert type(found) is type(expected)
    assert json.loads(json.dumps(found, allow_nan=False)) == expected


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_json_cannot_hold_is_an_error_that_names_tool_type_and_place(number: int) -> None:
    registry = ToolRegistry()
    registry.add(look)
    with pytest.raises(ToolError) as failed:
        registry.answer("look", {"what": f"refused {number}"})
    assert failed.value.code == "TOOL_EXECUTION_FAILED"
    assert "the tool 'look' was called" in str(failed.value)
    assert REFUSED[number][1] in str(failed.value)
    assert len(str(failed.value)) < 1500


def test_what_raises_while_it_is_read_and_an_async_function() -> None:
    registry = ToolRegistry()
    registry.add(look)
    ODD["breaks"] = breaks()
    with pytest.raises(ToolError, match="the tool 'look' failed: LookupError: no more"):
        registry.answer("look", {"what": "breaks"})
    with warnings.catch_warnings(), pytest.raises(ToolError, match="a coroutine at result: an async function"):
        warnings.simplefilter("error")
        registry.answer("look", {"what": "async"})
        gc.collect()


def test_a_session_tells_what_its_tools_returned_or_why_it_cannot() -> None:
    with SessionPool(Odd, max_sessions=1) as pool:
        session = pool.create()

        def told(what: str) -> dict[str, Any]:
            (answer,) = session.advance(0, [ToolCall("look", {"what": what})]).info["tools"]
            return dict(answer)

        assert told("converted 8") == {"tool": "look", "result": CONVERTED[8][1]}
        assert told("converted 0") == {"tool": "look", "result": None}
        answer = told("refused 1")
        assert answer["code"] == "TOOL_EXECUTION_FAILED"
        assert "'look'" in answer["error"]
        assert "inf at result['a']['b'][1]" in answer["error"]
        assert "result" not in answer
        assert session.map_info().result(20) == {"kinds": ["berry", 2], "size": [3, 4]}
        session.advance(1)
        with pytest.raises(GameFailed, match=r"map_info.*nan at map_info\['size'\]"):
            session.map_info().result(20)
        assert session.advance(1).tick == 2, "the session goes on"


class Scene(Foraging):
    """A scene whose tool returns odd things."""

    @tool
    def look(self, agent: str, what: str) -> Any:
        """Look at something."""
        return look(what)


class Looks(AgentBehavior):
    """Looks at one thing after the other."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def decide(self, observation: Observation, tools: Any) -> AgentDecision:
        self.results.append(observation.tool_result)
        return AgentDecision("look", {"what": ["converted 9", "refused 0", "refused 12"][len(self.results) % 3 - 1]})


def test_an_agent_that_plays_in_process_gets_them_too(tmp_path: Any) -> None:
    mind = Looks()
    AgentArena.play(Scene(), mind, log=RunLog(tmp_path))
    assert mind.results[1].result == CONVERTED[9][1]
    assert not mind.results[2].success
    assert "nan at result" in mind.results[2].error
    assert "object at result[0]" in mind.results[3].error


def test_tools_over_http_get_them_too(client: Any) -> None:
    registry = ToolRegistry()
    registry.add(look)
    asks = client(tools=registry)
    said = asks("/tools/execute", {"tool": "look", "params": {"what": "converted 9"}})
    assert said == (200, {"success": True, "result": CONVERTED[9][1], "error": ""})
    status, said = asks("/tools/execute", {"tool": "look", "params": {"what": "refused 1"}})
    assert (status, said["error_code"]) == (200, "TOOL_EXECUTION_FAILED")
    assert "inf at result['a']['b'][1]" in said["detail"]


def test_the_parameters_of_a_decision_are_converted_by_the_same_rules() -> None:
    class Numbers(AgentBehavior):
        def decide(self, observation: Observation, tools: Any) -> Any:
            speed = np.float32(2) if observation.tick else float("nan")
            return AgentDecision("move_to", {"target_position": np.array([1.0, 0.0, 2.0]), "speed": speed})

    arena = AgentArena(deadline=None)
    arena.register("a", Numbers())

    def decided(tick: int) -> Outcome:
        return arena.tick([Observation(agent_id="a", tick=tick)])[0]

    assert decided(1).decision.params == {"target_position": [1.0, 0.0, 2.0], "speed": 2.0}
    assert decided(0).code == "INVALID_PARAMETERS"
    assert "nan at params['speed']" in str(decided(0).message)


class Untidy(Foraging):
    """A scene that says, counts and rewards in whatever types it has."""

    max_ticks = 3

    def told(self, body: Any) -> dict[str, Any]:
        return {"speed": float("nan"), "at": {(1, 2): 3}, "what": object(), "near": np.arange(2), "more": {5: {1}}}

    def metrics(self) -> dict[str, Any]:
        return {"score": np.float32(0.5), "count": np.int64(2), "kinds": {Kind.FIRE}, "far": float("inf")}

    def reward(self, agent: str) -> Any:
        return np.float32(0.25)


def test_what_a_scene_says_in_odd_types_ends_no_game_and_no_log(tmp_path: Any) -> None:
    """Neither the prompt, nor the log, nor the replay, nor what is written when all is over."""
    mind = LLMAgentBehavior(ScriptedBackend([{"tool": "idle"}]))
    (episode,) = AgentArena.play(Untidy(), mind, log=RunLog(tmp_path), replay=tmp_path / "replay.msgpack")
    assert episode.metrics == {"score": 0.5, "count": 2, "kinds": [2], "far": "inf"}
    assert json.loads(json.dumps(dataclasses.asdict(episode)))["returns"] == {"forager": 0.75}
    assert '"near": [0, 1]' in mind.backend.prompts[0]  # type: ignore[attr-defined]
    rows = list(decisions_in(tmp_path))
    assert len(rows) == 3
    custom = rows[0]["observation"]["custom"]
    assert (custom["speed"], custom["near"], custom["more"]) == ("nan", [0, 1], {"5": [1]})
    assert "NaN" not in (tmp_path / "decisions.jsonl").read_text("utf-8")
    assert replay(tmp_path / "replay.msgpack", Untidy()) == 3


def test_what_is_shown_never_raises_and_has_an_end() -> None:
    assert readable({"a": [float("nan"), 1], "b": itertools.count()}) == "<dict>"
    assert readable([float("nan"), {"a": object}, _circle()[:0]]) == ["nan", {"a": "<class 'object'>"}, []]
    assert "[" in str(readable(_circle()))
    assert readable(breaks()) == "<generator>"
