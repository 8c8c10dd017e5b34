"""What a page of somebody else's can make a browser send is refused by every server on loopback, its own is served.

The requests are written byte by byte: no client chooses their headers.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.plugins.sessions.game import Drift
from tests.support.models import make
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.devtools.metrics.serving import serve_metrics
from ue_rl.inference import export_onnx
from ue_rl.inference.runtime.reload import ReloadingInference
from ue_rl.inference.server.server import PolicyServer
from ue_rl.plugins.arena import AgentArena
from ue_rl.plugins.sessions.grpc import serve as serve_grpc
from ue_rl.plugins.sessions.mcp import serve as serve_mcp
from ue_rl.plugins.sessions.openenv import serve as serve_openenv
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.protocol.access.visitors import Visitors
from ue_rl.system.errors import ConfigurationError

ALLOWED = "pages.example"
JSON = {"Content-Type": "application/json"}
MCP = {"Accept": "application/json, text/event-stream", **JSON}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HELLO = {
    **LIST, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}},
}  # fmt: skip
SEEN = {"agent_id": "scout", "tick": 1, "position": [0, 0, 0], "nearby_resources": [], "nearby_hazards": []}


class Route(NamedTuple):
    """A request that is served: on which server, how it is asked, and with what."""

    server: str
    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


ROUTES = (
    Route("openenv", "POST", "/reset", {}, JSON),
    Route("openenv", "POST", "/step", {"action": {"action": [0.0, 0.0]}}, JSON),
    Route("openenv", "POST", "/mcp", LIST, JSON),
    Route("openenv", "GET", "/metadata"),
    Route("openenv", "WS", "/ws"),
    Route("openenv", "WS", "/mcp"),
    Route("arena", "POST", "/observe", SEEN, JSON),
    Route("arena", "POST", "/tools/execute", {"tool": "idle", "params": {}, "agent_id": "scout"}, JSON),
    Route("arena", "GET", "/debug/traces"),
    Route("mcp", "POST", "/mcp", HELLO, MCP),
    Route("metrics", "GET", "/metrics"),
)
FOREIGN: dict[str, dict[str, str | None]] = {
    "a name that points here": {"Host": "evil.example:PORT"},
    "the same, with its page": {"Host": "evil.example:PORT", "Origin": "http://evil.example:PORT"},
    "a page of elsewhere": {"Origin": "https://evil.example"},
    "a page of nobody": {"Origin": "null"},
    "a name that begins as ours": {"Origin": "http://127.0.0.1.evil.example"},
    "a picture in a page": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
}
FOREIGN_TYPES: dict[str, dict[str, str | None]] = {
    "a form": {"Content-Type": "application/x-www-form-urlencoded"},
    "plain text": {"Content-Type": "text/plain;charset=UTF-8"},
    "a form of files": {"Content-Type": "multipart/form-data; boundary=x"},
    "a page that says no type": {"Content-Type": None, "Origin": "http://127.0.0.1:3000"},
}
OURS: dict[str, dict[str, str | None]] = {
    "no browser": {},
    "localhost": {"Host": "localhost:PORT"},
    "in capitals": {"Host": "LOCALHOST"},
    "another address of this machine": {"Host": "127.0.0.2:PORT"},
    "IPv6": {"Host": "[::1]:PORT"},
    "a page of this machine": {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site"},
    "a link that was clicked": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
}
NAMED: dict[str, dict[str, str | None]] = {
    "a page that was allowed": {"Origin": f"https://{ALLOWED}", "Sec-Fetch-Site": "cross-site"},
    "a proxy that was allowed": {"Host": f"{ALLOWED}:443", "Origin": f"https://{ALLOWED}"},
}


def said(port: int, route: Route, changed: dict[str, str | None]) -> tuple[int, str]:
    """The status and all that was answered."""
    body = b"" if route.body is None else json.dumps(route.body).encode()
    headers: dict[str, str | None] = {"Host": "127.0.0.1:PORT", "Connection": "close", **route.headers}
    if route.method == "WS":
        key = base64.b64encode(bytes(16)).decode()
        headers |= {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": key}
        headers |= {"Sec-WebSocket-Version": "13"}
    elif route.method == "POST":
        headers |= {"Content-Length": str(len(body))}
    told = {name: value.replace("PORT", str(port)) for name, value in (headers | changed).items() if value is not None}
    method = "GET" if route.method == "WS" else route.method
    lines = [f"{method} {route.path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items()), "", ""]
    answer = spoken(port, "\r\n".join(lines).encode() + body, enough=route.method == "WS")
    return int(answer.split()[1]), answer


def spoken(port: int, data: bytes, enough: bool = False) -> str:
    """What is answered to bytes, to the end, or the first piece of it."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(data)
        while piece := sock.recv(65_536):
            answer += piece
            if enough:
                break
    return answer.decode("latin-1")


