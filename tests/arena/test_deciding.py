"""All agents of a tick decide side by side; what one does wrong is its own decision's end."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from ue_rl.arena import AgentArena, AgentBehavior, AgentDecision, Observation, RulesBehavior
from ue_rl.arena.types import observation_of
from ue_rl.errors import ConfigurationError


class Does(AgentBehavior):
    """Does what it is given; keeps what it is told."""

    def __init__(self, decide: Any) -> None:
        self._decide = decide
        self.told: list[Any] = []

    def decide(self, observation: Observation, tools: Any) -> Any:
        self.told.append(observation.tick)
        return self._decide(observation)

    def on_episode_start(self) -> None:
        self.told.append("start")

    def on_tool_result(self, result: Any) -> None:
        self.told.append(result.tool)

    def on_episode_end(self, success: bool, metrics: Any) -> None:
        self.told.append((success, metrics))


def seen(agent_id: str = "a", tick: int = 1, **fields: Any) -> Observation:
    return observation_of({"agent_id": agent_id, "tick": tick, **fields})


def test_an_empty_registry_stays_the_same_object() -> None:
    behaviors: dict[str, AgentBehavior] = {}
    arena = AgentArena(behaviors)
    assert arena.behaviors is behaviors
    behaviors["a"] = Does(lambda _: AgentDecision("idle", {}, "mine"))
    assert arena.tick([seen()])[0].decision.reasoning == "mine"


def test_agents_decide_side_by_side() -> None:
    """Each waits until all are within decide(): one after the other none would ever return."""
    meeting = threading.Barrier(10)
    arena = AgentArena(deadline=20)
    for n in range(10):
        arena.register(f"a{n}", Does(lambda _: AgentDecision("idle", {}, str(meeting.wait(20)))))
    outcomes = arena.tick([seen(f"a{n}") for n in range(10)])
    assert [outcome.code for outcome in outcomes] == [None] * 10
    arena.close()


def test_a_slow_agent_is_idle_and_holds_nobody() -> None:
    going_on = threading.Event()

    def slow(_: Any) -> Any:
        going_on.wait(20)
        return AgentDecision("stop_movement", {}, "at last")

    behavior = Does(slow)
    arena = AgentArena(deadline=0.05)
    arena.register("slow", behavior)
    arena.register("quick", Does(lambda _: "idle"), deadline=20)
    for tick in (1, 2):
        late, prompt = arena.tick([seen("slow", tick), seen("quick", tick)])
        assert (late.code, late.decision.tool) == ("LLM_TIMEOUT", "idle")
        assert prompt.code is None
    going_on.set()
    arena.register("slow", behavior, deadline=20)
    assert arena.tick([seen("slow", 3)])[0].decision.reasoning == "at last"
    assert behavior.told == ["start", 1], "it was asked again while it decided"
    assert arena.counts["LLM_TIMEOUT"] == 2
    arena.close()


def test_ending_does_not_wait_for_an_agent_that_hangs() -> None:
    arena = AgentArena(deadline=0.02)
    for n in range(3):
        arena.register(f"hangs{n}", Does(lambda _: time.sleep(30)))
        for tick in range(5):
            arena.tick([seen(f"hangs{n}", tick)])
    assert sum("hangs" in thread.name for thread in threading.enumerate()) <= 3, "one thread an agent"
    arena.close()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (42, "PARSING_ERROR"),
        ({"tool": 7}, "PARSING_ERROR"),
        (AgentDecision("format_disk"), "TOOL_NOT_FOUND"),
        (AgentDecision("x" * 1_000_000), "PARSING_ERROR"),
        (AgentDecision("move_to"), "INVALID_PARAMETERS"),
        (AgentDecision("move_to", {"target_position": [0, 0, float("nan")]}), "INVALID_PARAMETERS"),
        (AgentDecision("drop", {"item_name": "x" * 1_000_000}), "INVALID_PARAMETERS"),
        (AgentDecision("drop", {"item_name": object()}), "INVALID_PARAMETERS"),
        (RuntimeError("broken"), "DECISION_FAILED"),
        (TimeoutError("the model is slow"), "LLM_TIMEOUT"),
    ],
)
def test_a_wrong_decision_is_idle_with_its_reason(said: Any, code: str) -> None:
    def decide(_: Any) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    arena = AgentArena()
    arena.register("a", Does(decide))
    (outcome,) = arena.tick([seen()])
    assert (outcome.decision.tool, outcome.code) == ("idle", code)
    assert outcome.decision.reasoning.startswith("Error: ")
    assert len(str(outcome.trace)) + len(outcome.decision.reasoning) < 3000
    arena.close()


def test_a_new_episode_and_the_result_of_a_call() -> None:
    behavior = Does(lambda _: None)
    arena = AgentArena(deadline=None)
    arena.register("a", behavior)
    result = {"tool": "craft", "success": True, "result": 1, "error": "", "duration_ticks": 3}
    for each in (seen(tick=0), seen(tick=1, tool_result=result), seen(tick=5), seen(tick=4), seen(tick=1)):
        arena.tick([each])
    assert behavior.told == ["start", 0, "craft", 1, 5, 4, "start", 1]
    arena.execute("measure_distance", {"target_position": [0, 0, 0]}, "a")
    arena.tick([seen(tick=2)])
    arena.end_episode("a", True, {"score": 1}, inline=True)
    assert behavior.told[8:] == ["measure_distance", 2, (True, {"score": 1})]
    arena.close()


def test_an_instance_plays_one_agent() -> None:
    arena, behavior = AgentArena(), RulesBehavior()
    arena.register("a", behavior)
    with pytest.raises(ConfigurationError, match="plays agent 'a' already"):
        arena.register("b", behavior)
    arena.unregister("a")
    arena.register("b", behavior)
    with pytest.raises(ConfigurationError, match="not a behaviour"):
        arena.register("c", "rules")  # type: ignore[arg-type]
