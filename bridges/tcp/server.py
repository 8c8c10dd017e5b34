"""BridgeServer: an asyncio server that hosts a bridge over TCP, one trainer at a time.

It ticks the bridge as soon as a request is there, and on while an action runs; or at a fixed rate. Both wirings are
served at once (bridges/tcp/session.py decides which came). A trainer that goes, or breaks the protocol, ends its
session and nothing else: the next one is served, also one that was already waiting.

    async with BridgeServer(bridge, port=0) as server:    inside an asyncio program; else see bridges/runners.py
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ue_rl.bridges.game import Mode
from ue_rl.bridges.host import Host
from ue_rl.bridges.hosting import Upgrader
from ue_rl.bridges.tcp.connection import Connection, gives_sockets_away
from ue_rl.bridges.tcp.pending import PendingConnections
from ue_rl.bridges.tcp.poller import SocketPoller
from ue_rl.bridges.tcp.session import EngineSession
from ue_rl.protocol.access.server_access import ServerAccess, listen
from ue_rl.protocol.spec import Channel, EnvSpec
from ue_rl.protocol.text.limits import require_lines
from ue_rl.system.errors import ConfigurationError

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge

_log = logging.getLogger("ue_rl.bridges.tcp.server")

_STOPPED = "the engine was stopped"
MAX_WAITING = 16  # trainers that wait for the one before them; more are refused
PATIENCE = 1.0  # seconds in which every env socket of a trainer should have been heard, once one was
SILENCE = 30.0  # seconds after which a first connection that has said nothing gives way to whoever waits
# Python's select() takes 512 sockets on Windows; some are the loop's own, and of those who wait.
_ENV_SOCKETS = 480
STARTING = 30  # so many times longer where those that wait may be its env sockets: see BridgeServer._make_wait


@dataclass(frozen=True)
class ServerWaits:
    """How long a BridgeServer bears with connections that say nothing.

    Args:
        patience: seconds in which every env socket of a trainer should have been heard, once one was.
        silence: seconds after which a first connection that has said nothing gives way to whoever waits.
        starting: so many times longer where those that wait may be its env sockets.
    """

    patience: float = PATIENCE
    silence: float = SILENCE
    starting: float = STARTING


_WAITS = ServerWaits()


def _require_sockets(spec: EnvSpec) -> None:
    """Says that envs cannot have a socket each on Windows; raises ConfigurationError: and they are to have one."""
    if spec.num_envs <= _ENV_SOCKETS or spec.channel is Channel.SHARED:
        return
    what = f"on Windows an engine in Python can give a socket of its own to {_ENV_SOCKETS} envs"
    if spec.channel is Channel.PER_ENV:
        raise ConfigurationError(
            what, field="CHANNEL", expected="CHANNEL=SHARED", got=f"PER_ENV and {spec.num_envs} envs"
        )
    _log.warning("%s, and it has %d: connect with channel=auto or shared", what, spec.num_envs)


class BridgeServer(Host):
    """Hosts `bridge` over TCP. On Windows an event loop that can give sockets away takes 512, with select().

    Args:
        bridge: any bridge with a spec; put into training mode. While it is in inference mode no trainer is served.
        host: the address to listen on, a name or IPv4 or IPv6; loopback unless told otherwise.
        port: 0 takes a free one, see `.port`.
        tick_rate: ticks per second, in real time, in inference mode too; None: as fast as requests come, and none in
            inference mode, where the game calls the bridge's `update_rl`.
        upgrader: offers every trainer another carrier (bridges/tcp/session.py); None: text only, as with TLS.
        access: asks for a token, and speaks TLS; None: neither.
        waits: how long it bears with who says nothing.

    Raises:
        ConfigurationError: an invalid tick rate or port. OSError from `start`: the address cannot be listened on.
    """

    def __init__(
        self,
        bridge: BaseBridge,
        host: str = "127.0.0.1",
        port: int = 7777,
        *,
        tick_rate: float | None = None,
        upgrader: Upgrader | None = None,
        access: ServerAccess | None = None,
        waits: ServerWaits = _WAITS,
    ) -> None:
        if not 0 <= port <= 65535:
            raise ConfigurationError("no such port", field="port", expected="0 to 65535", got=port)
        super().__init__(bridge, tick_rate, _log)
        self.host = host
        self._asked_port = port
        self._access = access
        self._waits = waits
        if access is not None and access.tls is not None:
            self._upgrader = None
        else:
            self._upgrader = upgrader
        self._server: asyncio.Server | None = None
        self._port: int | None = None
        self._session: EngineSession | None = None
        self._members: list[Connection] = []
        self._waiting = PendingConnections()
        self._tick_due = False
        self._clogged = self._given_up = False
        self._pacer: asyncio.Task[None] | None = None
        self._began = self._last_word = 0.0
        self._undecided = self._adopting = False
        self._later: asyncio.TimerHandle | None = None

    # -- life cycle

    @property
    def port(self) -> int:
        """The port listened on, or listened on last."""
        if self._port is None:
            raise ConfigurationError("this server does not listen yet", cure="call start() first")
        return self._port

    @property
    def url(self) -> str:
        """What a trainer connects to."""
        host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        scheme = "tcp"
        if self._access is not None and self._access.tls is not None:
            scheme = "tls"
        if ":" in host:
            return f"{scheme}://[{host}]:{self.port}"
        return f"{scheme}://{host}:{self.port}"

    async def start(self) -> None:
        """Listens."""
        self._loop = asyncio.get_running_loop()
        if self._upgrader is not None and not gives_sockets_away(self._loop):
            _log.warning(
                "no shared memory is offered: %s cannot give a socket away; run the server on a SelectorEventLoop, as "
                "serve() and run_in_thread() do",
                type(self._loop).__name__,
            )
            self._upgrader = None
        self._require_free()
        spec = self.bridge.announce()
        if sys.platform == "win32":
            _require_sockets(spec)
        if self._upgrader is None:
            require_lines(spec)
        self.bridge.host = self
        try:
            backlog = max(128, self.bridge.num_envs + 8)
            address = self.host, self._asked_port
            self._server, self._port = await listen(lambda: Connection(self), *address, backlog, self._access)
            self.bridge.start_training()
        except BaseException:
            await self.close()
            raise
        if self.tick_rate is not None:
            self._pacer = self._loop.create_task(self._tick_at_rate(self.tick_rate))
        _log.debug("listening on %s: %s", self.url, self.bridge.build_handshake())

    async def serve_forever(self) -> None:
        """Serves until cancelled, then stops listening."""
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
        if self._later is not None:
            self._later.cancel()
        if self._server is not None:
            self._server.close()
        if self._session is not None:
            self._session.tell_why(_STOPPED)
        self._waiting.close(_STOPPED, self._speaks)
        for connection in self._members:
            connection.drop()
        session = self._session
        self._members = []
        self._session = None
        if session is not None:
            session.close()
        if self.bridge.host is self:
            self.bridge.host = None

    async def __aenter__(self) -> BridgeServer:
        """Starts."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes."""
        await self.close()

    # -- connections

    def connection_made(self, connection: Connection) -> None:
        """A socket was accepted. Adopted one turn of the loop later, so that a pending disconnect is handled first."""
        self._waiting.add(connection)
        self._adopt_soon()

    def _adopt_soon(self, seconds: float = 0.0) -> None:
        """One call for all that has happened by then."""
        if seconds:
            if self._later is not None:
                self._later.cancel()
            self._later = self._loop.call_later(seconds, self._adopt_soon)
        elif not self._adopting:
            self._adopting = True
            self._loop.call_soon(self._adopt)

    @property
    def _speaks(self) -> bool:
        return "ERROR" in self.bridge.spec.features

    def _adopt(self) -> None:
        self._adopting = False
        while self._waiting:
            session = self._session
            gone = session is not None and self._members[0].closed_by_peer()
            if gone and session is not None and session.upgraded:
                return  # the upgrade says soon that it has ended: nobody has to be told that it is served
            if session is not None and not gone:
                if not session.full and self._take_env_sockets(session):
                    continue
                if not self._make_wait(session):
                    return
                continue
            if gone:  # so this is no env socket of its
                self._end_session("the trainer has gone", logging.INFO)
                continue
            if session is None and self.bridge.mode is Mode.INFERENCE:
                self._waiting.refuse(0, "the bridge is in inference mode", self._speaks)
                return
            connection = self._waiting.next()
            if connection is None:
                return
            self._begin_session()
            self._take(connection)

    def _take_env_sockets(self, session: EngineSession) -> bool:
        """Takes the env sockets of the trainer that is being served, once they are all there; whether it did."""
        host = self._members[0].host
        now = time.monotonic()
        patience = self._waits.patience
        patient = now - self._last_word < patience
        chosen = self._waiting.env_sockets(session.env_sockets, host, patient)
        for connection in chosen:
            if self._session is session:
                self._take(connection)
            else:  # what came on one before it has ended the session
                connection.drop()
        if not chosen and patient and self._waiting.anybody_spoke(host):
            self._adopt_soon(patience - (now - self._last_word) + 0.01)
        return bool(chosen)

    def _make_wait(self, session: EngineSession) -> bool:
        """Tells whoever waits so. Ends a session in which nothing was ever said, after a while; whether it did.

        The plugin's own trainer says nothing on its first connection, and nothing on its env sockets until all of its
        worker processes run, which may take minutes. It would train on zeros if it were sent away meanwhile. Where one
        that waited in silence for nearly as long has left, it was a trainer that had waited for its handshake.
        """
        now = time.monotonic()
        first = self._members[0]
        full = session.full
        if full:
            may_be_its_own = 0
        else:
            may_be_its_own = session.env_sockets
        speaks = session.speaks_notices
        if full:
            host = None
        else:
            host = first.host
        self._waiting.tell_busy(now - self._began, first.peer, speaks, host)
        self._waiting.refuse(MAX_WAITING + may_be_its_own, f"{MAX_WAITING} trainers wait already", speaks)
        if first.heard or len(self._members) > 1 or not self._waiting or self._waiting.anybody_spoke(first.host):
            return False
        starts = may_be_its_own and not self._given_up and self._waiting.anybody_from(first.host)
        patience = self._waits.silence
        if starts:
            patience *= self._waits.starting
        left = self._began + patience - now
        if left > 0:
            self._adopt_soon(left + 0.01)
            return False
        why = f"it has said nothing for {patience:g} s, and somebody else waits"
        self._end_session(f"the connection from {first.peer} was closed: {why}", logging.WARNING, told=why)
        return True

    def _begin_session(self) -> None:
        self._begin_training()
        self._session = session = EngineSession(self.bridge, self._upgrader, self.tick_rate, self._finished)

        def awaits() -> bool:
            return session is self._session and not self._clogged and not self._lockstep.busy

        self._attendance = SocketPoller(self._loop, self.data_received, self._due_tick, awaits)
        self._clogged = False
        self._undecided = True
        self._given_up = False
        self._began = self._last_word = time.monotonic()

    def _take(self, connection: Connection) -> None:
        session = self._session
        assert session is not None
        self._members.append(connection)  # before it is greeted: it may not read even that
        connection.place = session.add(connection)
        if connection.place == 0:
            _log.info("session %d: a trainer connected from %s", self.sessions, connection.peer)
        self._attendance.add(connection)
        self.data_received(connection, connection.early)
        connection.early = b""
        if self._session is not None and self._lockstep.busy:
            self._request_tick()

    def data_received(self, connection: Connection, data: bytes | memoryview) -> None:
        """Bytes of a member, or of one that still waits."""
        session = self._session
        if connection.place < 0 or session is None:
            connection.early += data
            if session is not None and not session.full:
                self._last_word = time.monotonic()
                self._adopt_soon()
            return
        try:
            self._feed(session, connection.place, data)
        except Exception as error:  # noqa: BLE001 - without the lock: an upgrade's thread may need it to end
            self._fail(error)

    def _feed(self, session: EngineSession, place: int, data: bytes | memoryview) -> None:
        with self.bridge.lock:  # the game may switch the mode in another thread
            self._require_training()
            session.feed(place, data)
            if self._undecided and session.full:
                self._undecided = False
                if self._waiting:  # they are told that they have to wait
                    self._adopt_soon()
            if self.tick_rate is None and self._lockstep.busy:
                self._attendance.asked()
                if session.shared:
                    self._tick()
                else:
                    self._request_tick()  # once all sockets that are readable now have been read

    def connection_lost(self, connection: Connection) -> None:
        """A socket was closed by the other side."""
        connection.gone = True
        if connection in self._members:
            self._end_session("the trainer has gone", logging.INFO)
        else:
            self._waiting.remove(connection)
            self._given_up |= not connection.heard and time.monotonic() - connection.since > 0.8 * self._waits.silence

    def clogging_changed(self) -> None:
        """A trainer that does not read its answers is not read either, so that nothing grows without end."""
        self._clogged = any(member.clogged for member in self._members)
        for member in self._members:
            member.pause_reading(self._clogged)

    def _end_session(self, why: str, level: int, error: Exception | None = None, told: str | None = None) -> None:
        """See Host."""
        self._note_end(why, level, error)
        session = self._session
        self._session = None
        members = self._members
        self._members = []
        if session is not None:
            if not session.full:
                self._waiting.drop_env_sockets(members[0].host)
            if told is None:
                reason = why
            else:
                reason = told
            session.tell_why(reason)
            session.close()
        for member in members:
            member.place = -1
            member.drop()
        self._forget_requests()
        self._adopt_soon()

    # -- ticks

    def _request_tick(self) -> None:
        if not self._tick_due and self.tick_rate is None:
            self._tick_due = True
            self._loop.call_soon(self._due_tick)

    def _finished(self, session: EngineSession) -> None:
        """An upgrade says that its trainer has gone; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._finish, session)

    def _finish(self, session: EngineSession) -> None:
        if self._session is session:
            self._end_session("the trainer has gone", logging.INFO)

    def _due_tick(self) -> None:
        if self._tick_due:
            self._tick_due = False
            self._tick()

    def _tick(self) -> None:
        session = self._session
        lockstep = self._lockstep
        if session is None or session.upgraded:  # the upgrade ticks the bridge
            return
        try:
            self._turn(self.bridge.update_rl, session.answer)
        except Exception as error:  # noqa: BLE001 - logged, a bug with its traceback: it must not stop the server
            self._fail(error)
            return
        if session.finished and not lockstep.busy:
            self._end_session("training is complete", logging.INFO)
        elif self.tick_rate is None:
            if lockstep.busy:
                self._request_tick()
            else:
                self._attendance.answered()

    async def _tick_at_rate(self, rate: float) -> None:
        due = time.perf_counter()
        while True:
            due = max(due + 1 / rate, time.perf_counter() - 1 / rate)
            await asyncio.sleep(due - time.perf_counter())
            if self._session is not None:
                self._tick()
            elif self.bridge.mode is Mode.INFERENCE:
                self._infer()