class Servers(NamedTuple):
    """The ports of all, by name, and the pool of those that have sessions."""

    ports: dict[str, int]
    pool: SessionPool


@contextlib.contextmanager
def serving(**options: Any) -> Iterator[Servers]:
    """Each server that speaks HTTP, on loopback."""

    class Numbers:
        def samples(self) -> Iterator[Any]:
            return iter(())

    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(SessionPool(Drift, max_sessions=8, workers=1))
        urls = {}
        serves: dict[str, Callable[..., Any]] = {"openenv": serve_openenv, "mcp": serve_mcp}
        for name, serve in serves.items():
            urls[name] = stack.enter_context(contextlib.closing(serve(pool, **options))).url
        arena = AgentArena.connect(port=0, **options)
        stack.callback(arena.stop)
        urls["arena"] = arena.start().url
        urls["metrics"] = stack.enter_context(serve_metrics("0", Numbers()))
        yield Servers({name: int(url.split(":")[2].split("/")[0]) for name, url in urls.items()}, pool)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with serving() as found:
        yield found


def foreign_cases() -> list[Any]:
    """(route, what is changed) of each request that is refused."""
    cases = []
    for route in ROUTES:
        kinds = {**FOREIGN, **(FOREIGN_TYPES if route.method == "POST" else {})}
        for name, changed in kinds.items():
            if route.method == "WS" and name == "a picture in a page":
                continue  # a browser's WebSocket always has an Origin
            cases.append(pytest.param(route, changed, id=f"{route.server} {route.method} {route.path}: {name}"))
    return cases


def test_there_are_sixty_foreign_requests() -> None:
    assert len(foreign_cases()) >= 60


@pytest.mark.parametrize(("route", "changed"), foreign_cases())
def test_a_foreign_request_is_refused(servers: Servers, route: Route, changed: dict[str, str | None]) -> None:
    status, answer = said(servers.ports[route.server], route, changed)
    assert status in (403, 415, 421), answer
    cure = "--metrics HOST:PORT" if route.server == "metrics" else "--allow-host NAME"
    assert route.method == "WS" or cure in answer or "application/json" in answer, "and says what to do"
    assert not servers.pool.sessions(), "and nothing was played"


def test_a_crowd_of_foreign_requests_is_a_line_of_the_log(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    sockets = [route for route in ROUTES if route.method == "WS"]
    for _ in range(10):
        for route in sockets:
            said(servers.ports[route.server], route, {"Origin": "https://evil.example"})
    assert len([record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]) <= 3, caplog.text


@pytest.mark.parametrize("ours", OURS.values(), ids=OURS)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.server} {route.method} {route.path}")
def test_the_same_from_this_machine_is_served(servers: Servers, route: Route, ours: dict[str, str | None]) -> None:
    if route.method == "WS" and ours.get("Sec-Fetch-Mode"):
        pytest.skip("nobody clicks on a WebSocket")
    status, answer = said(servers.ports[route.server], route, ours)
    assert status == (101 if route.method == "WS" else 200), answer


