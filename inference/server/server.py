"""PolicyServer: answers observations of engines that cannot run ONNX themselves. Protocol: docs/policy-server.md.

One asyncio loop; the observations of all engines that have arrived by the next loop turn are answered by one batched
call of the model. Each engine has at most one line in work; what it sends ahead waits in its socket. A newer model file
is loaded in another thread and used from the next batch on. An engine that breaks the protocol, that an answer
cannot be found for, or that does not read, loses its own connection and nothing else. One that only closes its
sending side still gets the answers to what it has asked.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
import sys
import time
from collections import deque
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.errors import ConfigurationError, EngineTimeout, HandshakeError, InferenceError, RepeatedEnv, UeRlError
from ue_rl.inference.runtime.onnx import OnnxInference
from ue_rl.inference.runtime.reload import ReloadingInference
from ue_rl.inference.server.protocol import read_hello, write_refusal
from ue_rl.inference.server.turnstile import FEW, Turnstile
from ue_rl.keepalive import keep_alive
from ue_rl.listening import listen
from ue_rl.spec import EnvSpec
from ue_rl.wire.codec import Codec
from ue_rl.wire.handshake import MAX_HANDSHAKE
from ue_rl.wire.lines import LineBuffer

_log = logging.getLogger("ue_rl.inference.server.server")
_PARTING = 1.0  # seconds that a closed connection has for its last bytes
_SAY_AGAIN = 60.0  # seconds after which a lasting lack of descriptors is said again
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RESET = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


class Ask(NamedTuple):
    """One line of one engine, whose `obs` and `resets` hold what came.

    Attributes:
        envs: the envs that ask, in the order of the line. arrived: time.perf_counter().
    """

    engine: _Engine
    envs: NDArray[np.intp]
    arrived: float


class PolicyServer:
    """Serves one model to many engines.

    Args:
        policy: the model; its file is followed, whether or not the policy does so by itself.
        host, port: where to listen; port 0 takes a free one.
        max_batch: rows per call of the model at most, and envs per engine.
        max_wait: seconds that an observation may wait for those of other engines; 0 answers at once. The loop's clock
            ticks in milliseconds, and nobody waits when all engines have asked.
        max_engines: connections at once.
        hello_timeout: seconds until the first line must have come.
        write_timeout: seconds that an engine may leave its answers unread, once they fill the way to it.
        reload_interval: seconds between two checks of the model's file.

    Attributes:
        engines: connected now. requests: observations answered so far, in `batches` calls. dropped: connections closed
            by this side for a reason. latencies: seconds from an observation's arrival to its answer, the last 10 000.

    Raises:
        ConfigurationError: an invalid limit.
    """

    def __init__(
        self,
        policy: ReloadingInference,
        host: str = "127.0.0.1",
        port: int = 7778,
        *,
        max_batch: int = 4096,
        max_wait: float = 0.0,
        max_engines: int = 1024,
        hello_timeout: float = 10.0,
        write_timeout: float = 10.0,
        reload_interval: float = 1.0,
    ) -> None:
        for name, value, low in (
            ("max_batch", max_batch, 1), ("max_wait", max_wait, 0), ("max_engines", max_engines, 1),
            ("hello_timeout", hello_timeout, 1e-3), ("write_timeout", write_timeout, 1e-3),
            ("reload_interval", reload_interval, 1e-3),
        ):  # fmt: skip
            if not value >= low:
                raise ConfigurationError("too small", fault="caller", field=name, expected=f">= {low}", got=value)
        self.policy, self.host = policy, host
        self.max_batch, self.max_wait, self.max_engines = max_batch, max_wait, max_engines
        self.hello_timeout, self.write_timeout, self.reload_interval = hello_timeout, write_timeout, reload_interval
        self._asked_port = port
        self._server: asyncio.Server | None = None
        self._model = policy.current
        self._waiting: list[Ask] = []
        self._waiting_rows = 0
        self._due: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._follower: asyncio.Task[None] | None = None
        self.closing = False
        self.engines: set[_Engine] = set()
        self.connections: set[_Engine] = set()  # the engines, and those whose connection is not closed to the end
        self.greeted = 0
        self.requests = self.batches = self.dropped = 0
        self.latencies: deque[float] = deque(maxlen=10_000)

    # -- life cycle

    @property
    def port(self) -> int:
        """The port listened on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listens; raises OSError where it cannot."""
        self.loop = asyncio.get_running_loop()
        self.closing = False
        self.turnstile = Turnstile(self.loop)
        self._said_full = -_SAY_AGAIN
        self._server, _ = await listen(lambda: _Engine(self), self.host, self._asked_port, backlog=512)
        self._handler_before = self.loop.get_exception_handler()
        self.loop.set_exception_handler(self._on_error)
        self._follower = self.loop.create_task(self._follow())

    async def close(self) -> None:
        """Stops listening and closes every connection; idempotent.

        Open requests get no answer. Answers already written have a second to be read.
        """
        self.closing = True
        if self._server is not None:
            self._server.close()
        for handle in (self._due, self._timer):
            if handle is not None:
                handle.cancel()
        self._due = self._timer = None
        self._waiting, self._waiting_rows = [], 0
        for engine in list(self.engines):
            engine.hang_up()
        if self._server is not None:
            self.turnstile.close()
            if self.loop.get_exception_handler() == self._on_error:
                self.loop.set_exception_handler(self._handler_before)
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
            self._follower = None
        end = time.monotonic() + _PARTING
        await asyncio.sleep(0)  # connections with nothing left to send end here
        while any(engine.unsent for engine in self.connections) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        for engine in list(self.connections):
            engine.abort()

    async def __aenter__(self) -> PolicyServer:
        """Starts."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes."""
        await self.close()

    def percentiles(self) -> tuple[float, float] | None:
        """(p50, p99) of the recent latencies in seconds, None before the first answer."""
        if not self.latencies:
            return None
        p50, p99 = np.percentile(np.array(self.latencies), [50, 99])
        return float(p50), float(p99)

    @property
    def num_envs(self) -> int:
        """Envs of all engines that have said hello."""
        return sum(engine.spec.num_envs for engine in self.engines if engine.spec is not None)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self.reload_interval)
            try:
                await self.loop.run_in_executor(None, self.policy.poll)
            except Exception:  # noqa: BLE001 (the model in use stays; the next check may succeed)
                _log.exception("checking for a newer model failed")

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Says in one line that nobody can be accepted. The loop waits a second before it tries again, which it reports
        with a traceback each time."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _EXHAUSTED and "accept" in context["message"]):
            (self._handler_before or type(loop).default_exception_handler)(loop, context)
        elif loop.time() >= self._said_full + _SAY_AGAIN:
            self._said_full = loop.time()
            _log.error(
                "no engine can connect at present: %s, with %d connected. These are served, others wait until some "
                "have gone. Raise the limit of open files (ulimit -n), or lower --max-engines",
                error.strerror, len(self.engines),
            )  # fmt: skip

    # -- batches

    def submit(self, ask: Ask) -> None:
        """Queues one line; all that are there at the loop's next turn are answered together."""
        self._waiting.append(ask)
        self._waiting_rows += len(ask.envs)
        if self._due is not None:
            return
        if (
            self.max_wait <= 0
            or self._waiting_rows >= self.max_batch
            or len(self._waiting) >= self.greeted  # everybody who could ask has asked
        ):
            self._due = self.loop.call_soon(self._answer)
        elif self._timer is None:
            self._timer = self.loop.call_later(self.max_wait, self._answer)

    def _answer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = self._timer = None
        count = len(self._waiting)
        if self._waiting_rows > self.max_batch:
            ends = accumulate(len(ask.envs) for ask in self._waiting)
            count = max(1, sum(end <= self.max_batch for end in ends))
            self._due = self.loop.call_soon(self._answer)
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        self._waiting_rows = sum([len(ask.envs) for ask in self._waiting])
        batch = [ask for ask in batch if ask.engine in self.engines]
        if batch:
            self._serve(batch)

    def _serve(self, batch: list[Ask]) -> None:
        """Answers the batch; where the model fails for it, line by line, and bad ones are dropped."""
        model = self.policy.current
        if model is not self._model:
            self._model = model
            for engine in self.engines:
                engine.states.clear()
        try:
            lines = self._think(batch)
        except Exception as error:  # noqa: BLE001 (of any kind: an engine must not wait forever for its answer)
            if len(batch) > 1:  # one engine's observation may be all that the model cannot take
                for ask in batch:
                    self._serve([ask])
            elif isinstance(error, UeRlError):
                if error.env_id is not None:  # the model knows rows, the engine its envs
                    error.env_id = int(batch[0].envs[error.env_id])
                batch[0].engine.drop(error)
            else:
                _log.exception("the model failed")
                batch[0].engine.drop(InferenceError("the model failed", fault="model", got=error))
            return
        for ask, line in zip(batch, lines, strict=True):
            ask.engine.write(line)
        now = time.perf_counter()
        self.batches += 1
        for ask in batch:
            self.requests += len(ask.envs)
            self.latencies.extend([now - ask.arrived] * len(ask.envs))
            ask.engine.answered()

    def _think(self, batch: list[Ask]) -> list[bytes]:
        """The line that answers each ask. States change only when all went well."""
        model = self._model
        observations = np.concatenate([ask.engine.asked(ask.envs) for ask in batch])
        if not model.is_recurrent:
            masks = self._masks(batch, model)
            if masks is None:
                return self._lines(batch, model.run_inference(observations))
            return self._lines(batch, model.run_inference(observations, action_masks=masks))
        zero = model.initial_state(1)
        agents = [(ask.engine, env) for ask in batch for env in ask.envs.tolist()]
        begins = [env not in engine.states or bool(engine.resets[env]) for engine, env in agents]
        states = [zero if begin else engine.states[env] for (engine, env), begin in zip(agents, begins, strict=True)]
        joined = {name: np.concatenate([state[name] for state in states]) for name in zero}
        actions, after = model.run(observations, state=joined, episode_start=np.array(begins))
        lines = self._lines(batch, actions)
        for index, (engine, env) in enumerate(agents):  # copies: a view would keep the whole batch alive
            engine.states[env] = {name: array[index : index + 1].copy() for name, array in after.items()}
        return lines

    @staticmethod
    def _masks(batch: list[Ask], model: OnnxInference) -> NDArray[np.uint8] | None:
        """The action masks of all rows, ones where an engine sends none; None where nobody does."""
        if not model.takes_masks or all(ask.engine.masks is None for ask in batch):
            return None
        size = next(ask.engine.masks.shape[1] for ask in batch if ask.engine.masks is not None)
        return np.concatenate(
            [
                np.ones((len(ask.envs), size), np.uint8) if ask.engine.masks is None else ask.engine.masks[ask.envs]
                for ask in batch
            ]
        )

    @staticmethod
    def _lines(batch: list[Ask], actions: NDArray[np.float32]) -> list[bytes]:
        at, lines = 0, []
        for ask in batch:
            lines.append(ask.engine.encode(ask.envs, actions[at : at + len(ask.envs)]))
            at += len(ask.envs)
        return lines


