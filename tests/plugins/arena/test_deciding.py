"""All agents of a tick decide side by side; what one does wrong is its own decision's end."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.full import no_file_beyond
from ue_rl.plugins.arena import (
    AgentArena,
    AgentBehavior,
    AgentDecision,
    AgentObservation,
    RulesBehavior,
    RunLog,
    replay,
)
from ue_rl.plugins.arena.log import decisions_in, summaries_in
from ue_rl.plugins.arena.memory import SlidingWindow
from ue_rl.plugins.arena.scenes import Foraging
from ue_rl.system.errors import ConfigurationError, ResourceExhausted


class Does(AgentBehavior):
    """Does what it is given; keeps what it is told."""

    def __init__(self, decide: Any) -> None:
        self._decide = decide
        self.told: list[Any] = []

    def decide(self, observation: AgentObservation, tools: Any) -> Any:
        self.told.append(observation.tick)
        return self._decide(observation)

    def on_episode_start(self) -> None:
        self.told.append("start")

    def on_tool_result(self, result: Any) -> None:
        self.told.append(result.tool)

    def on_episode_end(self, success: bool, metrics: Any) -> None:
        self.told.append((success, metrics))


def seen(agent_id: str = "a", tick: int = 1, **fields: Any) -> AgentObservation:
    return AgentObservation(agent_id=agent_id, tick=tick, **fields)


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
        arena.register(f"sleeps{n}", Does(lambda _: time.sleep(30)))
        for tick in range(5):
            arena.tick([seen(f"sleeps{n}", tick)])
    assert sum("sleeps" in thread.name for thread in threading.enumerate()) <= 3, "one thread an agent"
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


def test_a_call_that_was_refused_comes_back_as_its_result() -> None:
    calls = iter(["format_disk", {"tool": "drop", "params": {}}, "idle", "idle"])
    results: list[Any] = []
    behavior = Does(lambda observation: results.append(observation.tool_result) or next(calls))
    arena = AgentArena(deadline=None)
    arena.register("a", behavior)
    idled = {"tool": "idle", "success": True}  # what the game did instead
    for tick in range(4):
        arena.tick([seen(tick=tick, tool_result=idled)])
    assert [(result.tool, result.success) for result in results] == [
        ("idle", True), ("format_disk", False), ("drop", False), ("idle", True)
    ]  # fmt: skip
    assert "there is no tool 'format_disk'" in results[1].error
    assert behavior.told.count("format_disk") == 1


def test_an_agent_that_leaves_while_it_is_asked_keeps_nobody_waiting() -> None:
    arena, behavior = AgentArena(deadline=None), Does(lambda _: "idle")
    arena.register("a", behavior)
    seat = arena._seat("a")
    assert seat is not None
    arena.unregister("a")  # by another thread, after the tick has found its seat
    assert isinstance(seat.ask(seen(), arena.tools, inline=False).exception(20), ResourceExhausted)


def test_an_agent_may_end_its_own_episode() -> None:
    arena = AgentArena(deadline=None)
    behavior = Does(lambda _: arena.end_episode("a", True, {}, inline=True))
    arena.register("a", behavior)
    assert arena.tick([seen()])[0].code is None
    assert behavior.told == ["start", 1, (True, {})]


def test_an_instance_plays_one_agent() -> None:
    arena, behavior = AgentArena(), RulesBehavior()
    arena.register("a", behavior)
    with pytest.raises(ConfigurationError, match="plays agent 'a' already"):
        arena.register("b", behavior)
    arena.unregister("a")
    arena.register("b", behavior)
    with pytest.raises(ConfigurationError, match="not a behaviour"):
        arena.register("c", "rules")  # type: ignore[arg-type]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def circle() -> Any:
    found: dict[str, Any] = {}
    found["self"] = found
    return found


def raises(error: BaseException) -> Any:
    raise error


class Short(Foraging):
    max_ticks = 3


class Tries(Does):
    """Leaves a trace, then does what it is given."""

    def decide(self, observation: AgentObservation, tools: Any) -> Any:
        tools.clear()  # they are nobody else's
        said, trace = self._decide(observation)
        self.trace = trace
        return said


@pytest.mark.parametrize(
    ("decide", "code"),
    [
        (lambda _: (42, {}), "PARSING_ERROR"),
        (lambda _: ({"tool": 7}, {}), "PARSING_ERROR"),
        (lambda _: (AgentDecision("x" * 1_000_000), {}), "PARSING_ERROR"),
        (lambda _: (AgentDecision("format_disk"), {}), "TOOL_NOT_FOUND"),
        (lambda _: (AgentDecision("move_to"), {}), "INVALID_PARAMETERS"),
        (lambda _: (AgentDecision("move_to", {"target_position": [0, 0, float("nan")]}), {}), "INVALID_PARAMETERS"),
        (lambda _: (AgentDecision("drop", {"item_name": "x" * 1_000_000}), {}), "INVALID_PARAMETERS"),
        (lambda _: (AgentDecision("drop", {"item_name": object()}), {}), "INVALID_PARAMETERS"),
        (lambda _: raises(RuntimeError("broken")), "DECISION_FAILED"),
        (lambda _: ("idle", "a text"), None),
        (lambda _: ("idle", {(1, 2): 3}), None),
        (lambda _: ("idle", circle()), None),
        (lambda _: ("idle", {"half": "\ud800", "nan": float("nan"), "of ours": object()}), None),
        (lambda _: ("idle", {"long": "x" * 2_000_000}), None),
        (lambda _: ({"tool": "idle", "reasoning": "\ud800"}, {}), None),
        (lambda _: (AgentDecision("drop", {"item_name": "\ud800"}), {}), None),
        (lambda _: (AgentDecision("\ud800"), {}), "TOOL_NOT_FOUND"),
        (lambda _: (AgentDecision("idle", {f"a{n}": n for n in range(5000)}), {}), "INVALID_PARAMETERS"),
        (lambda _: (AgentDecision("move_to", {"target_position": [10**30, 0, 0]}), {}), "INVALID_PARAMETERS"),
        (lambda _: raises(Unspeakable()), "DECISION_FAILED"),
        (lambda _: raises(SystemExit(3)), "DECISION_FAILED"),
        (lambda _: raises(KeyboardInterrupt()), "DECISION_FAILED"),
        (lambda _: raises(TimeoutError("x" * 1_000_000)), "LLM_TIMEOUT"),
    ],
)
def test_whatever_a_behaviour_does_ends_its_own_decision_alone(decide: Any, code: str | None, tmp_path: Path) -> None:
    arena = AgentArena(deadline=20, log=RunLog(tmp_path))
    arena.register("a", Tries(decide))
    arena.register("b", Does(lambda _: AgentDecision("stop_movement")))
    bad, good = arena.tick([seen("a"), seen("b")])
    arena.close()
    assert (bad.code, good.code, good.decision.tool) == (code, None, "stop_movement")
    assert len(bad.decision.reasoning) < 1000
    assert code is None or (bad.decision.tool == "idle" and bad.decision.reasoning.startswith("Error: "))
    json.dumps(dict(bad.trace), allow_nan=False)
    assert [row["code"] for row in decisions_in(tmp_path)] == [code, None]
    if code != "DECISION_FAILED":  # a Ctrl-C goes through where no thread is between
        AgentArena.play(Short(), Tries(decide), replay=tmp_path / "log")
        assert replay(tmp_path / "log", Short()) == 3


def test_rules_of_yours_that_hang_hold_nobody() -> None:
    class Hangs(RulesBehavior):
        def decide(self, observation: AgentObservation, tools: Any) -> Any:
            time.sleep(20)

    arena = AgentArena(deadline=0.05)
    arena.register("a", Hangs())
    arena.behaviors["b"] = object()  # type: ignore[assignment]
    hung, junk = arena.tick([seen("a"), seen("b")])
    assert (hung.code, junk.code) == ("LLM_TIMEOUT", "DECISION_FAILED")
    arena.close()


def test_an_episode_that_began_while_an_agent_was_slow() -> None:
    going_on = threading.Event()
    behavior = Does(lambda observation: going_on.wait(20) and "idle")
    arena = AgentArena(deadline=0.05)
    arena.register("a", behavior)
    for tick in (50, 0, 1):  # the game begins anew
        arena.tick([seen(tick=tick)])
    going_on.set()
    arena.register("a", behavior, deadline=20)
    arena.tick([seen(tick=2)])
    arena.tick([seen(tick=3)])
    assert behavior.told == ["start", 50, "start", 3]
    arena.close()


async def test_nothing_grows_while_an_agent_hangs() -> None:
    arena = AgentArena(deadline=0.001)
    arena.register("a", Does(lambda _: time.sleep(20)))
    futures = []
    for tick in range(50):
        await arena.tick_async([seen(tick=tick)])
        arena.end_episode("a", True, {})
        if tick in (1, 49):  # each look at all objects takes long
            futures.append(sum(isinstance(each, asyncio.Future) for each in gc.get_objects()))
    assert futures[1] <= futures[0]
    assert arena.counts["DECISION_FAILED"] >= 40, "its thread has no place for more"
    arena.close()


def test_it_is_never_called_twice_at_once() -> None:
    inside: list[int] = []
    most: list[int] = []

    class Counts(AgentBehavior):
        inline = True

        def decide(self, observation: AgentObservation, tools: Any) -> Any:
            inside.append(1)
            time.sleep(0.002)
            most.append(len(inside))
            inside.pop()

    arena = AgentArena(deadline=None)
    arena.register("a", Counts())
    threads = [threading.Thread(target=lambda: [arena.tick([seen()]) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1


def test_a_full_disk_ends_the_log_and_not_the_game(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = RunLog(tmp_path)
    with no_file_beyond(0):
        (episode,) = AgentArena.play(Foraging(), RulesBehavior(), log=log)
    assert episode.ticks > 10
    assert [record.message for record in caplog.records] == [
        "the log ends here, the game goes on: [Errno 27] File too large"
    ]


def test_the_end_of_an_episode_is_on_the_disk(tmp_path: Path) -> None:
    behavior = Does(lambda _: "idle")
    behavior.memory = SlidingWindow()
    behavior.memory.store("the door is red")
    arena = AgentArena(deadline=None, log=RunLog(tmp_path))
    arena.register("a", behavior)
    arena.tick([seen()])
    arena.end_episode("a", True, {"score": 3}, inline=True)
    assert list(summaries_in(tmp_path)) == [
        {"agent_id": "a", "success": True, "metrics": {"score": 3}, "summary": "the door is red"}
    ]
    assert behavior.told[-1] == (True, {"score": 3})
