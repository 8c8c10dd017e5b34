"""Tier 3 with a scripted model, and with a stand-in of llama-cpp-python."""

from __future__ import annotations

import enum
import json
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ue_rl.bridges.tools import ToolRegistry, ToolSchema
from ue_rl.plugins.arena import AgentArena, AgentDecision, LLMAgentBehavior
from ue_rl.plugins.arena.backends import Answer, Backend, BackendRefused, LlamaBackend, ScriptedBackend, decision_schema
from ue_rl.plugins.arena.log import RunLog
from ue_rl.plugins.arena.memory import SlidingWindow
from ue_rl.plugins.arena.scenes import Foraging
from ue_rl.plugins.arena.types import AgentObservation, Item, ToolResult, VisibleObject

SEEN = AgentObservation(agent_id="a", tick=3, health=70)
MOVE = {"tool": "move_to", "params": {"target_position": [1, 0, 1]}, "reasoning": "why not"}


def arena_of(behavior: LLMAgentBehavior, **options: Any) -> AgentArena:
    arena = AgentArena(deadline=None, **options)
    arena.register("a", behavior)
    return arena


def asked(*lines: Any, **options: Any) -> tuple[LLMAgentBehavior, Any]:
    behavior = LLMAgentBehavior(ScriptedBackend(lines), **options)
    (outcome,) = arena_of(behavior).tick([SEEN])
    return behavior, outcome


def test_a_prompt_has_what_a_model_needs() -> None:
    behavior, outcome = asked(MOVE, system_prompt="You are a fox.")
    assert outcome.decision.tool == "move_to"
    (prompt,) = behavior.backend.prompts  # type: ignore[attr-defined]
    assert prompt.startswith("You are a fox.")
    for part in ("- move_to(target_position, speed?): Walk to a point.", "health 70", "position (0.0, 0.0, 0.0)"):
        assert part in prompt
    assert outcome.trace["prompt"] == prompt
    assert outcome.trace["tokens"] > 20


def test_plan_memory_and_reflection_are_in_the_next_prompts() -> None:
    lines = ["Win\n1. find berries\n2. eat", MOVE, MOVE, "Go faster.", MOVE]
    behavior = LLMAgentBehavior(ScriptedBackend(lines), SlidingWindow(20), plan_every=5, reflect_every=2, remembered=9)
    arena = arena_of(behavior, tools=Foraging().tools)
    arena.tick([SEEN])
    result = ToolResult(tool="collect", success=False, error="too far")
    for tick in (4, 5):
        arena.tick([AgentObservation(agent_id="a", tick=tick, tool_result=result)])
    prompts = behavior.backend.prompts  # type: ignore[attr-defined]
    assert "Your plan: Win: find berries; eat" in prompts[1]
    assert "collect failed: too far" in prompts[2]
    assert "tick 5: Go faster." in prompts[4]
    assert [step["kind"] for step in behavior.reasoning_trace][:4] == ["plan", "decision", "result", "decision"]
    arena.end_episode("a", True, {"score": 3}, inline=True)
    assert "the episode was won: score 3" in behavior.memory.summarize()
    assert behavior.memory.retrieve("episode won", 1)[0].priority == 1


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("complete garbage", "PARSING_ERROR"),
        ('{"tool": "move_to", "params": {"target_pos', "PARSING_ERROR"),
        (TimeoutError("slow"), "LLM_TIMEOUT"),
        (ConnectionError("down"), "LLM_TIMEOUT"),
        ({"tool": "format_disk", "params": {}}, "TOOL_NOT_FOUND"),
        ({"tool": "move_to", "params": {"target_position": "there"}}, "INVALID_PARAMETERS"),
        ("x" * 3_000_000, "PARSING_ERROR"),
        (KeyError("bug"), "DECISION_FAILED"),
    ],
)
def test_what_a_model_does_wrong_is_idle_and_logged(line: Any, code: str) -> None:
    _, outcome = asked(line)
    assert (outcome.decision.tool, outcome.code) == ("idle", code)
    assert "You are an agent" in outcome.trace["prompt"]
    assert len(json.dumps(outcome.trace)) < 20_000


