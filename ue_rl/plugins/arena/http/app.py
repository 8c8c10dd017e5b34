"""The routes. Wrong input is a 4xx that names the field; what an agent does wrong is an answer, not an error."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ue_rl.bridges.serving.answer import JsonAnswer
from ue_rl.plugins.arena.behaviors import AgentBehavior, RandomBehavior, RulesBehavior
from ue_rl.plugins.arena.http.messages import Execute, Experience, Register, body_of, observations_in, observe
from ue_rl.plugins.arena.log import row_of
from ue_rl.plugins.arena.memory.base import Entry
from ue_rl.plugins.arena.seats import AGENT_NOT_FOUND, INVALID_PARAMETERS, LLM_TIMEOUT, Decision
from ue_rl.system.errors import ConfigurationError, ToolError, shorten
from ue_rl.system.json_values import readable

if TYPE_CHECKING:
    from ue_rl.plugins.arena.arena import AgentArena

MAX_BODY = 4 * 2**20
BODY_WITHIN = 10.0  # seconds
MAX_REGISTERED = 1000  # agents that come by HTTP
_STATUS = {"TOOL_NOT_FOUND": 404, AGENT_NOT_FOUND: 404, INVALID_PARAMETERS: 422}
READY: dict[str, Callable[[], AgentBehavior]] = {"rules": RulesBehavior, "random": RandomBehavior}


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        self.status = status
        where = None
        if field is not None:
            where = shorten(field)
        self.answer = {"error": message, "error_code": code, "field": where}
        super().__init__(message)


def make_app(
    arena: AgentArena, ready: dict[str, Callable[[], AgentBehavior]] | None = None, body_within: float = BODY_WITHIN
) -> Starlette:
    """The ASGI application of an arena.

    Args:
        ready: behaviours that a game may ask for in POST /agents/register, by name; None: rules and random.
        body_within: seconds until a body must have come.
    """
    if ready is None:
        check = READY
    else:
        check = ready
    routes = _Routes(arena, check, body_within)
    table: list[tuple[str, str, Callable[[Request], Awaitable[Any]]]] = [
        ("GET", "/", routes.root), ("GET", "/health", routes.health), ("GET", "/tools/list", routes.tools),
        ("GET", "/metrics", routes.metrics), ("GET", "/memory/{agent_id:path}", routes.memory),
        ("GET", "/debug/traces", routes.traces), ("GET", "/debug/observations", routes.observations),
        ("GET", "/debug/changes", routes.changes), ("POST", "/debug/reset", routes.reset),
        ("POST", "/observe", routes.observe), ("POST", "/tick", routes.tick),
        ("POST", "/agents/register", routes.register), ("POST", "/tools/execute", routes.execute),
        ("POST", "/tool", routes.execute), ("POST", "/experience", routes.experience),
    ]  # fmt: skip
    routes.paths = [f"{method} {path}" for method, path, _ in table]
    return Starlette(
        routes=[Route(path, _answering(handle), methods=[method]) for method, path, handle in table],
        exception_handlers={HTTPException: _no_route},
    )


def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JsonAnswer({"error": error.detail, "error_code": "NOT_FOUND", "field": None}, error.status_code)


def _answering(handle: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return JsonAnswer(await handle(request))
        except ConfigurationError as error:
            refused = _Refused(422, INVALID_PARAMETERS, shorten(error.plain(), 1000), error.field)
        except _Refused as error:
            refused = error
        except asyncio.CancelledError:  # the server ends, and waits no longer for agents
            refused = _Refused(503, LLM_TIMEOUT, "the arena has ended")
        return JsonAnswer(refused.answer, refused.status)

    return answer


async def _json(request: Request, within: float) -> Any:
    """The body, read within so many seconds and a size."""
    try:
        body = await asyncio.wait_for(_received(request), within)
    except asyncio.TimeoutError:
        raise _Refused(408, INVALID_PARAMETERS, f"the body did not come within {within:g} s", "body") from None
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Refused(400, INVALID_PARAMETERS, f"the body is not JSON: {error}", "body") from None


async def _received(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise _Refused(413, INVALID_PARAMETERS, f"the body is larger than {MAX_BODY} bytes", "body")
    return bytes(body)


class _Routes:
    def __init__(self, arena: AgentArena, ready: dict[str, Callable[[], AgentBehavior]], body_within: float) -> None:
        self.arena, self.ready, self.paths = arena, ready, list[str]()
        self._body_within = body_within
        self._times: deque[float] = deque(maxlen=1000)
        self._last = 0

    async def _json(self, request: Request) -> Any:
        return await _json(request, self._body_within)

    # -- what a game posts

    async def observe(self, request: Request) -> Any:
        seen = observe(await self._json(request))
        (outcome,) = await self._ticked([seen], seen.tick)
        return {"agent_id": outcome.agent_id, **_decided(outcome)}

    async def tick(self, request: Request) -> Any:
        tick, shape, seen = observations_in(await self._json(request))
        began = time.perf_counter()
        outcomes = await self._ticked(seen, tick)
        if shape == "agent_id":
            return {"tick": tick, "agent_id": outcomes[0].agent_id, "action": _decided(outcomes[0])}
        if shape == "agents":
            return {"tick": tick, "actions": [{"agent_id": o.agent_id, "action": _decided(o)} for o in outcomes]}
        metrics = {
            "tick_time_ms": (time.perf_counter() - began) * 1000,
            "agents_processed": len(seen),
            "actions_generated": sum(outcome.code is None for outcome in outcomes),
        }
        actions = [{"agent_id": o.agent_id, "tick": tick, **_decided(o)} for o in outcomes]
        return {"tick": tick, "actions": actions, "metrics": metrics}

    async def _ticked(self, seen: list[Any], tick: int) -> list[Decision]:
        began = time.perf_counter()
        outcomes = await self.arena.tick_async(seen)
        self._times.append(time.perf_counter() - began)
        self._last = tick
        return outcomes

    async def register(self, request: Request) -> Any:
        body = body_of(Register, await self._json(request))
        known = self.arena.behaviors
        if body.agent_id in known:
            return {"agent_id": body.agent_id, "registered": True, "behavior": type(known[body.agent_id]).__name__}
        if body.behavior not in self.ready:
            expected = f"one of {', '.join(sorted(self.ready))}"
            raise _Refused(422, INVALID_PARAMETERS, f"no such behaviour; expected {expected}", "behavior")
        if len(known) >= MAX_REGISTERED:
            raise _Refused(429, INVALID_PARAMETERS, f"there are {MAX_REGISTERED} agents already", "agent_id")
        self.arena.register(body.agent_id, self.ready[body.behavior]())
        return {"agent_id": body.agent_id, "registered": True, "behavior": body.behavior}

    async def execute(self, request: Request) -> Any:
        body = body_of(Execute, await self._json(request))
        try:
            result = await asyncio.to_thread(self.arena.execute, body.tool, body.params, body.agent_id)
        except ToolError as error:
            name = body.tool
            detail = shorten(error.plain(), 1000)
            code = error.code
            said = {
                "TOOL_NOT_FOUND": f"Tool '{name}' not found",
                INVALID_PARAMETERS: f"Invalid parameters for tool '{name}'",
                AGENT_NOT_FOUND: f"Agent '{shorten(body.agent_id)}' not found",
            }.get(code, detail)
            return {"success": False, "result": None, "error": said, "error_code": code, "detail": detail}
        return {"success": True, "result": result, "error": ""}

    async def experience(self, request: Request) -> Any:
        body = body_of(Experience, await self._json(request))
        self._behavior(body.agent_id)
        stored = False
        if body.text:
            job = self.arena.remember(body.agent_id, Entry(body.text, body.tick, body.priority, "experience"))
            await asyncio.wait([asyncio.wrap_future(job)], timeout=self.arena.deadline)
            stored = job.done() and job.exception() is None and job.result()
        if body.done:
            self.arena.end_episode(body.agent_id, body.success, body.metrics)
        return {"success": True, "agent_id": body.agent_id, "stored": stored}

    def _behavior(self, agent_id: str) -> AgentBehavior:
        if agent_id not in self.arena.behaviors:
            raise _Refused(404, AGENT_NOT_FOUND, f"Agent '{shorten(agent_id)}' not found", "agent_id")
        return self.arena.behaviors[agent_id]

    # -- what a person looks at

    async def root(self, request: Request) -> Any:
        return {
            "name": "ue_rl agent arena",
            "status": "running",
            "agents": sorted(self.arena.behaviors),
            "routes": self.paths,
        }

    async def health(self, request: Request) -> Any:
        return {"status": "healthy", "agents": len(self.arena.behaviors), "tick": self._last}

    async def tools(self, request: Request) -> Any:
        return {"tools": [schema.as_dict("parameters") for schema in self.arena.tools.schemas()]}

    async def metrics(self, request: Request) -> Any:
        times = sorted(self._times)
        middle = {}
        if times:
            middle = {f"p{p}": times[min(len(times) - 1, len(times) * p // 100)] * 1000 for p in (50, 99)}
        counts = dict(self.arena.counts)
        errors = {code: count for code, count in counts.items() if code.isupper()}
        return {
            "ticks": counts.get("ticks", 0),
            "decisions": counts.get("decisions", 0),
            "errors": errors,
            "agents": len(self.arena.behaviors),
            "tick_time_ms": middle,
        }

    async def memory(self, request: Request) -> Any:
        agent_id = request.path_params["agent_id"]
        memory = self._behavior(agent_id).memory
        entries = []
        if memory is not None:
            entries = await asyncio.to_thread(memory.dump)
        return {"agent_id": agent_id, "count": len(entries), "memory": entries[-1000:]}

    async def traces(self, request: Request) -> Any:
        rows = map(row_of, list(self.arena.log.recent))
        return {"traces": [{name: value for name, value in row.items() if name != "observation"} for row in rows]}

    async def observations(self, request: Request) -> Any:
        return {"observations": [readable(each.observation.model_dump()) for each in list(self.arena.log.recent)]}

    async def changes(self, request: Request) -> Any:
        return {"changes": self.arena.log.changes()}

    async def reset(self, request: Request) -> Any:
        self.arena.log.recent.clear()
        self.arena.counts.clear()
        self._times.clear()
        return {"success": True}


def _decided(outcome: Decision) -> dict[str, Any]:
    said = outcome.decision
    reasoning = said.reasoning
    if not reasoning:
        reasoning = "Agent decision"
    answer = {"tool": said.tool, "params": said.params, "reasoning": reasoning}
    if outcome.code is None:
        return answer
    return {**answer, "error_code": outcome.code}
