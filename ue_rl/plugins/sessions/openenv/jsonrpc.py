"""JSON-RPC as OpenEnv's /mcp has it: tools/list, tools/call, and sessions that a client opens and closes itself."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from ue_rl.plugins.sessions.openenv.messages import JsonRpc
from ue_rl.plugins.sessions.openenv.playing import SessionDriver
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.tools import SessionTools
from ue_rl.plugins.sessions.waiting import destroyed
from ue_rl.system.errors import ResourceExhausted, SessionError, UeRlError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000


def failed(code: int, message: str, id_: Any = None, **data: Any) -> dict[str, Any]:
    """An answer that is an error."""
    more = None
    if data:
        more = data
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message, "data": more}}


async def answered(
    text: str | bytes, pool: SessionPool, tools: SessionTools, player: SessionDriver | None = None
) -> dict[str, Any]:
    """The answer to a request.

    Args:
        player: of the WebSocket that it came over; None over HTTP: then it may name a session, else it gets one for
            itself alone.
    """
    try:
        request = JsonRpc.model_validate(json.loads(text))
    except ValidationError as error:
        return failed(INVALID_REQUEST, f"Invalid request: {error}")
    except (ValueError, RecursionError) as error:
        return failed(PARSE_ERROR, f"Parse error: {error}")
    asked = request.params
    temporary = None
    try:
        if request.method == "openenv/session/create":
            if player:
                session = player.session
            else:
                session = pool.create()
            return _done(request, {"session_id": session.id})
        if request.method == "openenv/session/close":
            return await _close(request, pool, player)
        if request.method not in ("tools/list", "tools/call"):
            return failed(METHOD_NOT_FOUND, f"Method not found: {request.method}", request.id)
        if player is None and request.method == "tools/call" and "session_id" not in asked:
            temporary = pool.create()
            player = SessionDriver(temporary, tools)
        elif player is None and "session_id" in asked:
            player = SessionDriver(pool.get(str(asked["session_id"])), tools)
        if request.method == "tools/list":
            listed = [{**each.as_dict(), "input_schema": each.parameters} for each in tools.schemas()]
            return _done(request, {"tools": listed})
        assert player is not None
        return await _call(request, player)
    except ResourceExhausted as error:
        counts = {"active_sessions": len(pool.sessions()), "max_sessions": pool.max_sessions}
        return failed(SERVER_ERROR, str(error), request.id, **counts)
    except SessionError as error:
        if player is None:
            code = INVALID_PARAMS
        else:
            code = INTERNAL_ERROR
        return failed(code, str(error), request.id)
    finally:
        if temporary is not None:
            await destroyed(temporary)


async def _call(request: JsonRpc, player: SessionDriver) -> dict[str, Any]:
    name = request.params.get("name")
    arguments = request.params.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return failed(INVALID_PARAMS, "params need 'name', a string, and 'arguments', an object", request.id)
    try:
        result = await player.call(name, arguments)
    except SessionError:
        raise
    except UeRlError as error:
        wrong = getattr(error, "code", "INVALID_PARAMETERS") != "TOOL_EXECUTION_FAILED"
        if wrong:
            code = INVALID_PARAMS
        else:
            code = INTERNAL_ERROR
        return failed(code, str(error), request.id)
    content = [{"type": "text", "text": json.dumps(result, allow_nan=False)}]
    return _done(request, {"content": content, "structured_content": result, "data": result, "is_error": False})


async def _close(request: JsonRpc, pool: SessionPool, player: SessionDriver | None) -> dict[str, Any]:
    name = request.params.get("session_id")
    if not isinstance(name, str):
        return failed(INVALID_PARAMS, "Invalid params - 'session_id' is required", request.id)
    if player is not None and name == player.session.id:
        return failed(INVALID_REQUEST, "this session ends with its WebSocket", request.id)
    await destroyed(pool.get(name))
    return _done(request, {"session_id": name, "closed": True})


def _done(request: JsonRpc, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request.id, "result": result}
