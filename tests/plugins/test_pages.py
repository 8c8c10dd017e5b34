"""What a page of somebody else's can make a browser send is refused by each plug-in's server, its own is served."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.plugins.sessions.game import Drift
from tests.support.pages import ALLOWED, FOREIGN, JSON, NAMED, OURS, Route, foreign_cases, said, spoken
from ue_rl.devtools.metrics.serving import serve_metrics
from ue_rl.plugins.arena import AgentArena
from ue_rl.plugins.sessions.grpc import serve as serve_grpc
from ue_rl.plugins.sessions.mcp import serve as serve_mcp
from ue_rl.plugins.sessions.openenv import serve as serve_openenv
from ue_rl.plugins.sessions.realtime import SessionPool

MCP = {"Accept": "application/json, text/event-stream", **JSON}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HELLO = {
    **LIST, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}},
}  # fmt: skip
SEEN = {"agent_id": "scout", "tick": 1, "position": [0, 0, 0], "nearby_resources": [], "nearby_hazards": []}


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
)


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


def test_there_are_sixty_foreign_requests() -> None:
    assert len(foreign_cases(ROUTES)) >= 60


@pytest.mark.parametrize(("route", "changed"), foreign_cases(ROUTES))
def test_a_foreign_request_is_refused(servers: Servers, route: Route, changed: dict[str, str | None]) -> None:
    status, answer = said(servers.ports[route.server], route, changed)
    assert status in (403, 415, 421), answer
    assert route.method == "WS" or "--allow-host NAME" in answer or "application/json" in answer, "and says what to do"
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
