"""Hostile clients of the carriers of sessions: what was right before it was spoilt, and a server that must not mind.

Each target sends one message and says whether the server has answered it in an orderly way. Source of what is right:
ue_rl/plugins/sessions/sessions.proto, ue_rl/plugins/sessions/openenv/messages.py, and MCP's JSON-RPC.
"""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as connect_websocket

from ue_rl.devtools.check.garbage import mutate
from ue_rl.plugins.sessions import sessions_pb2 as messages
from ue_rl.plugins.sessions.limits import SERVICE, SESSION_ID
from ue_rl.plugins.sessions.sessions_pb2_grpc import SessionsStub

_ACCEPTS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_ODD = ["", "NaN", "1e999", "\x00", "reset", "💥", "9" * 400, "[" * 2000, "null", "-1", "../..", "%s%n"]
_JSON: list[Any] = [None, True, -1, 0, 1.5, 1e308, 2**63, 2**64, "", [], {}, [[]], [None], "x" * 300, {"a": {"a": {}}}]


def spoilt_json(rng: random.Random, value: Any) -> str:
    """The JSON of `value`, with odd values, or not JSON any more."""
    if isinstance(value, dict) and rng.random() < 0.8:
        value = dict(value)
        for key in list(value):
            if rng.random() < 0.25:
                value[key] = rng.choice(_JSON)
            elif isinstance(value[key], dict) and rng.random() < 0.5:
                value[key] = {**value[key], rng.choice(_ODD): rng.choice(_JSON)}
        if rng.random() < 0.2:
            value[rng.choice(_ODD)] = rng.choice(_JSON)
    text = json.dumps(value)
    return mutate(rng, text.encode(), [text.encode()]).decode("utf-8", "replace") if rng.random() < 0.5 else text


class Grpc:
    """Spoilt messages to each call, as bytes; one in eight by Play."""

    def __init__(self, url: str) -> None:
        self._channel = grpc.insecure_channel(url.removeprefix("grpc://"))
        self._stub = SessionsStub(self._channel)
        self._name = ""
        call = self._channel.unary_unary
        names = ("CreateSession", "DestroySession", "ListSessions", "FastAdvance", "GetState", "StepAll")
        self._calls = {name: call(f"/{SERVICE}/{name}") for name in names}
        self._play = self._channel.stream_stream(f"/{SERVICE}/Play")

    def send(self, rng: random.Random) -> None:
        name = rng.choice([*self._calls, "FastAdvance", "Play"])
        right = self._message(rng, name).SerializeToString()
        data = mutate(rng, right, [right])
        try:
            if name == "Play":
                for _ in self._play(iter([data]), metadata=((SESSION_ID, self._name),), timeout=20):
                    break
            else:
                answer = self._calls[name](data, timeout=20)
                if name == "CreateSession":
                    self._name = messages.SessionInfo.FromString(answer).session_id
        except grpc.RpcError as error:
            code, details = error.code(), error.details()  # type: ignore[attr-defined]
            undecoded = code is grpc.StatusCode.UNKNOWN and "DecodeError" in details  # gRPC's own word for it
            lost = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNKNOWN)
            if code in lost and not undecoded:
                raise
            if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
                for each in self._stub.ListSessions(messages.ListSessionsRequest()).sessions:
                    self._stub.DestroySession(messages.SessionRequest(session_id=each.session_id))

    def _message(self, rng: random.Random, name: str) -> Any:
        action = messages.Action(action=rng.randbytes(rng.choice((0, 7, 8, 8, 12))), arguments_json="{}")
        action.tool = rng.choice(["", "nudge", "fly"])
        if name == "Play":
            return action
        if name == "CreateSession":
            return messages.CreateSessionRequest(game=rng.choice(["", "x"]), options_json=rng.choice(["", "{}", "["]))
        if name == "StepAll":
            ids = [self._name] * rng.choice((0, 1, 2))
            return messages.StepAllRequest(session_ids=ids, actions=bytes(8), ticks=3)
        if name == "FastAdvance":
            return messages.FastAdvanceRequest(
                session_id=self._name, ticks=rng.choice((0, 1, 9)), actions=[action] * rng.choice((0, 1, 20)),
                reset=rng.random() < 0.5,
            )  # fmt: skip
        return messages.SessionRequest(session_id=rng.choice([self._name, "x"]))

    def close(self) -> None:
        self._channel.close()


