"""SessionClient: one session over gRPC, for asyncio: advanced when told, or played in real time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from grpc import RpcError, aio
from grpc._cython import cygrpc
from numpy.typing import ArrayLike, NDArray

from ue_rl.connections.base.address import Scheme, host_and_port, read_address
from ue_rl.plugins.sessions import sessions_pb2 as messages
from ue_rl.plugins.sessions.grpc.client.access import Access
from ue_rl.plugins.sessions.grpc.client.errors import named
from ue_rl.plugins.sessions.limits import ASKED, FLOAT, OBSERVATIONS, SESSION_ID
from ue_rl.plugins.sessions.sessions_pb2_grpc import SessionsStub
from ue_rl.protocol.access.client_access import GUARDED
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text import decode_handshake
from ue_rl.system.errors import ConnectionUnusable

_Name = str | PathLike[str]
_DEADLINE = 120.0  # seconds of one FastAdvance
_SCHEMES = {
    name: Scheme(f"{name}://HOST:PORT", f"{name}://127.0.0.1:9999", host_and_port, GUARDED)
    for name in ("grpc", "grpcs")
}


def numbers(observation: messages.Observation) -> NDArray[np.float32]:
    """What is seen, float32 [obs_size]; read-only."""
    return np.frombuffer(observation.observation, FLOAT).astype(np.float32, copy=False)


def an_action(action: ArrayLike | None = None, tool: str = "", arguments: Mapping[str, Any] | None = None) -> Any:
    """An action as a message: numbers, float32 [act_size], or a tool with its arguments."""
    if tool:
        given = arguments or {}
        return messages.Action(tool=tool, arguments_json=json.dumps(dict(given)))
    return messages.Action(action=np.asarray(action, FLOAT).tobytes())


async def _written(stream: Any, message: messages.Action) -> None:
    """`stream.write`, which may come as the server ends the stream.

    The one of grpc.aio (1.72 to 1.85) would then note a status of its own, "Internal error from Core", and the reason
    that the server gives, which is under way, would be lost.
    """
    await stream._metadata_sent.wait()
    if stream.done():
        raise asyncio.InvalidStateError("the stream has ended")
    await stream._cython_call.send_serialized_message(message.SerializeToString())


class SessionClient:
    """A session of its own: created by `async with`, given back at its end.

        async with SessionClient("127.0.0.1:9999", tick_rate=25) as client:
            async for seen in client.play():            # the newest observation, however long this took
                await client.act(policy(numbers(seen)))

    Args:
        target: HOST:PORT, or an address as the server prints it, grpc://HOST:PORT or grpcs://HOST:PORT (TLS). Behind a
            "?" may stand token-file, ca, cert and key, as in ue_rl.connect.
        game, seed, options, tick_rate: see CreateSession in sessions.proto.
        timeout: seconds that any answer may take.
        token_file: a secret of both sides (docs/security.md). ca, cert, key: PEM files: whom to trust instead of the
            system's list, and what this side shows; each means TLS. What the address says itself goes before these.

    Raises:
        ConfigurationError: no such address, or a file that cannot be used.

    Attributes:
        session_id, handshake: of the session. spec: of one env. tools: name, description and input_schema of each.

    Raises (each call):
        EngineUnreachable, EngineTimeout; SessionNotFound, SessionEnded, ResourceExhausted, GameFailed;
        ConfigurationError: what the server says is wrong with a request.
    """

    session_id: str
    handshake: str
    spec: EnvSpec
    tools: list[dict[str, Any]]

    def __init__(
        self,
        target: str,
        *,
        game: str | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        tick_rate: float | None = None,
        timeout: float = _DEADLINE,
        token_file: _Name | None = None,
        ca: _Name | None = None,
        cert: _Name | None = None,
        key: _Name | None = None,
    ) -> None:
        address = read_address(target, _SCHEMES)
        given = {"token_file": token_file, "ca": ca, "cert": cert, "key": key}
        self.target = address.place
        self.timeout = timeout
        self._access = Access.of(address.scheme == "grpcs", **{**given, **address.options})
        game_name = game or ""
        options_json = ""
        if options is not None:
            options_json = json.dumps(dict(options))
        self._request = messages.CreateSessionRequest(
            game=game_name,
            seed=seed,
            options_json=options_json,
            tick_rate=tick_rate,
        )
        self._channel: aio.Channel | None = None
        self._stream: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._newest: messages.Observation | None = None
        self._asked = False  # and not answered yet
        self._came = asyncio.Condition()
        self._over: BaseException | None = None

    async def __aenter__(self) -> SessionClient:
        """Connects and creates the session."""
        channel: aio.Channel = self._access.channel(aio, self.target)
        self._channel = channel
        self._stub: Any = SessionsStub(channel)
        try:
            info = await self._ask(self._called(self._stub.CreateSession, self._request))
        except BaseException:
            await channel.close()
            raise
        self.session_id = info.session_id
        self.handshake = info.handshake
        self.spec, self.tools = decode_handshake(info.handshake.encode("ascii")), json.loads(info.tools_json)
        self._named = messages.SessionRequest(session_id=self.session_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends the stream and the session; never raises."""
        assert self._channel is not None
        if self._reader is not None:
            self._stream.cancel()
            await asyncio.gather(self._reader, self._stream.code(), return_exceptions=True)
        with contextlib.suppress(RpcError):
            await self._stub.DestroySession(self._named, timeout=2.0, metadata=self._access.metadata)
        await self._channel.close()

    # -- when told

    async def advance(
        self,
        ticks: int = 1,
        actions: Sequence[Any] = (),
        *,
        interrupts: Sequence[str] = (),
        reset: bool = False,
        seed: int | None = None,
    ) -> messages.Observation:
        """FastAdvance: the reset, the actions, the ticks. `actions`: rows of numbers, or of `an_action`."""
        told = [each if isinstance(each, messages.Action) else an_action(each) for each in actions]
        request = messages.FastAdvanceRequest(
            session_id=self.session_id, ticks=ticks, actions=told, interrupts=interrupts, reset=reset, seed=seed
        )
        seen: messages.Observation = await self._ask(self._called(self._stub.FastAdvance, request))
        return seen

    async def reset(self, seed: int | None = None) -> messages.Observation:
        """A new episode; what is seen at its begin."""
        return await self.advance(0, reset=True, seed=seed)

    async def call_tool(self, tool: str, **arguments: Any) -> messages.Observation:
        """A tool of the game, and a tick; its result stands in info_json under "tools"."""
        return await self.advance(1, [an_action(tool=tool, arguments=arguments)])

    async def state(self) -> messages.SessionState:
        """Phase, tick, result and the game's text."""
        state: messages.SessionState = await self._ask(self._called(self._stub.GetState, self._named))
        return state

    # -- real time

    async def act(self, action: ArrayLike | None = None, tool: str = "", **arguments: Any) -> None:
        """Sends an action, or a call of a tool, into the stream; the game takes it in its next tick."""
        await self._write(an_action(action, tool, arguments))

    async def _write(self, message: messages.Action) -> None:
        try:
            await _written(self._open_stream(), message)
        except (RpcError, asyncio.InvalidStateError, cygrpc.InternalError) as error:
            async with self._came:
                await self._came.wait_for(lambda: self._over is not None)
            raise self._ended() from error

    async def observe(self) -> messages.Observation:
        """The newest observation that was not given out yet; waits for one.

        It is asked for here and now, so that none waits on the way while the caller computes, with or without giving
        way to the event loop. Those that nobody has seen are counted in `dropped_observations`; their rewards and ticks
        are in this one. A call that is cancelled has asked already: the next one gives what that brings.
        """
        self._open_stream()
        while True:
            if self._newest is None and self._over is None and not self._asked:
                await self._ask_for_one()
            async with self._came:
                await self._came.wait_for(lambda: not self._asked or self._newest is not None or self._over is not None)
                seen = self._newest
                self._newest = None
            if seen is not None:
                return seen
            if self._over is not None:
                raise self._ended()

    async def _ask_for_one(self) -> None:
        self._asked = True
        asking = asyncio.ensure_future(self._write(messages.Action(ask=True)))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # heard of, if by nobody else
        await asyncio.shield(asking)  # a caller that is cancelled has asked all the same

    async def play(self) -> AsyncIterator[messages.Observation]:
        """Observations, each the newest at its time, to the end of the episode; that one is the last."""
        while True:
            seen = await self.observe()
            yield seen
            if seen.terminated or seen.truncated:
                return

    def _open_stream(self) -> Any:
        if self._stream is None:
            more = self._access.metadata or ()
            told = ((SESSION_ID, self.session_id), (OBSERVATIONS, ASKED), *more)
            self._stream = self._stub.Play(metadata=told)
            self._reader = asyncio.create_task(self._read())
        return self._stream

    async def _read(self) -> None:
        over: BaseException = ConnectionUnusable("the server has ended the stream", fault="engine")
        try:
            async for seen in self._stream:
                async with self._came:
                    self._newest = seen
                    self._asked = False
                    self._came.notify_all()
        except RpcError as error:
            over = named(error, self.target)
        except asyncio.CancelledError:  # by `__aexit__`
            pass
        async with self._came:
            self._over = over
            self._came.notify_all()

    def _ended(self) -> BaseException:
        assert self._over is not None
        return self._over

    def _called(self, method: Any, request: Any) -> Any:
        return method(request, timeout=self.timeout, metadata=self._access.metadata)

    async def _ask(self, call: Any) -> Any:
        try:
            return await call
        except RpcError as error:
            raise named(error, self.target) from error
