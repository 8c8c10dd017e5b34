"""ShmHost: hosts a bridge over shared memory, one trainer at a time (docs/shared-memory.md).

    with ShmHost(bridge) as host:               makes the segment; the name is host.name, the URL host.url
        host.run(stop)                          serves trainers that attach by name, until `stop` is set
        host.run(stop, sock)                    serves the trainer on this socket, until it goes
        host.tick(delta)                        or from the engine's own loop: one tick, without waiting
        host.send(Method.DEBUG_DRAW, payload)   an event for the trainer, from any thread (docs/commands.md)

The bridge's inbox.actions and its outbox's arrays are laid over the segment while it serves: a vectorised bridge reads
and writes the memory that the trainer sees, without a copy. They go back to arrays of its own at `close()`. A trainer
that dies, or breaks the protocol, ends its session and nothing else.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ue_rl.bridges.game import Mode
from ue_rl.bridges.host import Host
from ue_rl.bridges.shm.commands import answer_commands, can_encode, default_dispatcher, take_infos
from ue_rl.bridges.shm.segment import Trainer, make_segment
from ue_rl.bridges.shm.steps import ShmSteps
from ue_rl.protocol.commands.dispatcher import Dispatcher
from ue_rl.protocol.commands.entries import TextReader
from ue_rl.protocol.commands.envelope import encode, mismatch, write_within
from ue_rl.protocol.memory.bell import Bell, set_slice
from ue_rl.protocol.memory.header import CLOSED, HEARTBEAT, RING_SIZE, SERVER_STATE, SERVING
from ue_rl.protocol.text.calls import CALL_LIMIT
from ue_rl.protocol.text.connection_state import ConnectionEvent, ConnectionPhase, ConnectionState, Role
from ue_rl.system.closing import Closing
from ue_rl.system.errors import ConfigurationError, UeRlError
from ue_rl.system.spin import ENGINE_SLICE_MS

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge

_log = logging.getLogger("ue_rl.bridges.shm")

_RING_SECONDS = 5.0
# Enum members are slow to look up, and these are needed in every step.
_ASK = ConnectionEvent.ASK
_ANSWERED = ConnectionEvent.ANSWERED
_ASKED = ConnectionPhase.ASKED
_SERVING_STATES = (ConnectionPhase.READY, ConnectionPhase.ASKED)


class ShmHost(Host, Closing):
    """A segment with a bridge behind it.

    Args:
        bridge: any bridge with a spec; put into training mode. With `spec.image` it draws into `outbox.image`.
        name: of the segment, or the path of a file; None: a fresh unique one.
        ring_size: bytes of each command ring.
        dispatcher: the handlers of commands; None: those of bridges/shm/commands.py.
        tick_rate: ticks per second, in real time, in inference mode too; None: as fast as requests come, and none in
            inference mode, where the game calls the bridge's `update_rl`.
        spin_us: microseconds to spin before blocking while waiting for a request; None: see ue_rl/system/spin.py.
        gpu: the header's gpu_available (0, 1), gpu_obs_mode (0 CPU, 1 CUDA IPC, 2 Vulkan), gpu_obs_handle (64 bytes at
            most) and gpu_device_id, for a trainer that uses them.
        guest: a server hosts the bridge already, and this is one trainer's carrier.

    Attributes:
        memory: the StepMemory. dispatcher: for handlers of your own.

    Raises:
        ConfigurationError: the name is taken, there is not enough memory, the bridge is hosted already, or a field of
            `gpu` is invalid.
    """

    def __init__(
        self,
        bridge: BaseBridge,
        *,
        name: str | None = None,
        ring_size: int = RING_SIZE,
        dispatcher: Dispatcher | None = None,
        tick_rate: float | None = None,
        spin_us: float | None = None,
        gpu: dict[str, Any] | None = None,
        guest: bool = False,
    ) -> None:
        super().__init__(bridge, tick_rate, _log, guest)
        self._spec = spec = bridge.announce()
        self._spin_us = spin_us
        self._segment, self.memory = make_segment(spec, name=name, ring_size=ring_size, gpu=gpu)
        self._session = ConnectionState(Role.ENGINE)  # the present trainer's, a new one for each
        self._texts = TextReader("trainer", CALL_LIMIT)  # likewise
        self._trainer = Trainer(self.memory)
        self._out = threading.Lock()  # guards s2c and the bell: send() may be called from any thread
        self._infos: list[bytes] = []  # of the answer that is published next
        self._next_check = 0.0
        self._closed = False
        self._bell: Bell = None  # type: ignore[assignment]  # None while nobody is served
        try:
            self._steps = ShmSteps(bridge, self.memory)
            if dispatcher is None:
                self.dispatcher = default_dispatcher(bridge)
            else:
                self.dispatcher = dispatcher
            if not guest:  # a guest's trainer brings a socket
                self._use(None)
                bridge.start_training()
                self._steps.bind()
                bridge.host = self
            self.memory.store_u32(SERVER_STATE, SERVING)
        except BaseException:
            self._segment.close()
            raise

    # -- who can reach it

    @property
    def name(self) -> str:
        """Of the segment."""
        return self._segment.name

    @property
    def url(self) -> str:
        """What a trainer on this machine connects to."""
        return f"shm://{self.name}"

    # -- serving

    def run(self, stop: threading.Event | None = None, sock: socket.socket | None = None) -> None:
        """Serves, blocking.

        Args:
            stop: set it, from another thread, to end. None: until Ctrl-C.
            sock: the socket of the trainer that took the offer; then this returns when that trainer has
                gone. It is closed. None: trainers that attach by name, one after the other.
        """
        try:
            if sock is not None:
                set_slice(sock, ENGINE_SLICE_MS)
                self._use(sock)
                self._greet()
            while not self._closed and (stop is None or not stop.is_set()) and (sock is None or self._serving):
                self._serve(stop)
        finally:
            if sock is not None:
                if not self._closed:
                    self._end_session("the engine stops", logging.DEBUG)
                self._bell.release()  # before close(): the descriptor's number may be reused
                self._bell = None  # type: ignore[assignment]
                sock.close()

    def tick(self, delta: float) -> bool:
        """For an engine with a loop of its own: takes what is asked, ticks, answers; was something answered?"""
        try:
            self._poll()
            if self._session.state is _ASKED:
                return self._answer(self._steps.advance, delta)
            if self._take(self._bell.peek()):
                return self._answer(self._steps.answer, delta)
            self.bridge.update_rl(delta)
        except Exception as error:  # noqa: BLE001 - logged, with its traceback where it is a bug
            self._fail(error)
        return False

    def send(self, method: int, payload: Any = None, timeout: float = _RING_SECONDS) -> bool:
        """Sends the trainer a message unasked: telemetry, debug drawing, an image. From any thread, also in a tick.

        Args:
            method: a Method or a number of your own from 1000 on. payload: of ue_rl.protocol.commands.messages().
            timeout: seconds to wait for room. A trainer reads while it waits for an answer, and when it polls; a game
                that must not wait for it gives 0 and drops what does not fit.

        Returns:
            False: nobody is attached, or left meanwhile, or flatbuffers is not installed; nothing was sent.

        Raises:
            ConfigurationError: the payload is invalid, is not the one of `method`, or is too long for the ring.
            RingFull: no room within `timeout`.
        """
        session = self._session
        ring = self.memory.s2c
        if ring is None or not can_encode():  # None: closed
            return False
        problem = mismatch(method, payload)
        if problem is not None:
            raise ConfigurationError("an event with a wrong payload", field="payload", got=problem)
        data = encode(method, payload)
        sent = False

        def try_write(data: bytes) -> bool:
            nonlocal sent
            with self._out:
                if session is not self._session or not self._serving or not self._trainer.reads():
                    return True
                sent = ring.try_write(data)
                self._bell.nudge()
            return sent

        write_within(try_write, data, timeout, ring.name)
        return sent

    def close(self) -> None:
        """Tells the trainer, gives the bridge arrays of its own and deletes the segment; idempotent."""
        if self._closed:
            return
        with self._out:
            self._closed = True
            self._session.on(ConnectionEvent.CLOSE)
        self._forget_sender()
        self._trainer.tell_end("the engine stops")
        self.memory.store_u32(SERVER_STATE, CLOSED)
        if self._bell is not None:
            self._bell.nudge()
            self._bell.release()
        self._steps.unbind()
        if self.bridge.host is self:
            self.bridge.host = None
            with self.bridge.lock:
                self._lockstep.forget_requests()
        self.memory.release()
        self._segment.close()

    # -- one request

    def _serve(self, stop: threading.Event | None) -> None:
        """Waits for one slice at most, and answers what came. Whatever fails ends the session and nothing else."""
        steps = self._steps
        ring = self.memory.c2s
        try:
            if self.tick_rate is not None and self.bridge.mode is Mode.INFERENCE:
                self._poll()
                if self._is_due(stop, ENGINE_SLICE_MS / 1000) and self.bridge.host is self:  # a guest's host ticks
                    self._infer()
                return
            if ring is None:
                write_pos = 0
            else:
                write_pos = ring.write_pos
            seq = self._bell.wait(steps.seen, write_pos, ENGINE_SLICE_MS)
            if seq == steps.seen:
                self._poll()
            elif self._take(seq):
                tick = steps.answer
                while (self.tick_rate is not None and not self._is_due(stop)) or not self._answer(tick):
                    self._poll()
                    if not self._serving or (stop is not None and stop.is_set()):
                        return
                    tick = steps.advance
        except Exception as error:  # noqa: BLE001 - logged, with its traceback where it is a bug
            self._fail(error)

    def _is_due(self, stop: threading.Event | None, most: float = float("inf")) -> bool:
        """Is the next tick due at the tick rate? Waits for it, `most` seconds at most, or until this is to stop."""
        assert self.tick_rate is not None
        left = self._last_tick + 1 / self.tick_rate - time.perf_counter()
        if left > 0:
            (stop or threading.Event()).wait(min(left, most))
        return left <= most

    def _take(self, seq: int) -> bool:
        """Has an attached trainer made a request? Answers the commands that came before it."""
        steps = self._steps
        if seq == steps.seen:
            return False
        steps.count(seq)
        if self._session.state not in _SERVING_STATES:
            self._greet()
            if not self._serving:  # request from an evicted trainer: ignore
                return False
        self._session.on(_ASK)
        if self.memory.c2s is not None and self.memory.c2s.has_news():
            self._answer_commands()
        return True

    def _answer(self, tick: Callable[[float], bool], delta: float | None = None) -> bool:
        """One tick of the bridge; True when all that was asked has been answered, or the session has ended."""
        done = self._turn(tick, self._publish, delta)
        while done and self._infos:
            infos = self._infos
            self._infos = []
            for data in infos:  # without the lock: a trainer that does not read must not hold up the game
                self._write(data, self._between_infos)
            done = self._turn(lambda delta: self._serving, self._publish, 0.0)
        return done

    def _publish(self) -> None:
        """All is answered: rings, unless infos go first."""
        if self.bridge.outbox.infos or self._steps.first_infos:
            self._infos = take_infos(self.memory, self.bridge, self._steps.first_infos, self._steps.was_asked)
            if self._infos:
                return
        self._session.on(_ANSWERED)
        self._bell.publish()

    def _fail(self, error: Exception) -> None:
        """See Host."""
        if self._closed:
            return  # in another thread, or in a callback, meanwhile
        if isinstance(error, ConnectionResetError) and not isinstance(error, UeRlError):
            self._end_session("the trainer has gone", logging.INFO)
        else:
            super()._fail(error)

    # -- sessions

    @property
    def _serving(self) -> bool:
        """Is a trainer attached?"""
        return self._session.state in _SERVING_STATES

    def _greet(self) -> None:
        """Begins a session if a trainer has attached."""
        client = self._trainer.pid
        bridge = self.bridge
        if not client:
            return
        with bridge.lock:
            fits = bridge.mode is not Mode.INFERENCE and bridge.announce() == self._spec
            if fits:
                self._steps.bind()
                self._begin_training()
                bridge.lockstep.forget_requests()
        if not fits:
            why = f"the bridge {'is in inference mode' if bridge.mode is Mode.INFERENCE else 'was given other sizes'}"
            _log.warning("process %d was refused: %s", client, why)
            self._end_session(why, logging.DEBUG)
            return
        self._session = ConnectionState(Role.ENGINE)
        self._texts = TextReader("trainer", CALL_LIMIT)
        self._session.on(ConnectionEvent.CONNECT)
        self._session.on(ConnectionEvent.CONFIG)
        bridge.lockstep.sender = self.send
        self._trainer.begin(client)
        _log.info("session %d: process %d attached to %s", self.sessions, client, self.name)

    def _poll(self) -> None:
        """Between requests: commands, a sign of life, and whether the trainer is still there."""
        memory = self.memory
        memory.words.increment_u64(memory.buffer, HEARTBEAT)
        if memory.c2s is not None and memory.c2s.has_news():
            self._answer_commands()
        if self._serving:
            self._require_training()
        now = time.perf_counter()
        if now < self._next_check:
            return
        self._next_check = now + ENGINE_SLICE_MS / 1000
        holder = self._trainer.pid
        if self._trainer.leaving:
            self._end_session("the trainer has gone", logging.INFO)
        elif holder and self._trainer.has_died(holder):
            self._end_session(f"the trainer (process {holder}) has died", logging.WARNING)
        elif holder and not self._serving:
            self._greet()

    def _end_session(self, why: str, level: int, error: Exception | None = None, told: str | None = None) -> None:
        """Open requests are void. The slot is freed last, after rings and counters are reset."""
        memory = self.memory
        if self._serving:
            self._note_end(why, level, error)
        reason = told
        if not reason:
            reason = why
        self._trainer.tell_end(reason)
        with self._out:
            self._session.on(ConnectionEvent.CLOSE)
        self._forget_sender()
        self._forget_requests()
        self._steps.forget()
        if memory.c2s is not None and memory.s2c is not None:
            with self._out:
                memory.s2c.repair()
            memory.c2s.repair()
            memory.c2s.skip_all()
        self._trainer.free()
        self._bell.nudge()

    def _answer_commands(self) -> None:
        if not self._serving:
            self._greet()
        asked = self._session.state is _ASKED or self._bell.peek() != self._steps.seen
        answer_commands(self.memory, self.dispatcher, self.bridge, self._write, self._texts, asked)

    def _write(self, data: bytes, meanwhile: Callable[[], None] | None = None) -> None:
        """To the trainer; calls `meanwhile` (None: only checks that it lives) again and again until there is room."""
        ring = self.memory.s2c
        assert ring is not None

        def try_write(data: bytes) -> bool:
            with self._out:
                written = ring.try_write(data)
                self._bell.nudge()
            return written

        while_waiting = meanwhile
        if not while_waiting:
            while_waiting = self._trainer.require_reader
        write_within(try_write, data, _RING_SECONDS, ring.name, while_waiting)

    def _between_infos(self) -> None:
        """No command is being answered here, so what the trainer writes while it does not read is taken too."""
        self._trainer.require_reader()
        if self.memory.c2s is not None and self.memory.c2s.has_news():
            self._answer_commands()

    def _forget_sender(self) -> None:
        if self._lockstep.sender == self.send:
            self._lockstep.sender = None

    def _use(self, sock: socket.socket | None) -> None:
        with self._out:
            if self._bell is not None:
                self._bell.release()
            self._bell = self.memory.bell(engine=True, sock=sock, spin_us=self._spin_us)
