"""Sessions for clients of OpenEnv: endpoints, answers and error codes as openenv 0.10 and openenv-core 0.3 have them.

The expected answers were read in openenv.core.env_server of both, and their own clients play in
tests/plugins/sessions/real_clients.py, which needs a venv with one of them.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from tests.plugins.sessions.game import Drift, Endless
from tests.support.waiting import eventually
from ue_rl.bridges.tools import tool
from ue_rl.plugins.sessions.openenv import application
from ue_rl.system.errors import ConfigurationError


class Socket:
    """One WebSocket, in JSON."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket

    def ask(self, message: Any) -> dict[str, Any]:
        self.socket.send_text(message if isinstance(message, str) else json.dumps(message))
        return self.answer()

    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.socket.receive_text())
        return answer

    def reset(self, **data: Any) -> dict[str, Any]:
        return self.ask({"type": "reset", "data": data})["data"]

    def step(self, **action: Any) -> dict[str, Any]:
        return self.ask({"type": "step", "data": action})["data"]

    def code(self, message: Any) -> str:
        answer = self.ask(message)
        assert answer["type"] == "error", answer
        return str(answer["data"]["code"])


@pytest.fixture
def opened(make_pool: Callable[..., Any]) -> Any:
    """opened(**options of the pool): (the pool, an HTTP client)."""

    def open_client(game: Any = Drift, **options: Any) -> Any:
        pool = make_pool(game, **options)
        return pool, TestClient(application(pool), raise_server_exceptions=False)

    return open_client


@pytest.fixture
def socket(opened: Any) -> Iterator[Socket]:
    _, client = opened()
    with client.websocket_connect("/ws") as open_socket:
        yield Socket(open_socket)


def test_health_metadata_and_schemas(opened: Any) -> None:
    pool, client = opened()
    assert client.get("/health").json() == {"status": "healthy"}
    about = client.get("/metadata").json()
    assert about["name"] == pool.name
    assert "drifts" in about["description"]
    schema = client.get("/schema").json()
    assert {"action", "ticks", "tool", "arguments"} <= schema["action"]["properties"].keys()
    assert {"observation", "tick", "text", "result", "info", "mask"} == schema["observation"]["properties"].keys()
    assert {"phase", "tick", "result", "text", "idle_seconds"} <= schema["state"]["properties"].keys()


def test_over_http_each_request_has_a_session_for_itself(opened: Any) -> None:
    pool, client = opened()
    first, second = (client.post("/reset", json={"seed": 4}).json() for _ in range(2))
    assert first == second
    assert first.keys() == {"observation", "reward", "done"}
    assert (first["reward"], first["done"]) == (None, False)
    assert client.post("/reset").status_code == 200, "without a body"
    stepped = client.post("/step", json={"action": {"action": [0.5, 0.0]}, "timeout_s": 5, "request_id": "a"}).json()
    assert stepped["observation"]["tick"] == 1
    assert client.get("/state").json()["phase"] in ("LOADING", "CONNECTING", "PLAYING", "LAUNCHING")
    assert not pool.sessions()