def test_the_same_from_an_origin_that_was_allowed_is_served() -> None:
    with serving(allow_hosts=[ALLOWED]) as servers:
        for route in ROUTES:
            if route.server == "metrics":
                continue  # for Prometheus, not for pages
            for changed in NAMED.values():
                status, answer = said(servers.ports[route.server], route, changed)
                assert status == (101 if route.method == "WS" else 200), answer
                assert route.method == "WS" or f"access-control-allow-origin: https://{ALLOWED}" in answer
            for name, changed in FOREIGN.items():
                if route.method != "WS" or name != "a picture in a page":
                    status, answer = said(servers.ports[route.server], route, changed)
                    assert status in (403, 421), answer
                    assert "access-control-allow-origin" not in answer
        asks = {"Origin": f"https://{ALLOWED}", "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "content-type,authorization"}  # fmt: skip
        status, answer = said(servers.ports["openenv"], Route("openenv", "OPTIONS", "/reset"), asks)
        assert status == 200, answer


def test_http_at_a_grpc_port_is_not_answered() -> None:
    with SessionPool(Drift, max_sessions=2, workers=1) as pool, contextlib.closing(serve_grpc(pool)) as server:
        port = int(server.url.rpartition(":")[2])
        for path in ("/ue_rl.v1.Sessions/CreateSession", "/"):
            for origin in ("", "Origin: http://evil.example\r\n"):
                head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{origin}Content-Type: application/grpc\r\n"
                answer = spoken(port, f"{head}TE: trailers\r\nContent-Length: 5\r\n\r\n".encode() + bytes(5))
                assert not answer.startswith("HTTP/1.1 2"), answer
        assert not pool.sessions()


@pytest.mark.parametrize("path", ["/", "/ACT=RESET;ENV=0", "//0,0"])
@pytest.mark.parametrize("lines", [b"ACT=RESET;ENV=0\n", b"\n\nRESET\n0\n", b"TRAINING_COMPLETE\n"])
def test_lines_of_the_protocol_in_a_post_are_not_played(path: str, lines: bytes) -> None:
    class Watched(GymnasiumBridge):
        played = 0

        def update_rl(self) -> Any:
            type(self).played += 1
            return super().update_rl()

    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nContent-Length: {len(lines)}\r\n"
    with run_in_thread(Watched("CartPole-v1", 1), port=0) as running:
        answer = spoken(running.port, head.encode() + b"Content-Type: text/plain\r\n\r\n" + lines)
        assert not Watched.played
        assert "OBS" not in answer.partition("\n")[2], "a handshake at most"


async def test_lines_of_the_protocol_in_a_post_ask_no_policy(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    export_onnx(make(), path)
    with ReloadingInference(path, interval=None) as policy:
        async with PolicyServer(policy, port=0) as server:
            seen = ",".join("0" * policy.current.obs_size)
            lines = f"CONFIG:OBS={policy.current.obs_size};ACT={policy.current.act_size}\nOBS={seen}\n".encode()
            head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(lines)}\r\n\r\n".encode()
            answer = await asyncio.to_thread(spoken, server.port, head + lines)
            assert answer.startswith("ERROR=")
            assert not server.requests


@pytest.mark.parametrize("name", ["http://pages.example", "pages.example:80", "", "two words"])
def test_what_is_no_name_of_a_host_is_said(name: str) -> None:
    with pytest.raises(ConfigurationError, match="not the name of a host"):
        Visitors(True, [name])


def test_on_another_address_any_host_may_stand_and_only_its_own_pages() -> None:
    visitors = Visitors(local=False)
    right = [("Host", "game.lan:80"), ("Content-Type", "application/json")]
    assert visitors.refusal("POST", right) is None
    assert visitors.refusal("POST", [*right, ("Origin", "http://game.lan")]) is None
    refused = visitors.refusal("POST", [*right, ("Origin", "http://evil.example")])
    assert refused is not None
    assert refused.status == 403


def test_a_page_may_end_its_session_and_says_no_type_with_that() -> None:
    visitors = Visitors(True)
    headers = [("Host", "localhost"), ("Origin", "http://localhost:3000")]
    assert visitors.refusal("DELETE", headers) is None
    refusal = visitors.refusal("POST", headers)
    assert refusal is not None
    assert refusal.status == 415, "a form, before which no browser asks"


def test_two_hosts_and_a_host_that_is_none() -> None:
    visitors = Visitors(local=True)
    for hosts in ([], ["127.0.0.1", "127.0.0.1"], ["127.0.0.1@evil.example"], ["127.0.0.1:80:80"], ["0.0.0.0"], [""]):
        refused = visitors.refusal("GET", [("Host", host) for host in hosts])
        assert refused is not None, hosts
        assert refused.status == 421
