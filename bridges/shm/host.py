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

import functools
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ue_rl.bridges.game import Mode
from ue_rl.bridges.shm.commands import answer_commands, default_dispatcher, take_infos
from ue_rl.bridges.shm.segment import make_segment
from ue_rl.bridges.shm.steps import ShmSteps
from ue_rl.bridges.turns import LEFT, Turns, who_failed
from ue_rl.commands.dispatcher import Dispatcher
from ue_rl.commands.envelope import encode, messages, mismatch, write_within
from ue_rl.commands.text_entry import TextReader
from ue_rl.errors import ConfigurationError, UeRlError
from ue_rl.session import Event, Role, Session, State
from ue_rl.shm.bell import Bell, set_slice
from ue_rl.shm.header import (
    CLIENT_PID,
    CLIENT_SINCE,
    CLIENT_STATE,
    CLOSED,
    HEARTBEAT,
    LEAVING,
    RING_SIZE,
    SERVER_STATE,
    SERVING,
)
from ue_rl.system import processes
from ue_rl.system.spin import ENGINE_SLICE_MS
from ue_rl.wire.calls import CALL_LIMIT

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge

_log = logging.getLogger("ue_rl.bridges.shm")

_RING_SECONDS = 5.0
# Enum members are slow to look up, and these are needed in every step.
_ASK, _ANSWERED, _ASKED, _SERVING_STATES = Event.ASK, Event.ANSWERED, State.ASKED, (State.READY, State.ASKED)


@functools.cache
def _can_encode() -> bool:
    """Is flatbuffers installed? Where it is not, a game goes on without events, as it does over TCP; warns once."""
    try:
        messages()
    except ConfigurationError as error:
        _log.warning("events of the game are not sent: %s", error)
        return False
    return True


