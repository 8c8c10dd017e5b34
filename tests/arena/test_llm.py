"""Tier 3 with a scripted model, and a service that answers as OpenAI's does."""

from __future__ import annotations

import enum
import json
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import BaseModel

from ue_rl.arena import AgentArena, AgentDecision, LLMAgentBehavior
from ue_rl.arena.backends import Answer, Backend, BackendRefused, OpenAIBackend, ScriptedBackend, decision_schema
from ue_rl.arena.datasets import preference_pairs
from ue_rl.arena.log import RunLog
from ue_rl.arena.memory import ApiEmbedder, SlidingWindow
from ue_rl.arena.scenes import Foraging
from ue_rl.arena.types import Item, Observation, Seen, ToolResult
from ue_rl.errors import ConfigurationError
from ue_rl.tools import ToolRegistry

SEEN = Observation(agent_id="a", tick=3, health=70)
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
        arena.tick([Observation(agent_id="a", tick=tick, tool_result=result)])
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


class _Service(BaseHTTPRequestHandler):
    """What the service answers stands in `answers`, in the form of OpenAI or as bytes; what it was asked in `asked`."""

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))  # type: ignore[attr-defined]
        status, message = self.server.answers.pop(0)  # type: ignore[attr-defined]
        body = message if isinstance(message, bytes) else json.dumps({
            "id": "1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        } if status == 200 else {"error": message}).encode()  # fmt: skip
        self.send_response(abs(status))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) + 50 * (status < 0)))  # it stops in mid-answer
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Any]:
    pytest.importorskip("openai", reason="the package openai is not installed")
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    server.answers, server.asked = [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_openai_compatible_service(service: Any) -> None:
    tools = Foraging().tools.schemas()
    backend = OpenAIBackend("m", service.url, timeout=20, retries=0)
    service.answers = [(200, {"content": json.dumps(MOVE)})]
    answer = backend.generate_with_tools("go", tools)
    assert (json.loads(answer.text), answer.prompt_tokens, answer.tokens) == (MOVE, 11, 7)
    assert service.asked[0]["response_format"]["json_schema"]["schema"] == decision_schema(tools)
    again = backend.generate_with_tools("go", tools)
    assert again.cached
    assert (again.text, backend.asked) == (answer.text, 1)

    calling = OpenAIBackend("m", service.url, timeout=20, retries=0, constrain="tools")
    call = {"id": "1", "type": "function", "function": {"name": "collect", "arguments": '{"item_name": "berry"}'}}
    service.answers = [(200, {"content": "near", "tool_calls": [call]})]
    said = json.loads(calling.generate_with_tools("go", tools).text)
    assert said == {"tool": "collect", "params": '{"item_name": "berry"}', "reasoning": "near"}
    assert service.asked[1]["tools"][0]["function"]["name"] == "move_to"

    service.answers = [(500, {"message": "oops"}), (200, {"content": "hello"})]
    patient = OpenAIBackend("m", service.url, timeout=20, retries=1)
    assert patient.generate("hi").text == "hello"


def test_what_was_not_set_is_not_sent(service: Any) -> None:
    tools = Foraging().tools.schemas()
    service.answers = [(200, {"content": json.dumps(MOVE)})] * 5
    backend = OpenAIBackend("m", service.url, timeout=20, retries=0)
    backend.generate("go")
    backend.generate_with_tools("go", tools)
    backend.generate("on", 99)
    assert set(service.asked[0]) == {"model", "messages"}
    assert set(service.asked[1]) == {"model", "messages", "response_format"}
    assert service.asked[2]["max_tokens"] == 99
    newer = OpenAIBackend("m", service.url, timeout=20, retries=0, max_completion_tokens=500, temperature=1)
    newer.generate("go")
    newer.generate("go", 99)
    assert set(service.asked[3]) == {"model", "messages", "temperature", "max_completion_tokens"}
    assert [asked["max_completion_tokens"] for asked in service.asked[3:]] == [500, 99]
    assert "max_tokens" not in service.asked[4]


UNSUPPORTED = {"message": "Unsupported parameter: 'max_tokens' is not supported with this model.", "code": "x"}


@pytest.mark.parametrize(
    ("status", "error", "cure"),
    [
        (400, UNSUPPORTED, "change what the message names"), (401, {"message": "Incorrect API key"}, "check the key"),
        (403, {"message": "no access"}, "check the key"), (404, {"message": "no model m"}, "check model and base_url"),
        (422, {"message": "extra fields"}, "change what the message names"),
        (429, {"message": "You exceeded your quota", "code": "insufficient_quota"}, "no more to spend"),
    ],
)  # fmt: skip
def test_a_refusal_that_can_never_succeed_ends_at_once_with_its_reason(
    service: Any, status: int, error: dict[str, str], cure: str, caplog: Any
) -> None:
    service.answers = [(status, error)] * 9

    def mind(**options: Any) -> LLMAgentBehavior:
        return LLMAgentBehavior(OpenAIBackend("m", service.url, timeout=20, retries=0), **options)

    with pytest.raises(BackendRefused, match=f"(?s)HTTP {status}.*{error['message']}.*(?i:{cure})"):
        AgentArena.play(Foraging(), mind())
    with pytest.raises(BackendRefused):
        AgentArena.play(Foraging(), mind(plan_every=1))
    with pytest.raises(BackendRefused):
        preference_pairs(Foraging, {}, {"forager": mind()}, "never.jsonl", 1)
    assert len(service.asked) == 3
    with caplog.at_level(logging.WARNING, "ue_rl.arena"):
        arena = arena_of(mind())
        outcomes = [arena.tick([SEEN])[0] for _ in range(3)]
    assert [outcome.code for outcome in outcomes] == ["DECISION_FAILED"] * 3
    assert error["message"] in outcomes[0].decision.reasoning
    assert len([line for line in caplog.messages if line.startswith("agent a:") and error["message"] in line]) == 1


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"message": "not this", "code": "content_filter"}, "PARSING_ERROR"), (408, {}, "LLM_TIMEOUT"),
        (409, {}, "LLM_TIMEOUT"), (429, {"code": "rate_limit_exceeded"}, "LLM_TIMEOUT"), (503, {}, "LLM_TIMEOUT"),
    ],
)  # fmt: skip
def test_what_may_succeed_later_ends_nothing_and_is_said_once(
    service: Any, status: int, error: dict[str, str], code: str, caplog: Any
) -> None:
    service.answers = [(status, error)] * 2 + [(200, {"content": json.dumps(MOVE)})]
    arena = arena_of(LLMAgentBehavior(OpenAIBackend("m", service.url, timeout=20, retries=0)))
    assert [arena.tick([SEEN])[0].code for _ in range(3)] == [code, code, None]
    assert len([line for line in caplog.messages if f"agent a: {code}" in line]) == 1


