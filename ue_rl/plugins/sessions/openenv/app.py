"""The endpoints of OpenEnv over a SessionPool, as a Starlette application, and `serve`, which puts it on a port.

Over plain HTTP each request has a session for itself, as in OpenEnv: sessions live on WebSockets.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from ue_rl.bridges.serving.answer import JsonAnswer
from ue_rl.bridges.serving.http import serve_app
from ue_rl.bridges.serving.thread import LoopServer
from ue_rl.plugins.sessions.openenv import jsonrpc
from ue_rl.plugins.sessions.openenv.describing import TASKS, openapi
from ue_rl.plugins.sessions.openenv.messages import Action, Observation, Reset, State, Step, faults
from ue_rl.plugins.sessions.openenv.playing import RESERVED, SessionDriver
from ue_rl.plugins.sessions.openenv.socket import Socket
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.tools import SessionTools
from ue_rl.plugins.sessions.waiting import destroyed
from ue_rl.protocol.access.server_access import ServerAccess
from ue_rl.system.errors import ResourceExhausted, SessionError, UeRlError

_log = logging.getLogger("ue_rl.plugins.sessions.openenv")
_LARGEST = 16 * 2**20  # bytes of a request's body
_TOO_LARGE = jsonrpc.failed(jsonrpc.INVALID_REQUEST, f"the request is larger than {_LARGEST} bytes")


def serve(
    pool: SessionPool,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    access: ServerAccess | None = None,
    allow_hosts: Collection[str] = (),
) -> LoopServer:
    """Serves the sessions of `pool` to clients of OpenEnv; returns when it listens.

    Args:
        port: 0 takes a free one; the server's `url` has it.
        access: asks for a token (Authorization: Bearer), and speaks TLS; None: neither.
        allow_hosts: names of pages and proxies that may ask, beside those of this machine (docs/security.md).

    Raises:
        OSError: the address cannot be listened on. ConfigurationError: the game has a tool of a reserved name, or
            the token or a name cannot be used.
    """
    return serve_app(application(pool), host, port, "openenv", access=access, allow_hosts=allow_hosts)


def application(pool: SessionPool) -> Starlette:
    """The application, for a server of one's own, which looks at Host and Origin itself.

    Raises:
        ConfigurationError: the game has a tool of a reserved name.
    """
    tools = SessionTools(pool, without=RESERVED)

    async def alone(ask: Callable[[SessionDriver], Awaitable[Any]]) -> JsonAnswer:
        """Asks a session that lasts for this request."""
        session = None
        try:
            session = pool.create()
            return JsonAnswer(await ask(SessionDriver(session, tools)))
        except ValidationError as error:
            return _invalid(error)
        except ResourceExhausted as error:
            return JsonAnswer({"detail": str(error)}, 503, {"Retry-After": "1"})
        except SessionError as error:
            return JsonAnswer({"detail": str(error)}, 500)
        except UeRlError as error:
            return JsonAnswer({"detail": [{"type": "value_error", "loc": ["body"], "msg": str(error)}]}, 422)
        finally:
            if session is not None:
                await destroyed(session)

    async def reset(request: Request) -> JsonAnswer:
        told = await _body(request, Reset)
        if isinstance(told, JsonAnswer):
            return told
        return await alone(lambda player: player.reset(told.model_dump(exclude_unset=True)))

    async def step(request: Request) -> JsonAnswer:
        told = await _body(request, Step)
        if isinstance(told, JsonAnswer):
            return told
        return await alone(lambda player: player.step(told.action))

    async def state(request: Request) -> JsonAnswer:
        return await alone(lambda player: player.state())

    async def health(request: Request) -> JsonAnswer:
        return JsonAnswer({"status": "healthy"})

    rules = pool.rules
    if not rules:
        rules = f"{pool.name}, served by ue_rl"

    async def metadata(request: Request) -> JsonAnswer:
        more = dict.fromkeys(("readme_content", "author", "documentation_url"))
        return JsonAnswer({"name": pool.name, "description": rules, "version": None, **more})

    async def schema(request: Request) -> JsonAnswer:
        seen = Observation.model_json_schema()
        kinds: dict[str, type[BaseModel]] = {"action": Action, "state": State}
        schemas = {key: kind.model_json_schema() for key, kind in kinds.items()}
        return JsonAnswer({**schemas, "observation": seen, "reset_observation": seen})

    async def document(request: Request) -> JsonAnswer:
        return JsonAnswer(openapi(pool.name, rules))

    async def environments(request: Request) -> JsonAnswer:
        return JsonAnswer([pool.name])

    async def no_tasks(request: Request) -> JsonAnswer:
        """What OpenEnv's own server answers for an environment that has none."""
        asked = str(request.path_params["env_name"])
        if asked.lower() != pool.name.lower():
            return JsonAnswer({"detail": f"unknown environment {asked!r}"}, 404)
        word = request.url.path.rpartition("/")[2]
        return JsonAnswer({"detail": f"{TASKS.get(word, 'list_splits')} is not supported: a game has no tasks"}, 501)

    async def remote(request: Request) -> JsonAnswer:
        text = await _read(request)
        return JsonAnswer(_TOO_LARGE if text is None else await jsonrpc.answered(text, pool, tools))

    async def socket(websocket: WebSocket) -> None:
        await Socket(websocket, pool, tools, plain_rpc=websocket.url.path == "/mcp").serve()

    gets = {
        "/health": health, "/metadata": metadata, "/schema": schema, "/state": state, "/openapi.json": document,
        "/list_environments": environments, "/{env_name}/splits": no_tasks,
    }  # fmt: skip
    posts = {
        "/reset": reset,
        "/step": step,
        "/mcp": remote,
        **{f"/{{env_name}}/{word}": no_tasks for word in TASKS},
    }
    return Starlette(
        routes=[
            *(Route(path, answer, methods=["GET"]) for path, answer in gets.items()),
            *(Route(path, answer, methods=["POST"]) for path, answer in posts.items()),
            WebSocketRoute("/ws", socket),
            WebSocketRoute("/mcp", socket),
        ]
    )


async def _body(request: Request, model: type[BaseModel]) -> Any:
    """The request's body, or the answer that says what is wrong with it."""
    text = await _read(request)
    if text is None:
        return JsonAnswer({"detail": f"the body is larger than {_LARGEST} bytes"}, 413)
    try:
        if text:
            document = json.loads(text)
        else:
            document = {}
        return model.model_validate(document)
    except ValidationError as error:
        return _invalid(error, ["body"])
    except (ValueError, RecursionError) as error:
        return JsonAnswer({"detail": [{"type": "json_invalid", "loc": ["body"], "msg": f"{error}"}]}, 422)


async def _read(request: Request) -> bytes | None:
    """The body; None where it is too large, of which no more is read."""
    parts = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > _LARGEST:
            return None
        parts.append(part)
    return b"".join(parts)


def _invalid(error: ValidationError, place: list[str] | None = None) -> JsonAnswer:
    return JsonAnswer({"detail": [{**each, "loc": [*(place or []), *each["loc"]]} for each in faults(error)]}, 422)