class _Engine(asyncio.Protocol):
    """One engine's connection: at most one line in work."""

    def __init__(self, server: PolicyServer) -> None:
        self._server = server
        self._transport: asyncio.Transport  # from connection_made on
        self._lines = LineBuffer(MAX_HANDSHAKE)
        self._arrived = 0.0
        self._open = self._unread = self._paused = self._ended = self._held = False
        self._deadline: asyncio.TimerHandle | None = None
        self.spec: EnvSpec | None = None  # None until it has said hello; so are the four below
        self.codec: Codec
        self.obs: NDArray[np.float32]  # [num_envs, obs_size]
        self.resets: NDArray[np.uint8]  # [num_envs]
        self.actions: NDArray[np.float32]  # [num_envs, act_size]
        self.masks: NDArray[np.uint8] | None = None  # [num_envs, mask_size]; None where this engine sends none
        self.states: dict[int, Any] = {}
        self.peer = "?"
        self._fd = -1

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(sock)
            self._fd = sock.fileno()
        server = self._server
        server.connections.add(self)
        if server.closing:  # it came in while the server was closing
            transport.abort()
        elif len(server.engines) >= server.max_engines:
            most, cure = f"at most {server.max_engines}", "raise --max-engines"
            self.drop(HandshakeError("too many engines", fault="caller", expected=most, cure=cure))
        else:
            server.engines.add(self)
            self._deadline = server.loop.call_later(server.hello_timeout, self._too_late, "no hello came")
            self._hold_back()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._server.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if self not in self._server.engines:
            return  # dropped: read only so that its last line is not lost to a reset
        self._arrived = time.perf_counter()
        self._lines.feed(data)
        self._advance()
        if self.spec is None and self in self._server.engines:
            self._hold_back()

    def _hold_back(self) -> None:
        """Where many have not said hello, this one is read when its turn comes."""
        server = self._server
        if len(server.engines) - server.greeted > FEW and not self._held and not self._transport.is_closing():
            self._held = True
            self._transport.pause_reading()
            server.turnstile.wait(self._fd, self)

    def let_in(self) -> None:
        """See Waiter."""
        if self._held and not self._transport.is_closing():
            self._held = False
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """It sends no more, but may still read: True keeps the connection until what it asked is answered."""
        self._ended = True
        if self in self._server.engines and not (self._open or self._unread):
            self.hang_up()
        return self in self._server.engines

    def pause_writing(self) -> None:
        if self not in self._server.engines:
            return  # its end has a deadline already
        self._unread = True
        timeout = self._server.write_timeout
        self._deadline = self._server.loop.call_later(timeout, self._too_late, "the engine does not read its answers")

    def resume_writing(self) -> None:
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
        if not self._transport.is_closing():
            self._transport.write(data)

    def asked(self, envs: NDArray[np.intp]) -> NDArray[np.float32]:
        """The observations of `envs`, [len(envs), obs_size]."""
        return self.obs if len(self.obs) == 1 else self.obs[envs]

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
        held = self._held
        self._forget()
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(write_refusal(error))
        if self._ended or not transport.can_write_eof():
            self.hang_up()
            return
        transport.write_eof()
        self._deadline = self._server.loop.call_later(_PARTING, self.abort)
        if self._paused or held:
            transport.resume_reading()

    def hang_up(self) -> None:
        """Closes this connection; what is written has a second to be read."""
        self._forget()
        self._transport.close()
        self._deadline = self._server.loop.call_later(_PARTING, self.abort)

    def abort(self) -> None:
        """Ends this connection at once."""
        self._forget()
        sock = self._transport.get_extra_info("socket")
        if self.unsent and sock is not None and sock.fileno() >= 0:
            # Nobody reads: a reset. An ordinary close would leave the system trying to deliver for minutes.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
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
                    envs = self._decode(line)
                    self._open = True
                    self._server.submit(Ask(self, envs, self._arrived))
        except RepeatedEnv as error:
            self.drop(
                RepeatedEnv("an env stands twice in one line", fault="engine", env_id=error.env_id, got=error.got)
            )
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
            (self._transport.pause_reading if full else self._transport.resume_reading)()

    def _decode(self, line: bytes) -> NDArray[np.intp]:
        if self.masks is None:
            return self.codec.decode_observations(line, self.obs, self.resets)
        return self.codec.decode_observations(line, self.obs, self.resets, masks=self.masks)

    def _greet(self, line: bytes) -> None:
        server = self._server
        self.spec = spec = read_hello(line, server.policy.current, server.max_batch)
        self._met_deadline()
        self.codec = Codec(spec)
        self._lines.max_line = self.codec.max_line
        self.obs = np.zeros((spec.num_envs, spec.obs_size), np.float32)
        self.resets = np.zeros(spec.num_envs, np.uint8)
        self.actions = np.zeros((spec.num_envs, spec.act_size), np.float32)
        self.masks = np.ones((spec.num_envs, spec.mask_size), np.uint8) if spec.mask_size else None
        server.greeted += 1
        _log.info("engine %s: %d envs", self.peer, self.spec.num_envs)

    def _too_late(self, why: str) -> None:
        self.drop(EngineTimeout(why, fault="engine"))

    def _met_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _forget(self) -> None:
        self._met_deadline()
        if self._held:
            self._held = False
            self._server.turnstile.leave(self._fd)
        if self in self._server.engines:
            self._server.engines.remove(self)
            self._server.greeted -= self.spec is not None
