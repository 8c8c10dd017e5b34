"""A service that answers as OpenAI's does: what it is asked, and what becomes of its answers, errors and refusals."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.plugins.arena.test_llm import MOVE, SEEN, arena_of
from ue_rl.plugins.arena import AgentArena, LLMAgentBehavior
from ue_rl.plugins.arena.backends import BackendRefused, OpenAIBackend, decision_schema
from ue_rl.plugins.arena.datasets import preference_pairs
from ue_rl.plugins.arena.memory import ApiEmbedder
from ue_rl.plugins.arena.scenes import Foraging
from ue_rl.system.errors import ConfigurationError


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
    with caplog.at_level(logging.WARNING, "ue_rl.plugins.arena"):
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


def test_a_call_with_long_thoughts_or_with_arguments_that_break_off(service: Any) -> None:
    def called(arguments: str) -> Any:
        call = {"id": "1", "type": "function", "function": {"name": "collect", "arguments": arguments}}
        service.answers = [(200, {"content": "<think>" + "x" * 200_000, "tool_calls": [call]})]
        backend = OpenAIBackend("m", service.url, timeout=20, retries=0, constrain="tools")
        return arena_of(LLMAgentBehavior(backend)).tick([SEEN])[0]

    assert called('{"item_name": "berry"}').decision.params == {"item_name": "berry"}
    assert called("").decision.tool == "collect"
    cut_off = called('{"item_name": "be')
    assert cut_off.code == "PARSING_ERROR"
    assert "the arguments of the call are no JSON, or break off" in str(cut_off.message)


def test_a_backend_without_a_key_or_with_a_wrong_constraint(monkeypatch: Any) -> None:
    pytest.importorskip("openai", reason="the package openai is not installed")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        OpenAIBackend("m")
    with pytest.raises(ConfigurationError, match="json_schema, json_object, tools, none"):
        OpenAIBackend("m", "http://127.0.0.1:9/v1", constrain="json")  # type: ignore[arg-type]


def test_a_service_that_is_down() -> None:
    pytest.importorskip("openai", reason="the package openai is not installed")
    backend = OpenAIBackend("m", "http://127.0.0.1:9/v1", timeout=20, retries=0)
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


def test_what_was_not_asked_again_costs_no_tokens(service: Any) -> None:
    service.answers = [(200, {"content": "Win"}), (200, {"content": json.dumps(MOVE)})]
    mind = LLMAgentBehavior(OpenAIBackend("m", service.url, timeout=20), plan_every=1, template="{system}")
    arena = arena_of(mind)
    assert [arena.tick([SEEN])[0].trace["tokens"] for _ in range(2)] == [2 * 18, 0]


def test_a_service_embeds(service: Any) -> None:
    rows = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate([[3.0, 4.0], [0.0, 0.0]])]
    service.answers = [(200, json.dumps({"object": "list", "data": rows, "model": "m"}).encode())]
    found = ApiEmbedder("m", 2, service.url).embed(["a", "b"])
    assert found.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0]]
    assert service.asked[0]["input"] == ["a", "b"]


@pytest.mark.parametrize("scheme", ["http", "socks5"])  # that of SOCKS needs a package that may be missing
def test_no_proxy_is_asked_for_this_machine(service: Any, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"{scheme}://127.0.0.1:9")  # where nobody answers
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for url in (service.url, service.url.replace("127.0.0.1", "localhost")):
        service.answers = [(200, {"content": "hello"})]
        assert OpenAIBackend("m", url, timeout=20, retries=0).generate("hi").text == "hello"
