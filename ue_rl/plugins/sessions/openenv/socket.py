"""One WebSocket of OpenEnv: a session of its own for as long as it lasts."""

from __future__ import annotations

import contextlib
import json
import logging
from typing import Any

from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from ue_rl.plugins.sessions.openenv import jsonrpc
from ue_rl.plugins.sessions.openenv.messages import MESSAGES, faults
from ue_rl.plugins.sessions.openenv.playing import SessionDriver
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.tools import SessionTools, submitted
from ue_rl.plugins.sessions.waiting import destroyed
from ue_rl.system.errors import ResourceExhausted, SessionError, UeRlError, shorten

_log = logging.getLogger("ue_rl.plugins.sessions.openenv")


class Socket:
    """Speaks with one client.

    Args:
        plain_rpc: the endpoint /mcp, which speaks JSON-RPC without an envelope.
    """

    def __init__(self, socket: WebSocket, pool: SessionPool, tools: SessionTools, plain_rpc: bool) -> None:
        self._socket = socket
        self._pool = pool
        self._tools = tools
        self._rpc = plain_rpc

    async def serve(self) -> None:
        """To its end; the session that it began ends with it."""
        socket = self._socket
        pool = self._pool
        await socket.accept()
        named = socket.query_params.get("session_id")
        session = None
        built = bool(named)
        try:
            if named:
                session = pool.get(named)
            else:
                session = pool.create()
            session.attach()
            await submitted(session, ticks=0)
            built = True
            await self._talk(SessionDriver(session, self._tools, begun=bool(named)))
        except WebSocketDisconnect:
            pass
        except ResourceExhausted as error:
            counts = {"active_sessions": len(pool.sessions()), "max_sessions": pool.max_sessions}
            await self._refuse("CAPACITY_REACHED", error, counts)
        except SessionError as error:
            if built:
                await self._refuse("SESSION_ERROR", error, {})
            else:
                await self._refuse("FACTORY_ERROR", error, {"factory_name": pool.name})
        finally:
            if session is not None and not named:
                await destroyed(session, "the connection of its agent has ended")
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # it is closed already
                await socket.close()

    async def _talk(self, player: SessionDriver) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                received = message.get("bytes") or b""
            else:
                received = text
            answer = await self._answered(player, received)
            if answer is None:
                return
            await self._socket.send_text(json.dumps(answer, allow_nan=False))

    async def _answered(self, player: SessionDriver, text: str | bytes) -> dict[str, Any] | None:
        """None: the client has said that it goes."""
        if self._rpc:
            return await jsonrpc.answered(text, self._pool, self._tools, player)
        try:
            told = json.loads(text)
        except (ValueError, RecursionError) as error:
            return _error("INVALID_JSON", f"Invalid JSON: {error}")
        kind = None
        if isinstance(told, dict):
            kind = told.get("type")
        if not isinstance(kind, str) or kind not in MESSAGES:
            return _error("UNKNOWN_TYPE", f"Unknown message type: {str(kind)[:80]}")
        try:
            MESSAGES[kind].model_validate(told)
            if kind == "close":
                return None
            if kind == "state":
                return {"type": "state", "data": await player.state()}
            if kind == "mcp":
                asked = json.dumps(told["data"])
                return {"type": "mcp", "data": await jsonrpc.answered(asked, self._pool, self._tools, player)}
            if kind == "reset":
                ask = player.reset
            else:
                ask = player.step
            return {"type": "observation", "data": await ask(told.get("data", {}))}
        except ValidationError as error:
            found = faults(error)
            return _error("VALIDATION_ERROR", f"Invalid message: {_first(found)}", errors=found)
        except SessionError as error:
            if isinstance(error, ResourceExhausted):
                return _error("EXECUTION_ERROR", str(error))
            raise
        except UeRlError as error:
            return _error("EXECUTION_ERROR", str(error))

    async def _refuse(self, code: str, error: Exception, more: dict[str, Any]) -> None:
        if self._rpc:
            answer = jsonrpc.failed(jsonrpc.SERVER_ERROR, str(error), **more)
        else:
            answer = _error(code, str(error), **more)
        try:
            await self._socket.send_text(json.dumps(answer))
        except (RuntimeError, WebSocketDisconnect):
            _log.debug("nobody hears it: %s", error)


def _first(found: list[dict[str, Any]]) -> str:
    """The first fault in words: OpenEnv's clients show the message alone."""
    place = ".".join(str(part) for part in found[0]["loc"])
    if not place:
        place = "it"
    more = ""
    if len(found) > 1:
        more = f" ({len(found) - 1} more faults)"
    return shorten(f"{place}: {found[0]['msg']}; got {found[0]['input']!r}", 500) + more


def _error(code: str, message: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, **more}}