def test_parameters_beside_the_tool_are_not_lost() -> None:
    """`collect` takes none, too: without its name another berry would be taken."""
    call = {"tool": "collect", "item_name": "berry_3", "confidence": 0.9, "reasoning": "near"}
    assert asked(call)[1].decision == AgentDecision("collect", {"item_name": "berry_3"}, "near")
    assert asked({"action": "move_to", "target_position": [1, 0, 1], "speed": 2})[1].decision.params == {
        "target_position": [1, 0, 1], "speed": 2,
    }  # fmt: skip
    assert asked({"tool": "idle", "confidence": 0.9})[1].code is None
    assert AgentDecision.from_llm_response(json.dumps(call)).params == {}, "which tools there are is not known"


def test_the_same_model_twice_gives_the_same_episode() -> None:
    def run() -> Any:
        log = RunLog()
        (episode,) = AgentArena.play(
            Foraging(), LLMAgentBehavior(ScriptedBackend([MOVE, {"tool": "collect"}])), log=log
        )
        return episode.score, episode.tokens, [outcome.decision for outcome in log.recent]

    assert run() == run()


def test_the_schema_of_a_decision_allows_the_tools_and_nothing_else() -> None:
    whole = decision_schema(Foraging().tools.schemas())
    assert (whole["type"], whole["required"], whole["additionalProperties"]) == ("object", ["decision"], False)
    (move, *_) = whole["properties"]["decision"]["anyOf"]
    assert move["properties"]["tool"] == {"const": "move_to"}
    assert move["properties"]["params"]["required"] == ["target_position", "speed"]
    assert move["properties"]["params"]["additionalProperties"] is False
    schema = json.dumps(decision_schema(Foraging().tools.schemas()))
    assert '"maxLength": 80' in schema
    assert "default" not in schema


class Kind(enum.Enum):
    HARD = "hard"
    SOFT = "soft"


class Cell(BaseModel):
    """A parameter with names of its own."""

    title: str
    row: int = 0


def craft(cell: Cell, kind: Kind, near: list[Cell] = []) -> None:  # noqa: B006
    """Make something."""


def mine(cell: Cell) -> None:
    """Dig."""


def test_the_schema_of_a_decision_holds_for_tools_with_definitions_of_their_own() -> None:
    jsonschema: Any = pytest.importorskip("jsonschema", reason="comes with the package mcp")
    registry = ToolRegistry()
    registry.add(craft)
    registry.add(mine)
    schema = decision_schema(registry.schemas())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    cell = {"title": "a", "row": 1}
    call = {"tool": "craft", "params": {"cell": cell, "kind": "soft", "near": [cell]}}
    validator.validate({"decision": call})
    validator.validate({"decision": {"tool": "mine", "params": {"cell": cell}}})
    for wrong in ({**call, "tool": "mine"}, {**call, "params": {**call["params"], "kind": "wet"}}, {"tool": "craft"},
                  {**call, "params": {**call["params"], "near": [{"row": 1}]}}):  # fmt: skip
        assert not validator.is_valid({"decision": wrong})
    assert AgentDecision.from_llm_response(json.dumps({"decision": call})).params == call["params"]


def test_plans_and_reflections_have_no_thoughts() -> None:
    lines = ["<think>Lose?</think>\nWin\n1. eat", MOVE, "<think>hm</think>Go faster.", MOVE]
    behavior = LLMAgentBehavior(ScriptedBackend(lines), plan_every=9, reflect_every=1)
    arena = arena_of(behavior)
    for _ in range(2):
        arena.tick([SEEN])
    assert behavior.current_plan == {"goal": "Win", "steps": ["eat"]}
    assert [step["text"] for step in behavior.reasoning_trace if step["kind"] == "reflection"] == ["Go faster."]


def test_a_model_that_is_down_while_it_plans_or_reflects() -> None:
    assert asked(ConnectionError("down"), plan_every=1)[1].code == "LLM_TIMEOUT"
    behavior = LLMAgentBehavior(ScriptedBackend([MOVE, TimeoutError("slow"), MOVE]), reflect_every=1)
    arena = arena_of(behavior)
    assert [arena.tick([SEEN])[0].code for _ in range(3)] == [None, "LLM_TIMEOUT", None]