class OpenEnv:
    """Spoilt messages over a WebSocket, one in four by HTTP."""

    _right = (
        {"type": "reset", "data": {"seed": 3}}, {"type": "step", "data": {"action": [0.5, 0.0], "ticks": 2}},
        {"type": "step", "data": {"tool": "nudge", "arguments": {"by": 0.1}}}, {"type": "state"},
        {"type": "step", "data": {"type": "list_tools"}},
        {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}},
    )  # fmt: skip

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx.Client(base_url=url, timeout=20)
        self._socket: Any = None

    def send(self, rng: random.Random) -> None:
        right = rng.choice(self._right)
        if rng.random() < 0.25:
            path = rng.choice(["/reset", "/step", "/mcp", "/state", "/nothing"])
            body: Any = right.get("data", {})
            body = {"action": body} if path == "/step" else body
            answer = self._http.post(path, content=spoilt_json(rng, body).encode("utf-8", "replace"))
            assert answer.status_code in (200, 404, 405, 422), answer
            return
        if self._socket is None:
            self._socket = connect_websocket(f"ws://{urlsplit(self._url).netloc}/ws", open_timeout=20)
        text = spoilt_json(rng, right)
        try:
            self._socket.send(text if rng.random() < 0.9 else text.encode())
            assert json.loads(self._socket.recv(timeout=20))["type"] in ("observation", "state", "error", "mcp")
        except ConnectionClosed:  # it has said "close", or the session has ended
            self._socket = None

    def close(self) -> None:
        self._http.close()
        if self._socket is not None:
            self._socket.close()


class Mcp:
    """Spoilt JSON-RPC over HTTP, in a session that is there or not."""

    def __init__(self, url: str) -> None:
        self._url, self._http = url, httpx.Client(timeout=20)
        self._session = ""

    def send(self, rng: random.Random) -> None:
        if not self._session:
            about = {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "fuzz", "version": "1"},
            }
            asked = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
            answer = self._http.post(self._url, json=asked, headers=_ACCEPTS)
            self._session = answer.headers["mcp-session-id"]
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            self._http.post(self._url, json=ready, headers={**_ACCEPTS, "mcp-session-id": self._session})
        called = rng.choice([
            {"name": "step", "arguments": {"action": [0.5, 0.0]}}, {"name": "reset", "arguments": {"seed": 3}},
            {"name": "nudge", "arguments": {"by": 0.1}}, {"name": "get_game_state", "arguments": {}},
        ])  # fmt: skip
        method = rng.choice(["tools/call"] * 4 + ["tools/list", "resources/list", "resources/read", "ping", "nothing"])
        params = {**called, "uri": "ue-rl://spec"} if method != "tools/list" else {}
        text = spoilt_json(rng, {"jsonrpc": "2.0", "id": rng.randrange(1, 9), "method": method, "params": params})
        name = self._session if rng.random() < 0.95 else rng.choice(["", "nobody"])
        headers = {**_ACCEPTS, "mcp-session-id": name}
        answer = self._http.post(self._url, content=text.encode("utf-8", "replace"), headers=headers)
        assert answer.status_code < 500, (answer, text)

    def close(self) -> None:
        if self._session:
            self._http.delete(self._url, headers={**_ACCEPTS, "mcp-session-id": self._session})
        self._http.close()


TARGETS: dict[str, Any] = {"grpc": Grpc, "openenv": OpenEnv, "mcp": Mcp}
