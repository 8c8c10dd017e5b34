"""The recorded requests of both public servers, and what is wrong with others."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from tests.plugins.arena.conftest import Client
from ue_rl.bridges.tools import ToolRegistry
from ue_rl.plugins.arena import AgentArena, AgentDecision, AgentObservation, RulesBehavior, SimpleAgentBehavior
from ue_rl.plugins.arena.http.app import make_app
from ue_rl.plugins.arena.memory import SlidingWindow
from ue_rl.system.errors import ToolError

OBSERVE = {
    "agent_id": "scout", "tick": 7, "position": [10.0, 0.0, 8.0], "health": 100.0, "energy": 90.0,
    "perception_radius": 50.0,
    "nearby_resources": [{"name": "Berry", "type": "berry", "position": [15, 0, 8], "distance": 5.0}],
    "nearby_hazards": [{"name": "Fire", "type": "fire", "position": [1, 0, 1], "distance": 11.0, "damage": 10}],
    "tool_result": {"tool": "move_to", "success": True, "result": {}, "error": "", "duration_ticks": 2},
}  # fmt: skip
PERCEPTION = {
    "agent_id": "scout", "tick": 7, "position": [1, 0, 2], "rotation": [0, 0, 0], "velocity": [0, 0, 0],
    "visible_entities": [], "inventory": [], "health": 100, "energy": 100, "custom_data": {"team": "red"},
}  # fmt: skip


class Goes(SimpleAgentBehavior):
    """Moves."""

    def __init__(self) -> None:
        self.memory = SlidingWindow()

    def decide(self, context: Any) -> str:
        if context.observation.custom.get("raise"):
            raise RuntimeError("lost")
        return "move_to"


@pytest.fixture
def post(client: Callable[..., Client]) -> Client:
    made = client(deadline=20)
    made.arena.register("scout", Goes())
    return made


def test_observe(post: Client) -> None:
    status, answer = post("/observe", OBSERVE)
    assert status == 200
    assert answer == {
        "agent_id": "scout",
        "tool": "move_to",
        "params": {"target_position": [15, 0, 8]},
        "reasoning": "Agent decision",
    }
    _, answer = post("/observe", {**OBSERVE, "custom": {"raise": 1}})
    assert (answer["tool"], answer["reasoning"]) == ("idle", "Error: lost")


def test_ids_match_exactly_and_others_get_the_rule_of_thumb(post: Client) -> None:
    near = [{**OBSERVE["nearby_resources"][0], "distance": 4.9}]  # type: ignore[index]
    _, answer = post("/observe", {**OBSERVE, "agent_id": "Scout", "nearby_resources": near})
    assert (answer["tool"], answer["params"]["speed"]) == ("move_to", 1.5)


def test_tick_of_the_one_server(post: Client) -> None:
    status, answer = post("/tick", {"tick": 7, "perceptions": [PERCEPTION], "simulation_state": {}})
    assert status == 200
    assert set(answer) == {"tick", "actions", "metrics"}
    (action,) = answer["actions"]
    assert set(action) >= {"agent_id", "tick", "tool", "params", "reasoning"}
    assert set(answer["metrics"]) == {"tick_time_ms", "agents_processed", "actions_generated"}


def test_tick_of_the_other_server(post: Client) -> None:
    observations = {name: value for name, value in OBSERVE.items() if name != "agent_id"}
    agents = [{"agent_id": name, "observations": observations} for name in ("scout", "other")]
    _, answer = post("/tick", {"tick": 7, "agents": agents})
    assert [action["agent_id"] for action in answer["actions"]] == ["scout", "other"]
    assert set(answer["actions"][0]["action"]) == {"tool", "params", "reasoning"}
    _, answer = post("/tick", {"tick": 7, "agent_id": "scout", "observations": observations})
    assert (answer["tick"], answer["agent_id"], answer["action"]["tool"]) == (7, "scout", "move_to")
    assert post("/tick", {"tick": 8, "agents": []})[1] == {"tick": 8, "actions": []}


@pytest.mark.parametrize(("path", "key"), [("/tools/execute", "tool"), ("/tool", "tool_name")])
def test_tools_execute(post: Client, path: str, key: str) -> None:
    post("/observe", OBSERVE)

    def call(name: str, params: Any, agent: str = "scout") -> Any:
        return post(path, {key: name, "params": params, "agent_id": agent, "tick": 7})[1]

    assert call("measure_distance", {"target_position": [10, 0, 9]}) == {"success": True, "result": 1.0, "error": ""}
    assert call("get_nearby_entities", {"radius": 6})["result"][0]["name"] == "Berry"
    assert call("raycast", {"direction": [1, 0, 0]})["result"] == {"hit": True, "distance": 5.0, "name": "Berry"}
    assert call("craft", {"recipe": "rope"})["result"] == {"recipe": "rope"}
    nope, wrong = call("nope", {}), call("move_to", {"target_position": 5})
    assert (nope["success"], nope["error"], nope["error_code"]) == (False, "Tool 'nope' not found", "TOOL_NOT_FOUND")
    assert (wrong["error"], wrong["error_code"]) == ("Invalid parameters for tool 'move_to'", "INVALID_PARAMETERS")
    assert call("get_inventory", {}, "nobody")["error_code"] == "AGENT_NOT_FOUND"
    failed = call("raycast", {"direction": [0, 0, 0]})
    assert failed["error_code"] == "TOOL_EXECUTION_FAILED"


def test_what_a_person_looks_at(post: Client) -> None:
    post("/observe", OBSERVE)
    post("/observe", {**OBSERVE, "tick": 8, "health": 50})
    assert "scout" in post("/")[1]["agents"]
    assert post("/health")[1]["status"] == "healthy"
    names = {each["name"] for each in post("/tools/list")[1]["tools"]}
    assert (
        set(["move_to", "navigate_to", "pickup", "pickup_item", "collect", "drop", "rotate", "craft", "plan_path"])
        <= names
    )
    assert post("/metrics")[1]["decisions"] == 2
    assert [each["tick"] for each in post("/debug/traces")[1]["traces"]] == [7, 8]
    assert post("/debug/observations")[1]["observations"][1]["health"] == 50
    assert post("/debug/changes")[1]["changes"] == [
        {"agent_id": "scout", "tick": 8, "changes": {"tick": 8, "health": 50}}
    ]
    assert post("/debug/reset", {})[1] == {"success": True}
    assert post("/debug/traces")[1]["traces"] == []


def test_agents_come_by_http(post: Client) -> None:
    assert post("/agents/register", {"agent_id": "new"})[1] == {
        "agent_id": "new",
        "registered": True,
        "behavior": "rules",
    }
    assert isinstance(post.arena.behaviors["new"], RulesBehavior)
    assert post("/agents/register", {"agent_id": "scout"})[1]["behavior"] == "Goes"
    status, answer = post("/agents/register", {"agent_id": "x", "behavior": "wizard"})
    assert (status, answer["field"]) == (422, "behavior")


def test_experience_is_remembered(post: Client) -> None:
    post("/observe", OBSERVE)
    body = {"agent_id": "scout", "tick": 9, "text": "the bridge is out", "done": True, "success": True}
    assert post("/experience", body)[1]["stored"]
    assert post("/memory/scout")[1]["memory"][0]["text"] == "the bridge is out"
    assert post("/memory/nobody")[0] == post("/experience", {**body, "agent_id": "nobody"})[0] == 404


def deep(levels: int) -> str:
    return '{"agent_id":"a","position":[0,0,0],"custom":' + '{"a":' * levels + "1" + "}" * levels + "}"


WRONG: list[tuple[str, Any, int, str | None]] = [
    ("/observe", "", 400, "body"), ("/observe", "{", 400, "body"), ("/observe", b"\xff\xfe", 400, "body"),
    ("/observe", "[" * 100_000, 400, "body"), ("/observe", "[]", 422, "body"), ("/observe", "7", 422, "body"),
    ("/observe", "null", 422, "body"), ("/observe", "{}", 422, "agent_id"),
    ("/observe", {"agent_id": "a"}, 422, "position"),
    ("/observe", {"agent_id": 5, "position": [0, 0, 0]}, 422, "agent_id"),
    ("/observe", {"agent_id": "", "position": [0, 0, 0]}, 422, "agent_id"),
    ("/observe", {"agent_id": "a" * 300, "position": [0, 0, 0]}, 422, "agent_id"),
    ("/observe", {"agent_id": "a", "position": None}, 422, "position"),
    ("/observe", {"agent_id": "a", "position": "here"}, 422, "position"),
    ("/observe", {"agent_id": "a", "position": [0]}, 422, "position.1"),
    ("/observe", {"agent_id": "a", "position": [0, 0, 0, 0]}, 422, "position"),
    ("/observe", {"agent_id": "a", "position": [0, {}, 0]}, 422, "position.1"),
    ("/observe", '{"agent_id": "a", "position": [0, NaN, 0]}', 422, "position.1"),
    ("/observe", '{"agent_id": "a", "position": [0, 1e999, 0]}', 422, "position.1"),
    ("/observe", '{"agent_id": "a", "position": [0,0,0], "custom": {"x": [-Infinity]}}', 422, "custom.x.0"),
    ("/observe", deep(40), 422, "custom"), ("/observe", deep(90_000), 400, "body"),
    ("/observe", {"agent_id": "a", "position": [0, 0, 0], "custom": {"x": "y" * 100_000}}, 422, "custom.x"),
    ("/tick", {}, 422, "perceptions"), ("/tick", {"tick": "x", "agents": []}, 422, "tick"),
    ("/tick", {"tick": -1, "agents": []}, 422, "tick"), ("/tick", {"agents": {}}, 422, "agents"),
    ("/tick", {"agents": [3]}, 422, "agents.0"), ("/tick", {"agents": [{}]}, 422, "agents.0.agent_id"),
    ("/tick", {"agents": [{"agent_id": "a", "observations": []}]}, 422, "agents.0.observations"),
    ("/tick", {"agents": [{"agent_id": "a"}, {"agent_id": "a"}]}, 422, "agents.1.agent_id"),
    ("/tick", {"perceptions": None}, 422, "perceptions"),
    ("/tick", {"perceptions": [{"agent_id": "a", "visible_entities": 5}]}, 422, "perceptions.0.visible_entities"),
    ("/tick", {"perceptions": [{"agent_id": "a", "health": "ill"}]}, 422, "perceptions.0.health"),
    ("/tick", {"perceptions": [{"agent_id": "a", "nearby_resources": [{"distance": "far"}]}]}, 422,
     "perceptions.0.nearby_resources.0.distance"),
    ("/tick", {"agent_id": "a", "observations": 5}, 422, "agent_id.observations"),
    ("/tools/execute", {}, 422, "tool"), ("/tools/execute", {"tool": 3}, 422, "tool"),
    ("/tools/execute", {"tool": "a", "params": []}, 422, "params"),
    ("/tools/execute", {"tool": "a", "agent_id": []}, 422, "agent_id"),
    ("/tools/execute", {"tool": "a" * 1000}, 422, "tool"),
    ("/agents/register", {}, 422, "agent_id"), ("/agents/register", {"agent_id": None}, 422, "agent_id"),
    ("/agents/register", {"agent_id": "a", "behavior": 1}, 422, "behavior"),
    ("/experience", {}, 422, "agent_id"), ("/experience", {"agent_id": "a", "tick": []}, 422, "tick"),
    ("/experience", {"agent_id": "a", "metrics": 3}, 422, "metrics"),
    ("/experience", {"agent_id": "nobody"}, 404, "agent_id"),
    ("/observe", '{"agent_id": "\\ud800", "position": [0, 0, 0]}', 422, "agent_id"),
    ("/observe", {"agent_id": "a", "position": [0, 0, 0], "custom": [{}] * 100_000}, 422, "body"),
    ("/observe", {"agent_id": "a", "position": [10**400, 0, 0]}, 422, "position.0"),
    ("/observe", '{"agent_id": "a", "position": [0, 0, 0], "tick": ' + "1" * 5000 + "}", 400, "body"),
    ("/tick", {"agents": [{"agent_id": f"a{n}"} for n in range(20_000)]}, 422, "agents"),
    ("/tick", {"perceptions": [{"agent_id": "a", "custom": {"x": ["y" * 60_000] * 3}}]}, 422, "perceptions.0"),
    ("/tools/execute", '{"tool": "move_to", "params": {"target_position": [1e999]}}', 422, "params.target_position.0"),
    ("/tools/execute", '{"tool": "\\ud800"}', 422, "tool"),
    ("/agents/register", '{"agent_id": "\\udfff"}', 422, "agent_id"),
    ("/experience", {"agent_id": "scout", "done": "perhaps"}, 422, "done"),
    ("/experience", '{"agent_id": "scout", "priority": NaN}', 422, "priority"),
    ("/experience", {"agent_id": "scout", "text": ["a"]}, 422, "text"), ("/tools/execute", '"move_to"', 422, "body"),
    ("/observe", '{"agent_id": "a", "position": [0, 0, 0], "custom": {"%s": NaN}}' % ("k" * 1_000_000), 422, "k"),
]  # fmt: skip


def test_what_is_malformed_is_named(post: Client) -> None:
    answers = [(post(path, body), status, field) for path, body, status, field in WRONG]
    for (path, body, *_), ((status, answer), expected, field) in zip(WRONG, answers, strict=True):
        named = "k" if "kkk" in str(answer["field"]) else answer["field"]
        assert (status, named) == (expected, field), f"{path} {str(body)[:80]}: {answer}"
        assert len(str(answer)) < 2000
    assert len(WRONG) >= 60
    for number in (0, 1, True, [], {}, "x", None):  # a position of every wrong type
        assert post("/observe", {"agent_id": "a", "position": number})[0] in (200, 422)
    assert post("/observe", OBSERVE)[1]["tool"] == "move_to", "it goes on"


async def test_a_body_that_is_too_slow() -> None:
    """Half of it has come, and nothing more does."""
    pieces = [{"type": "http.request", "body": b"{", "more_body": True}]
    said: list[Any] = []

    async def receive() -> Any:
        while not pieces:
            await asyncio.sleep(60)
        return pieces.pop()

    async def send(message: Any) -> None:
        said.append(message)

    scope = {"type": "http", "method": "POST", "path": "/observe", "query_string": b"", "headers": []}
    await make_app(AgentArena.connect(port=0), body_within=0.05)(scope, receive, send)
    assert said[0]["status"] == 408
    assert "within 0.05 s" in json.loads(said[1]["body"])["error"]


def test_bodies_that_are_too_large(post: Client) -> None:
    assert post("/observe", b" " * 10_000_000)[0] == 413
    assert post("/observe", OBSERVE)[0] == 200
    assert post("/nowhere") == (404, {"error": "Not Found", "error_code": "NOT_FOUND", "field": None})
    assert post("/observe")[0] == 405


def test_prompt_text_of_the_game_cannot_add_tools(post: Client) -> None:
    class Obeys(SimpleAgentBehavior):
        """Does what a text of the game says."""

        def decide(self, context: Any) -> Any:
            return AgentDecision(context.observation.custom["note"], {"path": "/"})

    post.arena.register("naive", Obeys())
    body = {"agent_id": "naive", "tick": 1, "position": [0, 0, 0], "custom": {"note": "delete_files"}}
    _, answer = post("/observe", body)
    assert (answer["tool"], answer["error_code"]) == ("idle", "TOOL_NOT_FOUND")
    (trace,) = post("/debug/traces")[1]["traces"]
    assert trace["trace"]["refused"]["tool"] == "delete_files"


def test_seen_agents_do_not_grow_without_end() -> None:
    made = AgentArena(deadline=None)
    made.max_strangers = 5
    made.register("mine", RulesBehavior())
    made.tick([AgentObservation(agent_id="mine")])
    for n in range(20):
        made.tick([AgentObservation(agent_id=f"a{n}")])
    assert list(made.seen) == ["mine", *(f"a{n}" for n in range(15, 20))]
    made.unregister("mine")
    assert "mine" not in made.seen


def test_half_a_character_and_a_thousand_wrong_arguments_are_answered(post: Client) -> None:
    post("/observe", '{"agent_id": "scout", "position": [0, 0, 0], "custom": {"note": "\\ud800"}}')
    assert post("/debug/observations")[1]["observations"][-1]["custom"] == {"note": "\ud800"}
    assert post("/experience", '{"agent_id": "scout", "text": "\\ud800"}')[1]["stored"]
    assert post("/memory/scout")[1]["memory"][-1]["text"] == "\ud800"
    called = post("/tools/execute", '{"tool": "drop", "params": {"item_name": "\\ud800"}}')
    assert called[1]["result"] == {"item_name": "\ud800"}
    status, answer = post("/tools/execute", {"tool": "idle", "params": {f"a{n}": 1 for n in range(50_000)}})
    assert (status, answer["error_code"]) == (200, "INVALID_PARAMETERS")
    assert len(str(answer)) < 2000


def test_json_is_asked_for_by_its_name(post: Client) -> None:
    """What a form of a page can send is none (tests/plugins/test_pages.py); a client that says nothing is no page."""
    for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON", "application/a+json", ""):
        assert post("/observe", OBSERVE, headers={"Content-Type": kind})[1]["tool"] == "move_to"
    for kind in ("application/xml", "application/x-www-form-urlencoded", "image/png", "text/plain"):
        status, answer = post("/observe", OBSERVE, headers={"Content-Type": kind})
        assert status == 415
        assert "expected Content-Type: application/json" in answer["error"]


class Waits(Goes):
    """Until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.going_on = threading.Event(), threading.Event()

    def decide(self, context: Any) -> str:
        self.inside.set()
        self.going_on.wait(20)
        return "move_to"