@pytest.mark.parametrize(
    ("path", "body", "loc"),
    [
        ("/reset", {"seed": -1}, ["body", "seed"]), ("/reset", {"seed": "x"}, ["body", "seed"]),
        ("/reset", [], ["body"]), ("/step", {}, ["body", "action"]), ("/step", {"action": {"act": 1}}, ["act"]),
        ("/step", {"action": {"action": [1.0, 2.0]}, "timeout_s": 0}, ["body", "timeout_s"]),
        ("/step", {"action": {"action": [1.0]}}, ["body"]), ("/step", {"action": {"tool": "fly"}}, ["body"]),
    ],
)  # fmt: skip
def test_a_wrong_request_is_unprocessable(opened: Any, path: str, body: Any, loc: list[str]) -> None:
    _, client = opened()
    answer = client.post(path, json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == loc
    assert client.post(path, content=b"{no json").status_code == 422
    no_number = client.post(path, content=b'{"seed": NaN, "timeout_s": NaN, "action": {"action": [0, 0]}}')
    assert no_number.status_code == 422, "NaN, which the answer must not repeat as it is"
    half_a_character = client.post(path, content=b'{"\\ud83d": [[]]}')  # which the answer repeats
    assert half_a_character.status_code == 422
    assert "\\ud83d" in half_a_character.text or path == "/step"


def test_a_server_that_is_full_says_so(opened: Any) -> None:
    pool, client = opened(max_sessions=1)
    session = pool.create()
    answer = client.post("/reset", json={})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    with client.websocket_connect("/ws") as second:
        told = Socket(second).answer()
        assert told["type"] == "error"
        data = told["data"]
        assert (data["code"], data["active_sessions"], data["max_sessions"]) == ("CAPACITY_REACHED", 1, 1)
        with pytest.raises(WebSocketDisconnect):
            second.receive_text()
    session.destroy()
    with client.websocket_connect("/ws") as third:
        assert Socket(third).reset()["done"] is False


def test_an_episode_over_the_websocket(socket: Socket) -> None:
    told = socket.reset(seed=7, episode_id="mine")
    assert told == socket.reset(seed=7, episode_id="mine"), "the seed decides"
    socket.reset(seed=7, episode_id="mine", start=0.25)
    steps = 0
    while not told["done"]:
        told = socket.step(action=[0.0, 0.0], ticks=2)
        steps += 1
    seen = told["observation"]
    assert seen["result"] in ("win", "lose", "draw")
    assert seen["text"] == f"x is {seen['observation'][0]:.3f}"
    state = socket.ask({"type": "state"})
    assert state["type"] == "state"
    assert state["data"]["episode_id"] == "mine"
    assert state["data"]["step_count"] == steps
    assert (state["data"]["phase"], state["data"]["tick"]) == ("GAME_OVER", seen["tick"])


def test_a_tool_as_a_step(socket: Socket) -> None:
    socket.reset(seed=1)
    told = socket.step(tool="nudge", arguments={"by": 0.5})
    assert told["observation"]["info"]["tools"][0]["tool"] == "nudge"
    assert told["observation"]["tick"] == 0, "without a tick"
    assert socket.step(tool="nudge", arguments={"by": 0.5}, ticks=1)["observation"]["tick"] == 1
    listed = socket.step(type="list_tools")["observation"]["tools"]
    names = [each["name"] for each in listed]
    assert names == ["advance", "get_observation", "get_game_state", "get_map_info", "nudge", "break_down"]
    assert all(each["input_schema"] == each["inputSchema"] for each in listed)
    called = socket.step(type="call_tool", tool_name="advance", arguments={"ticks": 3})
    assert called["observation"]["result"]["ticks_advanced"] == 3
    assert called["observation"]["error"] is None
    errors = {}
    for name, arguments in (("fly", {}), ("nudge", {"by": "far"}), ("break_down", {})):
        told = socket.step(type="call_tool", tool_name=name, arguments=arguments)
        errors[name] = told["observation"]["error"]["error_type"]
    assert errors == {"fly": "tool_not_found", "nudge": "invalid_args", "break_down": "execution_error"}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "INVALID_JSON"), ("[" * 100_000, "INVALID_JSON"), ("[]", "UNKNOWN_TYPE"),
        ({"type": "fly"}, "UNKNOWN_TYPE"),
        ({}, "UNKNOWN_TYPE"), ({"type": ["reset"]}, "UNKNOWN_TYPE"), ({"type": "step"}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"act": 1}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR"),
        ({"type": "state", "more": 1}, "VALIDATION_ERROR"), ({"type": "step", "data": {}}, "EXECUTION_ERROR"),
        ({"type": "step", "data": {"action": [0.5, 0.0], "tool_name": "nudge"}}, "EXECUTION_ERROR"),
        ({"type": "step", "data": {"action": [1.0]}}, "EXECUTION_ERROR"),
        ('{"type": "step", "data": {"action": [NaN, 1.0]}}', "EXECUTION_ERROR"),
        ({"type": "step", "data": {"tool": "fly"}}, "EXECUTION_ERROR"),
        ({"type": "step", "data": {"tool": "nudge", "arguments": {}}}, "EXECUTION_ERROR"),
    ],
)  # fmt: skip
def test_a_wrong_message_has_its_code_and_costs_nothing(socket: Socket, message: Any, code: str) -> None:
    socket.reset()
    assert socket.code(message) == code
    assert socket.step(action=[0.0, 0.0])["observation"]["tick"] == 1