@pytest.mark.parametrize(
    ("message", "finish", "said"),
    [
        ({"content": None, "refusal": "I cannot do that"}, "stop", "the model refuses: I cannot do that"),
        ({"content": "", "reasoning_content": '{"tool": "attack"}'}, "length", "cut off before it said anything"),
        ({"content": '<think>{"tool": "attack", "params": {}}'}, "length", "ends within its thoughts"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": '{"tool": "attack"}'}]},
                      {"type": "text", "text": json.dumps(MOVE)}]}, "stop", None),
    ],
)  # fmt: skip
def test_a_model_that_only_thinks_or_refuses(service: Any, message: Any, finish: str, said: str | None) -> None:
    body = {"choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}]}
    service.answers = [(200, json.dumps(body).encode())]
    (outcome,) = arena_of(LLMAgentBehavior(OpenAIBackend("m", service.url, timeout=20, retries=0))).tick([SEEN])
    if said is None:
        assert outcome.decision.tool == "move_to"
        return
    assert outcome.code == "PARSING_ERROR"
    assert said in str(outcome.message)


def test_a_backend_without_a_key_or_with_a_wrong_constraint(monkeypatch: Any) -> None:
    pytest.importorskip("openai", reason="the package openai is not installed")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        OpenAIBackend("m")
    with pytest.raises(ConfigurationError, match="json_schema, json_object, tools, none"):
        OpenAIBackend("m", "http://127.0.0.1:9/v1", constrain="json")  # type: ignore[arg-type]


def test_plans_and_reflections_have_no_thoughts() -> None:
    lines = ["<think>Lose?</think>\nWin\n1. eat", MOVE, "<think>hm</think>Go faster.", MOVE]
    behavior = LLMAgentBehavior(ScriptedBackend(lines), plan_every=9, reflect_every=1)
    arena = arena_of(behavior)
    for _ in range(2):
        arena.tick([SEEN])
    assert behavior.current_plan == {"goal": "Win", "steps": ["eat"]}
    assert [step["text"] for step in behavior.reasoning_trace if step["kind"] == "reflection"] == ["Go faster."]


def test_a_service_that_is_down() -> None:
    pytest.importorskip("openai", reason="the package openai is not installed")
    backend = OpenAIBackend("m", "http://127.0.0.1:9/v1", timeout=5, retries=0)
    assert not backend.is_available()
    (outcome,) = arena_of(LLMAgentBehavior(backend)).tick([SEEN])
    assert outcome.code == "LLM_TIMEOUT"
    assert "cannot be reached" in str(outcome.message)


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (200, b"garbage", "PARSING_ERROR"), (200, b"null", "PARSING_ERROR"), (200, b"[1]", "PARSING_ERROR"),
        (200, b'{"choices": null, "error": {"message": "overloaded"}}', "PARSING_ERROR"),
        (200, b'{"choices": [{"message": null}]}', "PARSING_ERROR"), (200, b'{"choices": "abc"}', "PARSING_ERROR"),
        (200, b'{"choices": [{"message": {"content": [1, 2]}}]}', "PARSING_ERROR"),
        (200, b'{"choices": [{"message": {"content": "{}"}}], "usage": {"prompt_tokens": "x"}}', "PARSING_ERROR"),
        (200, b'{"choices": [{"message": {"tool_calls": [{}]}}]}', "PARSING_ERROR"),
        (200, b'{"choices": [{"message": {"content": "' + b"x" * 2_000_000 + b'"}}]}', "PARSING_ERROR"),
        (-200, b'{"choices": [{"mess', "LLM_TIMEOUT"),
        (500, b"{}", "LLM_TIMEOUT"), (429, b"{}", "LLM_TIMEOUT"), (401, b"{}", "DECISION_FAILED"),
    ],
)  # fmt: skip
def test_a_service_that_answers_nonsense_or_stops_in_mid_answer(
    service: Any, status: int, body: bytes, code: str
) -> None:
    service.answers = [(status, body)]
    backend = OpenAIBackend("m", service.url, timeout=20, retries=0, constrain="none")
    (outcome,) = arena_of(LLMAgentBehavior(backend)).tick([SEEN])
    assert (outcome.code, outcome.decision.tool) == (code, "idle"), outcome.message
    assert len(str(outcome.message)) < 1000