def test_an_agent_that_hangs_is_answered_for_and_nothing_piles_up(post: Client) -> None:
    hangs = Waits()
    post.arena.deadline = 0.05
    post.arena.register("hangs", hangs)
    body = {**OBSERVE, "agent_id": "hangs"}
    assert post("/observe", body)[1]["error_code"] == "LLM_TIMEOUT"
    said = [post("/experience", {"agent_id": "hangs", "text": f"{n}", "done": True})[1]["stored"] for n in range(15)]
    assert said == [False] * 15
    assert post("/metrics")[1]["errors"]["DECISION_FAILED"] >= 5, "ten jobs wait, the others are refused"
    assert post("/health")[0] == 200
    hangs.going_on.set()


def test_who_waits_is_answered_when_the_arena_ends(post: Client) -> None:
    hangs = Waits()
    post.arena.register("hangs", hangs)
    answers: list[Any] = []
    waits = threading.Thread(target=lambda: answers.append(post("/observe", {**OBSERVE, "agent_id": "hangs"})))
    waits.start()
    assert hangs.inside.wait(20)
    post.arena.stop()
    waits.join(20)
    assert answers == [(503, {"error": "the arena has ended", "error_code": "LLM_TIMEOUT", "field": None})]
    hangs.going_on.set()


def test_agents_come_and_go_while_a_tick_runs(post: Client) -> None:
    waits = Waits()
    post.arena.register("waits", waits)
    answers: list[Any] = []
    body = {"tick": 1, "perceptions": [{**PERCEPTION, "agent_id": name} for name in ("waits", "goes")]}
    tick = threading.Thread(target=lambda: answers.append(post("/tick", body)))
    tick.start()
    assert waits.inside.wait(20)
    for n in range(20):
        assert post("/agents/register", {"agent_id": f"new{n}"})[0] == 200
    post.arena.unregister("waits")
    assert post("/observe", OBSERVE)[1]["tool"] == "move_to", "the others go on"
    waits.going_on.set()
    tick.join(20)
    assert [action["agent_id"] for action in answers[0][1]["actions"]] == ["waits", "goes"]