class ShmHost:
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
        memory: the StepMemory. dispatcher: for handlers of your own. sessions: trainers so far.

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
        self._turns = Turns(bridge, tick_rate, guest)
        self._spec = spec = bridge.announce()
        self.bridge, self.tick_rate, self._spin_us = bridge, tick_rate, spin_us
        self._segment, self.memory = make_segment(spec, name=name, ring_size=ring_size, gpu=gpu)
        self.sessions = 0
        self._session = Session(Role.ENGINE)  # the present trainer's, a new one for each
        self._texts = TextReader("trainer", CALL_LIMIT)  # likewise
        self._client = 0  # its process id
        self._out = threading.Lock()  # guards s2c and the bell: send() may be called from any thread
        self._next_reader_check = 0.0
        self._client_start: int | None = None
        self._infos: list[bytes] = []  # of the answer that is published next
        self._next_check = 0.0
        self._closed = False
        self._bell: Bell = None  # type: ignore[assignment]  # None while nobody is served
        try:
            self._steps = ShmSteps(bridge, self.memory)
            self.dispatcher = default_dispatcher(bridge) if dispatcher is None else dispatcher
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
                self._turn(stop)
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
            self._failed(error)
        return False

    def send(self, method: int, payload: Any = None, timeout: float = _RING_SECONDS) -> bool:
        """Sends the trainer a message unasked: telemetry, debug drawing, an image. From any thread, also in a tick.

        Args:
            method: a Method or a number of your own from 1000 on. payload: of ue_rl.commands.messages().
            timeout: seconds to wait for room. A trainer reads while it waits for an answer, and when it polls; a game
                that must not wait for it gives 0 and drops what does not fit.

        Returns:
            False: nobody is attached, or left meanwhile, or flatbuffers is not installed; nothing was sent.

        Raises:
            ConfigurationError: the payload is invalid, is not the one of `method`, or is too long for the ring.
            RingFull: no room within `timeout`.
        """
        session, ring = self._session, self.memory.s2c
        if ring is None:  # closed
            return False
        if not _can_encode():
            return False
        problem = mismatch(method, payload)
        if problem is not None:
            raise ConfigurationError("an event with a wrong payload", fault="caller", field="payload", got=problem)
        data, sent = encode(method, payload), False

        def try_write(data: bytes) -> bool:
            nonlocal sent
            with self._out:
                if session is not self._session or not self._serving or not self._trainer_reads():
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
            self._session.on(Event.CLOSE)
        self._forget_sender()
        self._tell_end("the engine stops")
        self.memory.store_u32(SERVER_STATE, CLOSED)
        if self._bell is not None:
            self._bell.nudge()
        self._steps.unbind()
        if self.bridge.host is self:
            self.bridge.host = None
            with self.bridge.lock:
                self.bridge.lockstep.forget_requests()
        if self._bell is not None:
            self._bell.release()
        self.memory.release()
        self._segment.close()

    def __enter__(self) -> ShmHost:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()

    # -- one request

    def _turn(self, stop: threading.Event | None) -> None:
        """Waits for one slice at most, and answers what came. Whatever fails ends the session and nothing else."""
        steps, ring = self._steps, self.memory.c2s
        try:
            if self.tick_rate is not None and self.bridge.mode is Mode.INFERENCE:
                self._infer(self.tick_rate, stop)
                return
            seq = self._bell.wait(steps.seen, 0 if ring is None else ring.write_pos, ENGINE_SLICE_MS)
            if seq == steps.seen:
                self._poll()
            elif self._take(seq) and not self._answer(steps.answer, self._since(stop)):
                while self._serving and not self._answer(steps.advance, self._since(stop)):
                    self._poll()
                    if stop is not None and stop.is_set():
                        return
        except Exception as error:  # noqa: BLE001 - logged, with its traceback where it is a bug
            self._failed(error)

    def _infer(self, rate: float, stop: threading.Event | None) -> None:
        """One tick, or a slice of the wait for it: trainers are told meanwhile that none is served."""
        self._poll()
        due = self._turns.last + 1 / rate - time.perf_counter()
        if due > 0:
            (stop or threading.Event()).wait(min(due, ENGINE_SLICE_MS / 1000))
        elif self.bridge.host is self:  # a guest's host ticks
            try:
                self.bridge.update_rl(self._since(stop))
            except Exception as error:  # noqa: BLE001 - logged: no session is there that it could end
                _log.error("inference: %s", who_failed(error), exc_info=not isinstance(error, UeRlError))

    def _since(self, stop: threading.Event | None) -> float:
        """Seconds since the last tick; at a tick rate not before it is due, or this is to stop."""
        if self.tick_rate is not None:
            (stop or threading.Event()).wait(max(0.0, self._turns.last + 1 / self.tick_rate - time.perf_counter()))
        return self._turns.delta()

    def _take(self, seq: int) -> bool:
        """Has an attached trainer made a request? Answers the commands that came before it."""
        steps = self._steps
        if seq == steps.seen:
            return False
        steps.count(seq)
        if not self._serving:
            self._greet()
            if not self._serving:  # request from an evicted trainer: ignore
                return False
        self._session.on(_ASK)
        if self.memory.c2s is not None and self.memory.c2s.has_news():
            self._answer_commands()
        return True

    def _answer(self, tick: Callable[[float], bool], delta: float) -> bool:
        """One tick of the bridge; True when all that was asked has been answered, or the session has ended."""
        done = self._turns.turn(tick, delta, self._publish)
        if done and self._infos:
            for data in self._infos:  # without the lock: a trainer that does not read must not hold up the game
                self._write(data, self._between_infos)
            done = self._turns.turn(lambda delta: self._serving, 0.0, self._ring)
        if done is None:
            self._left_training()
        return done is not False

    def _publish(self) -> None:
        """All is answered: rings, unless infos go first."""
        self._infos = take_infos(self.memory, self.bridge) if self.bridge.outbox.infos else []
        if not self._infos:
            self._ring()

    def _ring(self) -> None:
        self._session.on(_ANSWERED)
        self._bell.publish()

    def _failed(self, error: Exception) -> None:
        if self._closed:
            return  # in another thread, or in a callback, meanwhile
        if isinstance(error, ConnectionResetError) and not isinstance(error, UeRlError):
            self._end_session("the trainer has gone", logging.INFO)
        else:
            self._end_session(who_failed(error), logging.ERROR, None if isinstance(error, UeRlError) else error)

    # -- sessions

    @property
    def _serving(self) -> bool:
        """Is a trainer attached?"""
        return self._session.state in _SERVING_STATES

    def _greet(self) -> None:
        """Begins a session if a trainer has attached."""
        client, bridge = self.memory.load_u32(CLIENT_PID), self.bridge
        if not client:
            return
        with bridge.lock:
            spec = bridge.announce()
            fits = bridge.mode is not Mode.INFERENCE and spec == self._spec
            if fits:
                self._spec = spec
                self._steps.bind()
                bridge.start_training()
                self._turns.begin()
                bridge.lockstep.forget_requests()
        if not fits:
            why = f"the bridge {'is in inference mode' if bridge.mode is Mode.INFERENCE else 'was given other sizes'}"
            _log.warning("process %d was refused: %s", client, why)
            self._end_session(why, logging.DEBUG)
            return
        self.sessions += 1
        self._client = client
        self._session, self._texts = Session(Role.ENGINE), TextReader("trainer", CALL_LIMIT)
        self._session.on(Event.CONNECT)
        self._session.on(Event.CONFIG)
        bridge.lockstep.sender = self.send
        # a trainer with a socket may be in another container, with other process ids
        self._client_start = processes.start_time(client) if processes.alive(client) else None
        _log.info("session %d: process %d attached to %s", self.sessions, self._client, self.name)

    def _left_training(self) -> None:
        """Ends the session: the bridge is not what it was when it began."""
        self._end_session(LEFT, logging.WARNING)

    def _poll(self) -> None:
        """Between requests: commands, a sign of life, and whether the trainer is still there."""
        memory = self.memory
        memory.words.increment_u64(memory.buffer, HEARTBEAT)
        if memory.c2s is not None and memory.c2s.has_news():
            self._answer_commands()
        if self._serving and self._turns.void:
            self._left_training()
            return
        now = time.perf_counter()
        if now < self._next_check:
            return
        self._next_check = now + ENGINE_SLICE_MS / 1000
        holder = memory.load_u32(CLIENT_PID)
        if memory.load_u32(CLIENT_STATE) == LEAVING:
            self._end_session("the trainer has gone", logging.INFO)
        elif holder and self._has_died(holder):
            self._end_session(f"the trainer (process {holder}) has died", logging.WARNING)
        elif holder and not self._serving:
            self._greet()

    def _has_died(self, holder: int) -> bool:
        """Has the attached process ended? False where it could not be observed from the start (another container)."""
        if not self._serving or holder != self._client:
            return not processes.alive(holder)
        return self._client_start is not None and not processes.alive(holder, self._client_start)

    def _end_session(self, why: str, level: int, error: Exception | None = None) -> None:
        """Open requests are void. The slot is freed last, after rings and counters are reset."""
        memory = self.memory
        if self._serving:
            _log.log(level, "session %d ended: %s", self.sessions, why, exc_info=error)
        self._tell_end(why)
        with self._out:
            self._session.on(Event.CLOSE)
        self._forget_sender()
        self._turns.forget()
        self._steps.forget()
        if memory.c2s is not None and memory.s2c is not None:
            with self._out:
                memory.s2c.repair()
            memory.c2s.repair()
            memory.c2s.skip_all()
        memory.store_u64(CLIENT_SINCE, 0)
        memory.store_u32(CLIENT_STATE, 0)
        memory.store_u32(CLIENT_PID, 0)
        self._bell.nudge()

    def _tell_end(self, why: str) -> None:
        """To the trainer, unless it leaves by itself."""
        holder = self.memory.load_u32(CLIENT_PID)
        if holder and self.memory.load_u32(CLIENT_STATE) != LEAVING:
            self.memory.tell_end(holder, why)

    def _answer_commands(self) -> None:
        if not self._serving and self.memory.load_u32(CLIENT_PID):
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

        write_within(try_write, data, _RING_SECONDS, ring.name, meanwhile or self._require_reader)

    def _between_infos(self) -> None:
        """No command is being answered here, so what the trainer writes while it does not read is taken too."""
        self._require_reader()
        if self.memory.c2s is not None and self.memory.c2s.has_news():
            self._answer_commands()

    def _require_reader(self) -> None:
        if not self._trainer_reads():
            raise ConnectionResetError("nobody is left to read the command ring")

    def _trainer_reads(self) -> bool:
        """Is the trainer still there? Checked once per slice."""
        now = time.monotonic()
        if now < self._next_reader_check:
            return True
        self._next_reader_check = now + ENGINE_SLICE_MS / 1000
        holder = self.memory.load_u32(CLIENT_PID)
        return bool(holder) and self.memory.load_u32(CLIENT_STATE) != LEAVING and not self._has_died(holder)

    def _forget_sender(self) -> None:
        if self.bridge.lockstep.sender == self.send:
            self.bridge.lockstep.sender = None

    def _use(self, sock: socket.socket | None) -> None:
        with self._out:
            if self._bell is not None:
                self._bell.release()
            self._bell = self.memory.bell(engine=True, sock=sock, spin_us=self._spin_us)
