"""What tools return, in JSON, wherever they are called; tests/system/test_json_values.py has each kind of value."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import gc
import json
import warnings
from typing import Any

import numpy as np
import pydantic
import pytest

from tests.plugins.sessions.game import Drift
from tests.support.json_cases import CONVERTED, REFUSED, Kind, breaks
from ue_rl.bridges.tools import ToolRegistry, tool
from ue_rl.plugins.arena import (
    AgentArena,
    AgentBehavior,
    AgentDecision,
    AgentObservation,
    LLMAgentBehavior,
    RunLog,
    replay,
)
from ue_rl.plugins.arena.backends import ScriptedBackend
from ue_rl.plugins.arena.log import decisions_in
from ue_rl.plugins.arena.scenes import Foraging
from ue_rl.plugins.arena.seats import Decision
from ue_rl.plugins.sessions.realtime import SessionPool, ToolCall
from ue_rl.system.errors import GameFailed, ToolError


class Model(pydantic.BaseModel):
    when: datetime.date
    kinds: set[Kind] = {Kind.FIRE}


MODEL = {"when": "2020-01-02", "kinds": [2]}
ODD: dict[str, Any] = {f"converted {n}": value for n, (value, _) in enumerate(CONVERTED)}
ODD |= {f"refused {n}": value for n, (value, _) in enumerate(REFUSED)}
ODD["model"] = Model(when=datetime.date(2020, 1, 2))
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

    def decide(self, observation: AgentObservation, tools: Any) -> AgentDecision:
        self.results.append(observation.tool_result)
        return AgentDecision("look", {"what": ["model", "refused 0", "refused 12"][len(self.results) % 3 - 1]})


def test_an_agent_that_plays_in_process_gets_them_too(tmp_path: Any) -> None:
    mind = Looks()
    AgentArena.play(Scene(), mind, log=RunLog(tmp_path))
    assert mind.results[1].result == MODEL
    assert not mind.results[2].success
    assert "nan at result" in mind.results[2].error
    assert "object at result[0]" in mind.results[3].error


def test_tools_over_http_get_them_too(client: Any) -> None:
    registry = ToolRegistry()
    registry.add(look)
    asks = client(tools=registry)
    said = asks("/tools/execute", {"tool": "look", "params": {"what": "model"}})
    assert said == (200, {"success": True, "result": MODEL, "error": ""})
    status, said = asks("/tools/execute", {"tool": "look", "params": {"what": "refused 1"}})
    assert (status, said["error_code"]) == (200, "TOOL_EXECUTION_FAILED")
    assert "inf at result['a']['b'][1]" in said["detail"]


def test_the_parameters_of_a_decision_are_converted_by_the_same_rules() -> None:
    class Numbers(AgentBehavior):
        def decide(self, observation: AgentObservation, tools: Any) -> Any:
            speed = np.float32(2) if observation.tick else float("nan")
            return AgentDecision("move_to", {"target_position": np.array([1.0, 0.0, 2.0]), "speed": speed})

    arena = AgentArena(deadline=None)
    arena.register("a", Numbers())

    def decided(tick: int) -> Decision:
        return arena.tick([AgentObservation(agent_id="a", tick=tick)])[0]

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
    (episode,) = AgentArena.play(Untidy(), mind, log=RunLog(tmp_path), replay=tmp_path / "replay.trace")
    assert episode.metrics == {"score": 0.5, "count": 2, "kinds": [2], "far": "inf"}
    assert json.loads(json.dumps(dataclasses.asdict(episode)))["returns"] == {"forager": 0.75}
    assert '"near": [0, 1]' in mind.backend.prompts[0]  # type: ignore[attr-defined]
    rows = list(decisions_in(tmp_path))
    assert len(rows) == 3
    custom = rows[0]["observation"]["custom"]
    assert (custom["speed"], custom["near"], custom["more"]) == ("nan", [0, 1], {"5": [1]})
    assert "NaN" not in (tmp_path / "decisions.jsonl").read_text("utf-8")
    assert replay(tmp_path / "replay.trace", Untidy()) == 3
