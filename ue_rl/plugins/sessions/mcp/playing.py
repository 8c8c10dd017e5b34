"""What MCP asks, whichever version of the package speaks: tools, resources, a session for each client.

A session of the game begins with the first tool that a client calls. Once it has ended (it was idle, the game failed)
each tool says so, and `reset` begins another one. Over HTTP MCP 2026-07-28 has no sessions: there `reset` begins one
of the game and says its id, which every tool takes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from ue_rl.plugins.sessions.realtime import Session, SessionPool
from ue_rl.plugins.sessions.tools import SessionTools
from ue_rl.plugins.sessions.waiting import destroyed
from ue_rl.system.errors import SessionEnded, ToolError, UeRlError

_log = logging.getLogger("ue_rl.plugins.sessions.mcp")
_REMEMBERED = 1024  # clients whose session has ended, to say why
RULES = "ue-rl://rules"
SPEC = "ue-rl://spec"
SESSION = "session_id"  # argument of each tool for a client that has no session
_ABOUT = {
    "type": "string",
    "description": "of the session, as reset has answered it; a reset without one begins another.",
}


class Players:
    """The sessions of a pool by client.

    In each method `client` says who asks; None: one that has no session, and names one in its arguments.

    Raises:
        ConfigurationError: the game has a tool of a name that is taken.
    """

    def __init__(self, pool: SessionPool, remembered: int = _REMEMBERED) -> None:
        self._pool = pool
        self._remembered = remembered
        self._tools = SessionTools(pool)
        self._sessions: dict[str, Session] = {}

    def tools(self, client: str | None) -> list[dict[str, Any]]:
        """Name, description and inputSchema of each."""
        listed = [each.as_dict("inputSchema") for each in self._tools.schemas()]
        if client is not None:
            return listed
        return [_with_session(tool) for tool in listed]

    async def call(self, client: str | None, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """A CallToolResult, as JSON has it; an error is one, too."""
        wrong = False
        begins = name == "reset"
        given = dict(arguments)
        named = None
        if client is None:
            named = given.pop(SESSION, None)
        try:
            self._tools.check(name, given)
            if client is None:
                session = self._named(named, begins)
            else:
                session = self._session(client, begins)
            answer = await self._tools.call(session, name, given)
            told = _text(answer)
        except UeRlError as error:
            wrong = True
            answer = {"code": getattr(error, "code", "INVALID_ARGUMENT"), "message": str(error)}
            told = _text(answer)
        except Exception as error:  # noqa: BLE001 - told to the client, and logged
            _log.exception("a tool failed: %s", name[:80])
            wrong = True
            answer = {"code": "INTERNAL", "message": f"{type(error).__name__}: {error}"}
            told = _text(answer)
        answer = json.loads(told)
        if wrong:
            text = answer["message"]
        else:
            text = told
        return {
            "content": [{"type": "text", "text": text}],
            "structuredContent": answer,
            "isError": wrong,
        }

    def resources(self) -> list[dict[str, Any]]:
        """What may be read."""
        return [
            {"uri": RULES, "name": "rules", "mimeType": "text/plain", "description": "What the game is about"},
            {
                "uri": SPEC,
                "name": "spec",
                "mimeType": "application/json",
                "description": "What the numbers of observations and actions mean",
            },
        ]

    def read(self, uri: str) -> dict[str, Any]:
        """The contents of a resource.

        Raises:
            LookupError: there is none of this address.
        """
        if uri == RULES:
            return {"uri": uri, "mimeType": "text/plain", "text": self._pool.rules}
        if uri == SPEC:
            return {"uri": uri, "mimeType": "application/json", "text": json.dumps(self._spec())}
        raise LookupError(f"there is no resource {uri[:80]}; there are {RULES} and {SPEC}")

    def _spec(self) -> dict[str, Any]:
        spec = self._pool.spec
        low, high = spec.obs_bounds
        return {
            "game": self._pool.name,
            "handshake": self._pool.handshake,
            "observation_names": list(spec.obs_names),
            "action_names": list(spec.act_names),
            "observation_low": [float(n) if abs(n) < 3e38 else None for n in low],
            "observation_high": [float(n) if abs(n) < 3e38 else None for n in high],
            "action_space": spec.action_spec.kind.value,
            "numbers_of_an_action": spec.act_size,
        }

    def _session(self, client: str, begins: bool) -> Session:
        session = self._sessions.get(client)
        if session is not None and session.reason and not begins:
            raise SessionEnded(f"this session has ended: {session.reason}", cure="call reset: it begins another one")
        if session is None or session.reason:
            return self._begin(client)
        return session

    def _begin(self, client: str | None) -> Session:
        session = self._pool.create()
        if client is None:
            key = session.id
        else:
            key = client
        self._sessions.pop(key, None)  # the new one is the newest of all
        ended = [each for each, its in self._sessions.items() if its.reason]
        for each in ended[: -self._remembered]:  # those begun first, of clients that have gone without a word
            del self._sessions[each]
        self._sessions[key] = session
        return session

    def _named(self, name: Any, begins: bool) -> Session:
        """The session that a client names which has none of its own."""
        if name is None and begins:
            return self._begin(None)
        if not isinstance(name, str):
            raise ToolError(
                "no session is named",
                code="INVALID_PARAMETERS",
                field=SESSION,
                expected="what reset has answered",
                got=name,
                cure="call reset, and give the session_id of its answer",
            )
        try:
            return self._pool.get(name)
        except SessionEnded:
            if begins:
                return self._begin(None)
            raise

    async def leave(self, client: str) -> None:
        """A client has gone: its session ends."""
        session = self._sessions.pop(client, None)
        if session is not None:
            await destroyed(session, "its client has gone")

    async def close(self) -> None:
        """All have gone."""
        for client in list(self._sessions):
            await self.leave(client)


def _with_session(tool: dict[str, Any]) -> dict[str, Any]:
    schema = tool["inputSchema"]
    properties = {**schema.get("properties", {}), SESSION: _ABOUT}
    required = schema.get("required", [])
    if tool["name"] != "reset":
        required = [*required, SESSION]
    return {**tool, "inputSchema": {**schema, "properties": properties, "required": required}}


def _text(answer: Mapping[str, Any]) -> str:
    """As JSON: no half characters, which MCP does not carry, and no NaN, on which the package's own clients raise.

    Raises:
        ValueError: a number is not finite.
    """
    return json.dumps(answer, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace").decode()
