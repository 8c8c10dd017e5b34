"""BridgeServer: an asyncio server that hosts a bridge over TCP, one trainer at a time.

It ticks the bridge as soon as a request is there, and on while an action runs; or at a fixed rate. Both wirings are
served at once (bridges/session.py decides which came). A trainer that goes, or breaks the protocol, ends its session
and nothing else: the next one is served, also one that was already waiting.

    serve(bridge, port=7777)                       until Ctrl-C
    async with BridgeServer(bridge, port=0) as s:  inside an asyncio program
    with run_in_thread(bridge) as handle:          tests, notebooks
    with run_in_process(make_bridge) as handle:    a process of its own, as a real engine is
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ue_rl.bridges.base import BaseBridge, Mode
from ue_rl.bridges.session import EngineSession
from ue_rl.errors import ConfigurationError, UeRlError

_log = logging.getLogger("ue_rl.bridges.server")

# After an answer the loop looks for the next request for about as long as the trainer usually thinks, and never longer
# than this many seconds, before it sleeps: waking a sleeping process costs more than a whole small step.
LONGEST_LINGER = 800e-6
DESCHEDULED = 100e-6
_yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: None)  # the trainer may wait for this core


class BridgeServer:
    """Hosts `bridge` over TCP.

    Args:
        bridge: any bridge with a spec; put into training mode. While it is in inference mode no trainer is served.
        host: the address to listen on, a name or IPv4 or IPv6; loopback unless told otherwise.
        port: 0 takes a free one, see `.port`.
        tick_rate: ticks per second, in real time; None: as fast as requests come.

    Raises:
        ConfigurationError: a tick rate that is not positive. OSError from `start`: the address cannot be listened on.
    """

    def __init__(
        self, bridge: BaseBridge, host: str = "127.0.0.1", port: int = 7777, *, tick_rate: float | None = None
    ) -> None:
        if tick_rate is not None and not tick_rate > 0:
            raise ConfigurationError("a tick rate must be positive", fault="caller", field="tick_rate", got=tick_rate)
        self.bridge, self.host, self.tick_rate = bridge, host, tick_rate
        self._asked_port = port
        self._server: asyncio.Server | None = None
        self._session: EngineSession | None = None
        self._members: list[_Connection] = []
        self._waiting: deque[_Connection] = deque()
        self._tick_due = False
        self._last_tick = time.perf_counter()
        self._linger_until = 0.0
        self._answered_at = 0.0
        self._usual_think = 0.0
        self._no_linger_before = 0.0
        self._pacer: asyncio.Task[None] | None = None
        self._switches = 0
        self.sessions = 0

    # -- life cycle

    @property
    def port(self) -> int:
        """The port listened on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """What a trainer connects to."""
        host = self.host if self.host not in ("0.0.0.0", "::", "") else "127.0.0.1"
        return f"tcp://[{host}]:{self.port}" if ":" in host else f"tcp://{host}:{self.port}"

    async def start(self) -> None:
        """Listens."""
        self._loop = asyncio.get_running_loop()
        self._server = await self._loop.create_server(
            lambda: _Connection(self), self.host, self._asked_port, backlog=max(128, self.bridge.num_envs + 8)
        )
        self.bridge.start_training()
        if self.tick_rate is not None:
            self._pacer = self._loop.create_task(self._tick_at_rate(self.tick_rate))
        _log.debug("listening on %s: %s", self.url, self.bridge.build_handshake())

    async def serve_forever(self) -> None:
        """Serves until cancelled."""
        assert self._server is not None
        async with self._server:
            await self._server.serve_forever()

    async def close(self) -> None:
        """Stops listening and closes every connection; idempotent."""
        if self._pacer is not None:
            self._pacer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pacer
            self._pacer = None
        if self._server is not None:
            self._server.close()
        for connection in [*self._members, *self._waiting]:
            connection.drop()
        self._members, self._session = [], None
        self._waiting.clear()

    async def __aenter__(self) -> BridgeServer:
        """Starts."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes."""
        await self.close()

    # -- connections

    def connection_made(self, connection: _Connection) -> None:
        """A socket was accepted. Adopted a moment later, so that the end of an old session is seen first."""
        self._waiting.append(connection)
        self._loop.call_soon(self._adopt)

    def _adopt(self) -> None:
        while self._waiting:
            if self._session is None:
                if self.bridge.mode is Mode.INFERENCE:
                    self._refuse_all()
                    return
                self.bridge.start_training()
                self._switches = self.bridge.switches
                self._session = EngineSession(self.bridge)
                self._members = []
                self.sessions += 1
            elif self._session.full:
                return  # they wait until this trainer has gone
            connection = self._waiting.popleft()
            if connection.gone:
                continue
            connection.place = self._session.add(connection)
            if connection.place == 0:
                _log.info("session %d: a trainer connected from %s", self.sessions, connection.peer)
            self._members.append(connection)
            self.data_received(connection, connection.early)
            connection.early = b""
            if self._session is not None and self.bridge.busy:
                self._request_tick()

    def _refuse_all(self) -> None:
        """The game acts by its own policy: a trainer gets a closed connection at once, not silence."""
        while self._waiting:
            connection = self._waiting.popleft()
            _log.warning("a trainer from %s was refused: the bridge is in inference mode", connection.peer)
            connection.gone = True
            connection.drop()

    def _left_training(self) -> bool:
        """Ends the session where the bridge has been switched since it began: its requests are void."""
        if self._session is None or self.bridge.switches == self._switches:
            return False
        self._end_session("the game left training mode", logging.WARNING)
        return True

    def data_received(self, connection: _Connection, data: bytes) -> None:
        """Bytes of a member, or of one that still waits."""
        session = self._session
        if connection.place < 0 or session is None:
            connection.early += data
            return
        with self.bridge.lock:  # the game may switch the mode in another thread
            if self._left_training():
                return
            try:
                session.feed(connection.place, data)
            except UeRlError as error:
                self._end_session(f"the trainer broke the protocol: {error}", logging.ERROR)
                return
            if self.tick_rate is None and self.bridge.busy:
                think = min(time.perf_counter() - self._answered_at, 0.1)
                self._usual_think += (think - self._usual_think) / 8
                if session.shared:
                    self._tick()
                else:
                    self._request_tick()  # once all sockets that are readable now have been read

    def connection_lost(self, connection: _Connection) -> None:
        """A socket was closed by the other side."""
        connection.gone = True
        if connection in self._members:
            self._end_session("the trainer has gone", logging.INFO)
        elif connection in self._waiting:
            self._waiting.remove(connection)

    def _end_session(self, why: str, level: int) -> None:
        _log.log(level, "session %d ended: %s", self.sessions, why)
        members, self._members, self._session = self._members, [], None
        for member in members:
            member.place = -1
            member.gone = True
            member.drop()
        with self.bridge.lock:
            if self.bridge.switches == self._switches:  # else they are forgotten, and something else runs now
                self.bridge.forget_requests()
        self._loop.call_soon(self._adopt)

    # -- ticks

    def _request_tick(self) -> None:
        if not self._tick_due and self.tick_rate is None:
            self._tick_due = True
            self._loop.call_soon(self._due_tick)

    def _due_tick(self) -> None:
        self._tick_due = False
        if self._session is not None:
            self._tick()

    def _tick(self) -> None:
        now = time.perf_counter()
        delta, self._last_tick = now - self._last_tick, now
        session, bridge = self._session, self.bridge
        try:
            with bridge.lock:
                bridge.update_rl(delta)
                if self._left_training():
                    return
                if session is not None:
                    session.answer()
        except UeRlError as error:
            self._end_session(f"the game cannot go on: {error}", logging.ERROR)
            return
        if session is None:
            return
        if session.finished and not bridge.busy:
            self._end_session("training is complete", logging.INFO)
        elif self.tick_rate is None:
            if bridge.busy:
                self._request_tick()
            else:
                self._answered_at = time.perf_counter()
                if self._usual_think < LONGEST_LINGER and self._answered_at > self._no_linger_before:
                    lingers = self._linger_until > 0.0
                    self._linger_until = self._answered_at + min(2 * self._usual_think + 50e-6, LONGEST_LINGER)
                    if not lingers:
                        self._loop.call_soon(self._linger)

    def _linger(self) -> None:
        """Keeps the loop looking instead of sleeping for a moment after an answer."""
        begun = time.perf_counter()
        if begun < self._linger_until:
            _yield_core()
            now = time.perf_counter()
            if now - begun > DESCHEDULED:  # somebody else needs this core: leave it to them for a while
                self._no_linger_before = now + 0.05
                self._linger_until = 0.0
                return
            self._loop.call_soon(self._linger)
        else:
            self._linger_until = 0.0

    async def _tick_at_rate(self, rate: float) -> None:
        due = time.perf_counter()
        while True:
            due = max(due + 1 / rate, time.perf_counter() - 1 / rate)
            await asyncio.sleep(due - time.perf_counter())
            if self._session is not None or self.bridge.mode is Mode.INFERENCE:
                self._tick()


class _Connection(asyncio.Protocol):
    """One accepted socket."""

    def __init__(self, server: BridgeServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self.place = -1
        self.peer = "?"
        self.early = b""
        self.gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self.place < 0 and len(self.early) > 1 << 20:
            self.drop()
            return
        self._server.data_received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connection_lost(self)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.close()


def serve(bridge: BaseBridge, host: str = "127.0.0.1", port: int = 7777, **options: Any) -> None:
    """Hosts `bridge` until Ctrl-C; options as BridgeServer."""

    async def run() -> None:
        async with BridgeServer(bridge, host, port, **options) as server:
            await server.serve_forever()

    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(run())