def test_a_model_that_is_down_while_it_plans_or_reflects() -> None:
    assert asked(ConnectionError("down"), plan_every=1)[1].code == "LLM_TIMEOUT"
    behavior = LLMAgentBehavior(ScriptedBackend([MOVE, TimeoutError("slow"), MOVE]), reflect_every=1)
    arena = arena_of(behavior)
    assert [arena.tick([SEEN])[0].code for _ in range(3)] == [None, "LLM_TIMEOUT", None]


def test_what_was_not_asked_again_costs_no_tokens(service: Any) -> None:
    service.answers = [(200, {"content": "Win"}), (200, {"content": json.dumps(MOVE)})]
    mind = LLMAgentBehavior(OpenAIBackend("m", service.url, timeout=20), plan_every=1, template="{system}")
    arena = arena_of(mind)
    assert [arena.tick([SEEN])[0].trace["tokens"] for _ in range(2)] == [2 * 18, 0]


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
    seen = SEEN.model_copy(update={"nearby_resources": [Seen(name=long)] * 9, "inventory": [Item(name=long)]})
    for _ in range(8):
        arena.tick([seen])
    assert len(behavior.backend.prompts[-1]) < 20_000  # type: ignore[attr-defined]
    assert len(json.dumps(list(behavior.reasoning_trace))) < 20_000


def test_a_service_embeds(service: Any) -> None:
    rows = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate([[3.0, 4.0], [0.0, 0.0]])]
    service.answers = [(200, json.dumps({"object": "list", "data": rows, "model": "m"}).encode())]
    found = ApiEmbedder("m", 2, service.url).embed(["a", "b"])
    assert found.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0]]
    assert service.asked[0]["input"] == ["a", "b"]