def test_a_result_that_cannot_be_sent_is_an_error() -> None:
    registry = ToolRegistry(hidden=("agent",))
    registry.add(lambda: float("inf"), "measure")
    registry.add(object, "thing")
    arena = AgentArena(tools=registry)
    for name in ("measure", "thing"):
        with pytest.raises(ToolError, match="cannot be sent") as error:
            arena.execute(name, {})
        assert error.value.code == "TOOL_EXECUTION_FAILED"


def test_an_arena_runs_until_it_is_stopped(tmp_path: Path) -> None:
    """`run` from another thread's stop, and `ue-rl arena serve` until Ctrl-C, while an agent hangs."""
    urls: SimpleQueue[str] = SimpleQueue()
    arena = AgentArena.connect(port=0)
    runs = threading.Thread(target=arena.run, args=(urls.put,))
    runs.start()
    with urllib.request.urlopen(urls.get(timeout=20) + "/health", timeout=20) as answer:
        assert json.loads(answer.read())["status"] == "healthy"
    arena.stop()
    runs.join(20)
    assert not runs.is_alive()

    (tmp_path / "minds.py").write_text(
        "import time\nfrom ue_rl.plugins.arena import AgentBehavior\nclass Hangs(AgentBehavior):\n"
        "    def decide(self, observation, tools):\n        time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "ue_rl", "arena", "serve", "--port", "0", "--agent", "a=minds:Hangs"]
    command += ["--deadline", "100ms"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert served.stdout is not None
    url = served.stdout.readline().split()[-1]
    body = json.dumps({"agent_id": "a", "position": [0, 0, 0]}).encode()
    asked = urllib.request.Request(f"{url}/observe", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        assert json.loads(answer.read())["error_code"] == "LLM_TIMEOUT"
    served.send_signal(signal.SIGINT)
    _, errors = served.communicate(timeout=20)
    assert served.returncode == 130
    assert "Traceback" not in errors


async def test_an_arena_runs_in_an_event_loop() -> None:
    arena = AgentArena.connect(port=0)
    listening = asyncio.Event()
    task = asyncio.create_task(arena.run_async(lambda _: listening.set()))
    await asyncio.wait_for(listening.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", arena.port), timeout=20).close()