class Odd(Drift):
    """Infos and a map of NumPy's numbers; its words fail."""

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        super().step_envs(actions, env_ids)
        for env in env_ids:
            self.write_info(env, {"pushed": actions[env].copy(), "none": {1}})

    def map_info(self, env_id: int) -> dict[str, Any]:
        return {"left": np.float32(-4), "ore": np.arange(3)}

    def describe(self, env_id: int) -> str:
        raise ZeroDivisionError("no words")


def test_what_json_cannot_carry_breaks_no_connection(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    _, client = opened(Odd)
    with client.websocket_connect("/ws") as open_socket:
        socket = Socket(open_socket)
        socket.reset()
        seen = socket.step(action=[0.5, 0.0])["observation"]
        assert (seen["info"], seen["text"]) == ({"pushed": [0.5, 0.0]}, "")
        told = socket.step(type="call_tool", tool_name="get_map_info")["observation"]["result"]
        assert told == {"left": -4.0, "ore": [0, 1, 2]}
    assert "no words" in caplog.text


def test_a_session_that_has_ended_says_why(opened: Any) -> None:
    pool, client = opened()
    with client.websocket_connect("/ws") as open_socket:
        socket = Socket(open_socket)
        socket.reset()
        pool.sessions()[0].detach("the dog ate it")
        told = socket.ask({"type": "step", "data": {"action": [0.0, 0.0]}})
        assert told["data"]["code"] == "SESSION_ERROR"
        assert "the dog ate it" in told["data"]["message"]


def test_a_game_that_cannot_be_made(opened: Any) -> None:
    made = []

    def game(num_envs: int) -> Drift:
        made.append(num_envs)
        if len(made) > 1:
            raise RuntimeError("no more worlds")
        return Drift(num_envs)

    pool, client = opened(game, together=False)
    pool.create()  # has the one that was made to be looked at
    with client.websocket_connect("/ws") as open_socket:
        told = Socket(open_socket).answer()
        assert told["data"]["code"] == "FACTORY_ERROR"
        assert "no more worlds" in told["data"]["message"]


def test_a_session_ends_with_its_websocket(opened: Any) -> None:
    pool, client = opened()
    with client.websocket_connect("/ws") as open_socket:
        Socket(open_socket).reset()
        assert len(pool.sessions()) == 1
        open_socket.send_text('{"type": "close"}')
        eventually(lambda: not pool.sessions())
    with client.websocket_connect("/ws") as open_socket:
        Socket(open_socket).reset()
    eventually(lambda: not pool.sessions())


def test_a_session_ends_with_a_connection_that_is_cancelled_while_the_server_is_busy(opened: Any) -> None:
    """As a server that shuts down cancels it, with all threads of the event loop at work."""
    pool, client = opened()

    async def connect() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        free = threading.Event()
        loop.run_in_executor(None, free.wait)
        begun = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if begun.is_set():
                await asyncio.Event().wait()
            begun.set()
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            """Nobody reads it."""

        scope = {"type": "websocket", "path": "/ws", "headers": [], "query_string": b"", "subprotocols": []}
        connection = asyncio.create_task(client.app(scope, receive, send))
        while not pool.sessions():
            await asyncio.sleep(0.01)
        while not connection.done():  # again and again, as anyio does
            connection.cancel()
            await asyncio.sleep(0.01)
        free.set()

    asyncio.run(connect())
    assert not pool.sessions()


# -- JSON-RPC


def rpc(client: TestClient, method: str, **params: Any) -> dict[str, Any]:
    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer: dict[str, Any] = client.post("/mcp", json=asked).json()
    assert answer.pop("id") == 1
    return answer


def test_tools_over_http(opened: Any) -> None:
    pool, client = opened()
    assert [each["name"] for each in rpc(client, "tools/list")["result"]["tools"]][-1] == "break_down"
    session_id = rpc(client, "openenv/session/create")["result"]["session_id"]
    for ticks in (2, 5):
        called = rpc(
            client, "tools/call", name="advance", arguments={"ticks": 2 if ticks == 2 else 3}, session_id=session_id
        )
        assert called["result"]["data"]["tick"] == ticks
        assert called["result"]["is_error"] is False
    with client.websocket_connect(f"/ws?session_id={session_id}") as open_socket:
        assert Socket(open_socket).step(action=[0.0, 0.0])["observation"]["tick"] == 6
    assert len(pool.sessions()) == 1, "it is not the WebSocket's"
    assert rpc(client, "openenv/session/close", session_id=session_id)["result"]["closed"] is True
    codes = {
        "tools/call of an ended session": rpc(client, "tools/call", name="advance", session_id=session_id),
        "no such session": rpc(client, "openenv/session/close", session_id="nobody"),
        "no such tool": rpc(client, "tools/call", name="fly"),
        "wrong arguments": rpc(client, "tools/call", name="advance", arguments={"ticks": "x"}),
        "no name": rpc(client, "tools/call"),
    }
    assert {each["error"]["code"] for each in codes.values()} == {-32602}
    assert rpc(client, "initialize")["error"]["code"] == -32601
    assert rpc(client, "tools/call", name="break_down")["error"]["code"] == -32603
    assert client.post("/mcp", content=b"{").json()["error"]["code"] == -32700
    assert client.post("/mcp", json={"method": "tools/list"}).json()["error"]["code"] == -32600
    assert not pool.sessions()


def test_tools_over_websockets(opened: Any) -> None:
    _, client = opened()
    asked = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": "advance", "arguments": {"ticks": 1}},
    }
    with client.websocket_connect("/mcp") as open_socket:
        socket = Socket(open_socket)
        assert [socket.ask(asked)["result"]["data"]["tick"] for _ in range(2)] == [1, 2]
        assert socket.ask("{")["error"]["code"] == -32700
    with client.websocket_connect("/ws") as open_socket:
        told = Socket(open_socket).ask({"type": "mcp", "data": asked})
        assert told["type"] == "mcp"
        assert told["data"]["result"]["data"]["tick"] == 1


def test_a_tool_of_a_reserved_name_is_refused(make_pool: Any) -> None:
    class Reserved(Drift):
        @tool
        def state(self, env_id: int) -> str:
            """OpenEnv's own."""
            return ""

    with pytest.raises(ConfigurationError, match=r"state.*@tool\(name="):
        application(make_pool(Reserved))


def test_in_real_time_a_step_answers_with_the_newest_and_says_what_was_dropped(opened: Any) -> None:
    pool, client = opened(Endless, tick_rate=100)
    with client.websocket_connect("/ws") as plain:
        socket = Socket(plain)
        begun = socket.reset(seed=3)["observation"]
        assert begun["info"]["tick"] == begun["tick"]
        (session,) = pool.sessions()
        eventually(lambda: session.latest.tick > begun["tick"] + 10)  # the mind computes
        at_least = session.latest.tick
        seen = socket.step(action=[0.0, 0.0])["observation"]
        assert seen["tick"] >= at_least
        assert seen["info"]["ticks_advanced"] == seen["tick"] - begun["tick"]
        assert seen["info"]["dropped_observations"] > 5
        assert {"late_ticks", "dropped_actions"} <= {*seen["info"]}