def test_agents_share_a_backend() -> None:
    """Its cache is smaller than what they ask at once."""

    class Echoes(Backend):
        def _generate(self, prompt: str, tools: Any, max_tokens: int) -> Answer:
            return Answer(prompt, 1, 1)

    backend = Echoes(cache=2)
    wrong: list[Any] = []

    def ask() -> None:
        for n in range(3000):
            try:
                assert backend.generate(f"{n % 5}").text == f"{n % 5}"
            except Exception as error:  # noqa: BLE001 - of whatever kind
                wrong.append(error)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(switch)
    assert wrong == []
    assert backend.tokens == backend.asked


def test_what_a_model_or_a_game_says_without_end_does_not_fill_the_prompt() -> None:
    behavior = LLMAgentBehavior(ScriptedBackend([{"tool": "drop", "params": {"item_name": "x" * 50_000}}]))
    arena = arena_of(behavior)
    long = "y" * 60_000
    seen = SEEN.model_copy(update={"nearby_resources": [VisibleObject(name=long)] * 9, "inventory": [Item(name=long)]})
    for _ in range(8):
        arena.tick([seen])
    assert len(behavior.backend.prompts[-1]) < 20_000  # type: ignore[attr-defined]
    assert len(json.dumps(list(behavior.reasoning_trace))) < 20_000


class _Llama:
    """What LlamaBackend needs of llama_cpp.Llama; it says its first word for ever."""

    def __init__(self, model_path: str, n_ctx: int, n_threads: int | None, verbose: bool, **options: Any) -> None:
        if "broken" in model_path or options:
            raise ValueError(f"Failed to load model from file: {model_path} {options}")
        self._context = n_ctx
        self.asked: list[dict[str, Any]] = []

    def n_ctx(self) -> int:
        return self._context

    def tokenize(self, text: bytes) -> list[int]:
        return list(text.split())  # type: ignore[arg-type]

    def create_chat_completion(self, **asked: Any) -> Any:
        self.asked.append(asked)
        return [{"choices": [{"delta": {"content": json.dumps(MOVE)}}]}]


class _Grammar:
    @staticmethod
    def from_json_schema(schema: str, verbose: bool) -> str:
        if "rows of cells" in schema:
            raise RuntimeError("unrecognized schema")
        return schema


def test_a_model_in_this_process_that_cannot_be_used_is_a_refusal(monkeypatch: Any, tmp_path: Path) -> None:
    stand_in: Any = types.ModuleType("llama_cpp")
    stand_in.Llama, stand_in.LlamaGrammar = _Llama, _Grammar
    monkeypatch.setitem(sys.modules, "llama_cpp", stand_in)
    good, broken = tmp_path / "good.gguf", tmp_path / "broken.gguf"
    for file in (good, broken):
        file.write_bytes(b"GGUF")
    tools = Foraging().tools.schemas()
    backend = LlamaBackend(good)
    assert json.loads(backend.generate_with_tools("go", tools).text) == MOVE
    backend.generate("on", 9)
    assert [asked["max_tokens"] for asked in backend._model.asked] == [256, 9]
    assert json.loads(backend._model.asked[0]["grammar"]) == decision_schema(tools)
    assert backend._model.asked[1]["grammar"] is None
    with pytest.raises(BackendRefused, match=r"longer than what the model can read.*more than 3000 tokens.*2048"):
        backend.generate("word " * 3000)
    for wrong in (LlamaBackend(broken), LlamaBackend(good, n_layers=3)):
        with pytest.raises(BackendRefused, match="the model cannot be loaded"):
            AgentArena.play(Foraging(), LLMAgentBehavior(wrong))
    odd = [ToolSchema("plan", "Plan.", {"type": "object", "properties": {"rows of cells": {}}})]
    with pytest.raises(BackendRefused, match="no grammar"):
        backend.generate_with_tools("go", odd)
