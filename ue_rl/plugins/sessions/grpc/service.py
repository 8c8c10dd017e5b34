"""The calls of sessions.proto, answered by a SessionPool. Games tick on its workers, never in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

from grpc import aio

from ue_rl.plugins.sessions import sessions_pb2 as messages
from ue_rl.plugins.sessions.grpc import packing
from ue_rl.plugins.sessions.grpc.playing import keep, play
from ue_rl.plugins.sessions.grpc.status import status_of
from ue_rl.plugins.sessions.limits import ASKED, MAX_TICKS, OBSERVATIONS, SESSION_ID
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.sessions_pb2_grpc import SessionsServicer
from ue_rl.plugins.sessions.waiting import destroyed, queued, state_of
from ue_rl.system.errors import ActionError, ConfigurationError, SessionEnded, SessionNotFound


def _named(call: Any) -> Any:
    """What a call raises becomes the status that the client gets."""

    @functools.wraps(call)
    async def answering(self: Any, request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await call(self, request, context)
        except (asyncio.CancelledError, aio.AbortError):
            raise
        except Exception as error:  # noqa: BLE001 - told to the client, and logged where it is a bug
            await context.abort(*status_of(error))

    return answering


class SessionService(SessionsServicer):
    """See sessions.proto.

    Args:
        stalled_after: seconds after which a client of Play that reads nothing has lost its session.
    """

    def __init__(self, pool: SessionPool, stalled_after: float) -> None:
        self._pool = pool
        self._stalled_after = stalled_after
        self._tools_json = pool.tools.json("input_schema")

    @_named
    async def CreateSession(self, request: messages.CreateSessionRequest, context: Any) -> messages.SessionInfo:
        """Answers at once; the world is built behind it."""
        pool = self._pool
        if request.game and request.game != pool.name:
            raise SessionNotFound("another game is served here", field="game", expected=pool.name, got=request.game)
        if not request.HasField("tick_rate"):
            rate = pool.tick_rate
        else:
            rate = request.tick_rate
        session = pool.create(_seed(request), _options(request.options_json), rate)
        return messages.SessionInfo(session_id=session.id, handshake=pool.handshake, tools_json=self._tools_json)

    @_named
    async def DestroySession(self, request: messages.SessionRequest, context: Any) -> messages.DestroySessionResponse:
        """Never fails."""
        with contextlib.suppress(SessionEnded, SessionNotFound):
            await destroyed(self._pool.get(request.session_id))
        return messages.DestroySessionResponse()

    @_named
    async def ListSessions(self, request: Any, context: Any) -> messages.ListSessionsResponse:
        """All that are there."""
        states = await asyncio.gather(*map(state_of, self._pool.sessions()))
        return messages.ListSessionsResponse(sessions=[state._asdict() for state in states])

    @_named
    async def GetState(self, request: messages.SessionRequest, context: Any) -> messages.SessionState:
        """Of one session."""
        return messages.SessionState(**(await state_of(self._pool.get(request.session_id)))._asdict())

    @_named
    async def FastAdvance(self, request: messages.FastAdvanceRequest, context: Any) -> messages.Observation:
        """The reset, then the actions, then the ticks."""
        pool = self._pool
        session = pool.get(request.session_id)
        if len(request.actions) > MAX_TICKS:  # read one by one, while others wait
            raise ActionError(
                "too many actions", fault="caller", expected=f"at most {MAX_TICKS}", got=len(request.actions)
            )
        actions = [packing.read_action(action, pool.spec.act_size) for action in request.actions]
        if request.reset:
            ticks = min(request.ticks, MAX_TICKS)
        else:
            ticks = _clamped(request.ticks)
        submit = functools.partial(
            session.submit, ticks, actions, tuple(request.interrupts), request.reset, _seed(request), wait=0
        )
        return packing.observation(await queued(submit, pool.queue_wait))

    @_named
    async def StepAll(self, request: messages.StepAllRequest, context: Any) -> messages.StepAllResponse:
        """K sessions in one message."""
        pool = self._pool
        count = len(request.session_ids)
        if not count:
            raise ConfigurationError("no session is named", field="session_ids", expected="one at least")
        sessions = pool.get_all(request.session_ids)
        given = {each.row: each for each in request.resets}
        if len(given) < len(request.resets) or max(given, default=0) >= count:
            rows = [each.row for each in request.resets]
            raise ConfigurationError(
                "the rows of the resets are those of session_ids, each once",
                field="resets",
                expected=f"0 to {count - 1}",
                got=rows,
            )
        actions = None
        if request.actions:
            actions = packing.read_numbers(request.actions, pool.spec.act_size, count)
        submit = functools.partial(
            pool.submit_all,
            sessions,
            _clamped(request.ticks),
            actions,
            resets=list(given),
            seeds=[_seed(each) for each in given.values()],
            options=[_options(each.options_json) for each in given.values()],
            wait=0,
        )
        seen = await queued(submit, pool.queue_wait)
        return packing.rows(seen)

    @_named
    async def Play(self, requests: Any, context: Any) -> None:
        """Real time, both ways: actions in, the newest observation out, until either side ends."""
        pairs = context.invocation_metadata() or ()
        metadata = dict(pairs)
        name = metadata.get(SESSION_ID)
        sent = metadata.get(OBSERVATIONS)
        if name is None:
            raise ConfigurationError("the metadata must name the session", field=SESSION_ID)
        if sent not in (None, ASKED):
            expected = f"{ASKED!r}, or none: each is sent as it comes"
            raise ConfigurationError("no such way to send them", field=OBSERVATIONS, expected=expected, got=sent)
        session = self._pool.get(str(name))
        try:
            await play(session, requests, context, self._stalled_after, asked=sent == ASKED)
        except asyncio.TimeoutError:
            raise SessionEnded(f"it was ended: {session.reason}") from None

    @_named
    async def Keep(self, request: messages.KeepRequest, context: Any) -> None:
        """Sessions of a trainer that is there, until they end or it goes."""
        if not request.session_ids:
            raise ConfigurationError("no session is named", field="session_ids", expected="one or more", got=[])
        await keep(self._pool.get_all(request.session_ids), context)


def _clamped(ticks: int) -> int:
    return min(max(ticks, 1), MAX_TICKS)


def _seed(message: Any) -> int | None:
    if message.HasField("seed"):
        return int(message.seed)
    return None


def _options(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    options = packing.read_json(text)
    if options is None:
        raise ConfigurationError("the options are no JSON object", field="options_json", got=text)
    return options
