"""One engine's connection to a PolicyServer: its lines, its deadlines, its end."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.inference.server.protocol import read_hello, write_refusal
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.codec import Codec
from ue_rl.protocol.text.handshake import MAX_HANDSHAKE
from ue_rl.protocol.text.lines import LineBuffer
from ue_rl.system.errors import EngineTimeout, HandshakeError, RepeatedEnv, UeRlError
from ue_rl.system.forks import leave_to_parent
from ue_rl.system.keepalive import notice_dead_peer, reset_at_close

if TYPE_CHECKING:
    from ue_rl.inference.server.server import PolicyServer

_log = logging.getLogger("ue_rl.inference.server.server")
PARTING = 1.0  # seconds that a closed connection has for its last bytes


class ActionRequest(NamedTuple):
    """One line of one engine, whose `obs` and `resets` hold what came.

    Attributes:
        envs: the envs that ask, in the order of the line. arrived: time.perf_counter().
    """

    engine: ServedEngine
    envs: NDArray[np.intp]
    arrived: float


class ServedEngine(asyncio.Protocol):
    """One engine's connection: at most one line in work."""

    def __init__(self, server: PolicyServer) -> None:
        self._server = server
        self._transport: asyncio.Transport  # from connection_made on
        self._lines = LineBuffer(MAX_HANDSHAKE)
        self._arrived = 0.0
        self._open = self._unread = self._paused = self._ended = False
        self._deadline: asyncio.TimerHandle | None = None
        self.spec: EnvSpec | None = None  # None until it has said hello; so are the four below
        self.codec: Codec
        self.obs: NDArray[np.float32]  # [num_envs, obs_size]
        self.resets: NDArray[np.uint8]  # [num_envs]
        self.actions: NDArray[np.float32]  # [num_envs, act_size]
        self.masks: NDArray[np.uint8] | None = None  # [num_envs, mask_size]; None where this engine sends none
        self.peer = "?"

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol; it is refused where there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if peer:
            self.peer = f"{peer[0]}:{peer[1]}"
        else:
            self.peer = "?"
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            notice_dead_peer(sock)
            leave_to_parent(sock)
        server = self._server
        server.connections.add(self)
        if server.closing:  # it came in while the server was closing
            transport.abort()
        elif len(server.engines) >= server.max_engines:
            most = f"at most {server.max_engines}"
            cure = "raise --max-engines"
            self.drop(HandshakeError("too many engines", fault="caller", expected=most, cure=cure))
        else:
            server.engines.add(self)
            self._deadline = server.loop.call_later(server.hello_timeout, self._too_late, "no hello came")

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._forget()
        self._server.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self not in self._server.engines:
            return  # dropped: read only so that its last line is not lost to a reset
        self._arrived = time.perf_counter()
        self._lines.feed(data)
        self._advance()

    def eof_received(self) -> bool:
        """It sends no more, but may still read: True keeps the connection until what it asked is answered."""
        self._ended = True
        if self in self._server.engines and not (self._open or self._unread):
            self.hang_up()
        return self in self._server.engines

    def pause_writing(self) -> None:
        """It does not read its answers: it has write_timeout seconds."""
        if self not in self._server.engines:
            return  # its end has a deadline already
        self._unread = True
        timeout = self._server.write_timeout
        self._deadline = self._server.loop.call_later(timeout, self._too_late, "the engine does not read its answers")

    def resume_writing(self) -> None:
        """It reads again."""
        if self not in self._server.engines:
            return
        self._unread = False
        self._met_deadline()
        self._advance()

    # -- for the server

    @property
    def unsent(self) -> int:
        """Bytes of answers that the system has not taken yet."""
        return self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Sends answers, unless it has gone."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def asked(self, envs: NDArray[np.intp]) -> NDArray[np.float32]:
        """The observations of `envs`, [len(envs), obs_size]."""
        if len(self.obs) == 1:
            return self.obs
        return self.obs[envs]

    def encode(self, envs: NDArray[np.intp], actions: NDArray[np.float32]) -> bytes:
        """The line that answers `envs` with actions [len(envs), act_size]."""
        if len(self.actions) == 1:
            return self.codec.encode_actions(actions)
        self.actions[envs] = actions
        return self.codec.encode_actions(self.actions, envs.astype(np.int32))

    def answered(self) -> None:
        """The line in work has its answer: the next one may come."""
        self._open = False
        self._advance()

    def drop(self, error: UeRlError) -> None:
        """Closes this connection with a last line that gives the reason.

        A socket closed over unread bytes is reset, and a reset may overtake that line. So only this side is closed at
        first, and what still comes is thrown away until the engine closes too, for a second at most.
        """
        _log.error("engine %s dropped: %s", self.peer, error)
        self._server.dropped += 1
        self._forget()
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(write_refusal(error))
        if self._ended or not transport.can_write_eof():
            self.hang_up()
            return
        transport.write_eof()
        self._deadline = self._server.loop.call_later(PARTING, self.abort)
        if self._paused:
            transport.resume_reading()

    def hang_up(self) -> None:
        """Closes this connection; what is written has a second to be read."""
        self._forget()
        self._transport.close()
        self._deadline = self._server.loop.call_later(PARTING, self.abort)

    def abort(self) -> None:
        """Ends this connection at once."""
        self._forget()
        sock = self._transport.get_extra_info("socket")
        if self.unsent and sock is not None and sock.fileno() >= 0:
            # Nobody reads: a reset. An ordinary close would leave the system trying to deliver for minutes.
            reset_at_close(sock)
        self._transport.abort()

    # -- lines

    def _advance(self) -> None:
        try:
            while self in self._server.engines and not self._open and not self._unread:
                line = self._lines.next_line()
                if line is None:
                    break
                if self.spec is None:
                    self._greet(line)
                else:
                    envs = self.codec.decode_observations(line, self.obs, self.resets, masks=self.masks)
                    self._open = True
                    self._server.submit(ActionRequest(self, envs, self._arrived))
        except RepeatedEnv as error:
            self.drop(RepeatedEnv("an env stands twice in one line", env_id=error.env_id, got=error.got))
            return
        except UeRlError as error:
            self.drop(error)
            return
        if self._ended and not (self._open or self._unread):
            self.hang_up()
        # What is sent ahead stays in the socket: the storage here is bounded.
        full = (self._open or self._unread) and len(self._lines) >= self._lines.max_line
        if full != self._paused and not self._transport.is_closing():
            self._paused = full
            if full:
                switch = self._transport.pause_reading
            else:
                switch = self._transport.resume_reading
            switch()

    def _greet(self, line: bytes) -> None:
        server = self._server
        self.spec = spec = read_hello(line, server.policy.current, server.max_batch)
        self._met_deadline()
        self.codec = Codec(spec)
        self._lines.max_line = self.codec.max_line
        self.obs = np.zeros((spec.num_envs, spec.obs_size), np.float32)
        self.resets = np.zeros(spec.num_envs, np.uint8)
        self.actions = np.zeros((spec.num_envs, spec.act_size), np.float32)
        if spec.mask_size:
            self.masks = np.ones((spec.num_envs, spec.mask_size), np.uint8)
        else:
            self.masks = None
        server.greeted += 1
        _log.info("engine %s: %d envs", self.peer, self.spec.num_envs)

    def _too_late(self, why: str) -> None:
        self.drop(EngineTimeout(why))

    def _met_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _forget(self) -> None:
        self._met_deadline()
        if self in self._server.engines:
            self._server.engines.remove(self)
            if self.spec is not None:
                self._server.greeted -= 1
                model = self._server.policy.current
                if model.is_recurrent:
                    model.reset([(self, env) for env in range(self.spec.num_envs)])
