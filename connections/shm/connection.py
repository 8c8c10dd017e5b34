"""SharedMemoryConnection: a Transport over shared memory (docs/shared-memory.md).

    SharedMemoryConnection("ue_rl_123_ab12cd34")          by name, liveness by pid and deadline
    SharedMemoryConnection(engine=("127.0.0.1", 7777))    from TCP, whose socket stays as doorbell and sign of life

`receive()` gives arrays that are views into the segment: they hold until the next request. Every answer is checked
before it is given out: finite numbers, flags that are flags, exactly one frame per request. After any failure a
connection is dead.
"""

from __future__ import annotations

import logging
import os
import socket
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import ActionBatch, StepBuffers
from ue_rl.compiled import load
from ue_rl.connections.arguments import check_actions, check_deadlines, check_offered, check_reset
from ue_rl.connections.base import BaseConnection
from ue_rl.connections.shm import attach
from ue_rl.connections.shm.commands import ShmCommands
from ue_rl.connections.shm.faults import bad_action, bad_state
from ue_rl.connections.shm.plain import PlainSteps
from ue_rl.connections.shm.torch_upload import TorchUpload
from ue_rl.connections.shm.upgrade import UpgradeRefused, check_same, propose
from ue_rl.connections.shm.waiting import EngineWatch, slice_of, unasked
from ue_rl.connections.tcp.connection import shake_hands
from ue_rl.connections.tcp.link import Link
from ue_rl.errors import UeRlError
from ue_rl.session import Event, State
from ue_rl.shm.bell import ASKED, NOT_OURS, Bell, set_slice
from ue_rl.shm.header import ANSWERED_SEQ, CLIENT_PID
from ue_rl.shm.memory import StepMemory
from ue_rl.shm.offer import parse_offer
from ue_rl.shm.segment import Segment
from ue_rl.spec import EnvSpec

_log = logging.getLogger("ue_rl.connections")

# By the segment's token: which connection of this process holds it. A pid alone does not tell two of them apart.
_holders: weakref.WeakValueDictionary[bytes, SharedMemoryConnection] = weakref.WeakValueDictionary()


class SharedMemoryConnection(BaseConnection):
    """One trainer's end of a segment.

    Args:
        name: of the segment, or the path of a file; None: the environment variable LUCKY_SHM_NAME.
        engine: (host, port) where an engine listens that offers shared memory in its handshake; then no `name`.
        timeout: seconds for a step or reset to be answered.
        connect_timeout: seconds for attaching; None: `timeout`.
        wait: keep trying this many seconds while there is no such segment, or nobody listens.
        spin_us: microseconds to spin before blocking while waiting for an answer; None: see ue_rl/spin.py.

    Attributes:
        buffers: the arrays of the last answer. image: uint8 [num_envs, ..], those of `buffers`, or None.
        commands: requests beside the steps, and what the engine sends unasked.

    Raises:
        ConfigurationError: a deadline that cannot be.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        engine: tuple[str, int] | None = None,
        timeout: float = 30.0,
        connect_timeout: float | None = None,
        wait: float = 0.0,
        spin_us: float | None = None,
    ) -> None:
        super().__init__()
        check_deadlines(timeout, connect_timeout)
        self._engine = engine
        self.name, self.timeout, self.wait = name, timeout, wait
        self.connect_timeout = timeout if connect_timeout is None else connect_timeout
        self._spin_us = spin_us
        self._segment: Segment | None = None
        self._memory: StepMemory | None = None
        self._bell: Bell = None  # type: ignore[assignment]  # None before attaching and after close()
        self._link: Link | None = None
        self._claimed = False
        self._upload: TorchUpload | None = None

    # -- life cycle

    @property
    def memory(self) -> StepMemory:
        """The segment's arrays and header."""
        if self._memory is None:
            self._session.on(Event.ASK)  # says why not
        assert self._memory is not None
        return self._memory

    @property
    def image(self) -> NDArray[np.uint8] | None:
        """The images of the last answer, uint8 [num_envs, h, w, c] or [num_envs, c, h, w]; None without."""
        return None if self.memory.image is None else self.buffers.image

    def to_torch(self, device: Any = "cuda") -> dict[str, Any]:
        """The last answer as tensors, on a GPU by one upload from pinned memory; see torch_upload.py."""
        if self._session.state is not State.READY:
            self._session.on(Event.ASK)  # says why not
        if self._upload is None or not self._upload.serves(device):
            self._upload = TorchUpload(self.buffers, device)
        return self._upload()

    @property
    def commands(self) -> ShmCommands:
        """Requests beside the steps, and events; raises ConnectionUnusable before connect() and after close()."""
        _ = self.memory
        return self._commands

    @classmethod
    def attach(cls, name: str | None = None, **options: Any) -> SharedMemoryConnection:
        """A connected transport by name; options as the class's."""
        connection = cls(name, **options)
        connection.connect()
        return connection

    @classmethod
    def upgrade(cls, link: Link, spec: EnvSpec, **options: Any) -> SharedMemoryConnection:
        """Takes the offer in a handshake, right after it came.

        Args:
            link: the first connection, with the handshake read. On success it belongs to the new connection.
            spec: of the handshake. options: as the class's.

        Raises:
            UpgradeRefused: it cannot be taken; the link is as it was and the session can go on in text.
            EngineDisconnected, EngineTimeout, HandshakeError: after the offer was taken there is no way back.
        """
        connection = cls(**options)
        connection._session.on(Event.CONNECT)
        try:
            connection._take_offer(link, spec)
        except BaseException:
            connection._drop()
            raise
        return connection

    def connect(self) -> EnvSpec:
        """See Transport.connect."""
        if self._spec is None:
            self._session.on(Event.CONNECT)
            try:
                load("sync")  # raises where shared memory is impossible, before anything is waited for or dialled
                if self._engine is None:
                    self._map(attach.open_segment(self.name, self.wait), None)
                    self._begin(self.memory.spec(), None)
                else:
                    self._go_over(*self._engine)
            except UeRlError as error:
                self.fail(error)
                raise
            except BaseException:  # Ctrl-C
                self.close()
                raise
        return self.spec

    def describe(self) -> dict[str, str]:
        """See Transport.describe."""
        facts = {"address": f"shm://{self.name}", "transport": "shared memory"}
        if self._memory is not None and self._spec is not None:
            extended = self._memory.header.extended
            facts["protocol"] = f"version {self._spec.version}" if extended else "plain layout (version 1)"
            facts["kernels"] = "compiled"
            facts["wiring"] = "shared memory, " + ("socket doorbell" if self._link else "doorbell in memory")
        return facts

    # -- requests and answers

    def send_actions(self, actions: NDArray[np.float32]) -> None:
        """See Transport.send_actions."""
        session = self._session
        if session.state is not State.READY:
            session.on(Event.ASK)  # says why not
        if self._mixed:
            self._ask_all()
        if self.buffers.infos:
            self.buffers.infos.clear()
        if actions is None:  # to a Bell that means: they stand there already
            check_actions(self.spec, actions)
        try:
            refused = self._bell.ask(actions)
        except (TypeError, ValueError, BufferError):
            check_actions(self.spec, actions)  # says what they should be; nothing was asked
            raise
        if refused != ASKED:
            raise self._failed(bad_action(actions, refused) if refused >= 0 else self._refused(refused))
        session.on(Event.ASK)

    def reset(
        self,
        env_ids: Sequence[int] | None = None,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> None:
        """See Transport.reset."""
        check_reset(self.spec, env_ids, seeds)
        check_offered(self.spec, "SEED", seeds)
        check_offered(self.spec, "OPTIONS", options)
        if self._session.state is not State.READY:
            self._session.on(Event.ASK)
        if attach.evicted(self.memory):
            raise self._failed(self._refused(NOT_OURS))
        env_ids = range(self.spec.num_envs) if env_ids is None else env_ids
        entries = [
            self._commands.options_entry(env, option)
            for env, option in zip(map(int, env_ids), options or (), strict=False)
            if option is not None
        ]
        try:
            self._ask_resets(env_ids, seeds, entries)
        except UeRlError as error:
            self.fail(error)
            raise
        self.buffers.infos.clear()
        refused = self._bell.ask(None)
        if refused != ASKED:
            raise self._failed(self._refused(refused))
        self._session.on(Event.ASK)

    def receive(self) -> StepBuffers:
        """See Transport.receive. The arrays are views: they hold until the next request."""
        if self._session.state is not State.ASKED:
            self._session.on(Event.ANSWERED)  # says why not
        ring = self._ring
        try:
            try:
                fine = self._bell.answer(0 if ring is None else ring.write_pos, self._watch.slice_ms)
            except ConnectionResetError as error:
                raise attach.gone("its socket was closed") from error
            if not fine:
                self._look_closer()
        except (ValueError, AttributeError):
            if self._session.state is not State.ASKED:  # closed by another thread or a signal's handler meanwhile
                self._session.on(Event.ANSWERED)
            raise
        except UeRlError as error:
            self.fail(error)
            raise
        self._session.on(Event.ANSWERED)
        return self.buffers

    # -- attaching

    def _go_over(self, host: str, port: int) -> None:
        """Shakes hands over TCP and takes the offer."""
        link, spec = shake_hands(host, port, self.connect_timeout, self.wait)
        try:
            self._take_offer(link, spec)
        except UpgradeRefused as why:
            link.close()
            raise why.as_error() from why
        except BaseException:
            link.close()
            raise

    def _take_offer(self, link: Link, spec: EnvSpec) -> None:
        """Raises as `upgrade` does."""
        if spec.shm is None:
            raise UpgradeRefused("the engine does not offer it")
        try:
            name, token = parse_offer(spec.shm)
            check_same(self._map(Segment.open(name), token), spec)
        except UeRlError as error:
            self._drop()
            raise UpgradeRefused(str(error)) from error
        propose(link, self.memory, self.connect_timeout)
        self._begin(spec, link)

    def _map(self, segment: Segment, token: bytes | None) -> StepMemory:
        """Maps and checks the segment, and takes it for this process."""
        self._segment, self.name = segment, segment.name
        self._memory = memory = StepMemory(segment.memory)
        if token is not None:
            attach.check_token(memory, token)
        attach.claim(memory, self.connect_timeout)
        self._claimed = True
        if memory.header.extended:
            earlier = _holders.get(memory.header.token)
            _holders[memory.header.token] = self
            if earlier is not None:
                earlier._replaced()
        return memory

    def _replaced(self) -> None:
        """The engine ended this connection's session, and another one of this process has taken the segment."""
        if self._claimed and self._memory is not None:
            self._claimed = False
            self.fail(attach.gone("it has ended this session"))

    def _begin(self, spec: EnvSpec, link: Link | None) -> None:
        memory = self.memory
        self._link = link
        sock: socket.socket | None = None if link is None else link.sock
        if sock is not None:
            set_slice(sock, slice_of(self.timeout))
        self._bell = memory.bell(engine=False, sock=sock, spin_us=self._spin_us)
        self._ring = memory.s2c if memory.header.extended else None
        if memory.s2c is not None:
            memory.s2c.skip_all()
        self.buffers = StepBuffers(spec.num_envs, spec.obs_size)
        self._plain = None if memory.header.extended else PlainSteps(memory, self.buffers)
        buffers = self.buffers
        if self._plain is None:
            buffers.image = memory.image
            buffers.obs, buffers.rewards = memory.obs, memory.rewards
            buffers.dones, buffers.truncated = memory.dones, memory.truncated
        # of a plain producer this side keeps arrays of its own: its answers always take the slow way
        flags = (buffers.dones, buffers.truncated)
        holder = (CLIENT_PID, os.getpid()) if memory.header.extended else (0, 0)
        self._bell.bind(memory.actions, buffers.obs, buffers.rewards, *flags, ANSWERED_SEQ, *holder)
        self._mixed = True
        self._watch = watch = EngineWatch(memory, self._bell, link is not None, self.timeout)
        self._commands = ShmCommands(
            memory.c2s, memory.s2c, nudge=self._bell.nudge, wait=lambda ms: watch.wait(None, ms),
            check=lambda: self.memory, fail=self.fail, infos=self.buffers.infos, num_envs=spec.num_envs,
            timeout=self.timeout,
        )  # fmt: skip
        self._spec = spec
        self._session.on(Event.CONFIG)
        _log.info("%s", self.describe())

    # -- asking

    def _ask_all(self) -> None:
        if self._plain is not None:
            self._plain.ask_step()
            return
        memory = self._memory
        assert memory is not None
        assert memory.ask is not None
        memory.ask[:] = ActionBatch.STEP
        memory.resets[:] = 0
        self._mixed = False

    def _ask_resets(
        self,
        env_ids: Sequence[int],
        seeds: Sequence[int | None] | None,
        options: Sequence[bytes],
    ) -> None:
        ids = np.asarray(env_ids, np.intp)
        self._mixed = True
        if self._plain is not None:
            self._plain.ask_resets(ids)
            return
        memory = self._memory
        assert memory is not None
        assert memory.ask is not None
        assert memory.seeds is not None
        memory.ask[:] = ActionBatch.NOTHING
        memory.ask[ids] = ActionBatch.RESET
        memory.resets[:] = 0
        memory.resets[ids] = 1
        memory.seeds[ids] = -1 if seeds is None else [-1 if seed is None else seed for seed in seeds]
        for option in options:
            self._commands.send_entry(option)

    def _failed(self, error: UeRlError) -> UeRlError:
        self.fail(error)
        return error

    def _refused(self, outcome: int) -> UeRlError:
        if outcome == NOT_OURS:
            return attach.gone("it has ended this session")
        return unasked("frame_seq", self._bell.expected, self._bell.peek())

    def _look_closer(self) -> None:
        """The slow way: the answer is not there yet, messages came with it, or something is wrong with it."""
        buffers = self.buffers
        self._watch.wait_for_answer(self._commands.drain)
        if self._plain is not None:
            self._plain.answered(buffers)
        bad = self.memory.words.check_step(buffers.obs, buffers.rewards, buffers.dones, buffers.truncated)
        if bad:
            raise bad_state(buffers, bad)

    def _drop(self) -> None:
        memory, self._memory = self._memory, None
        if memory is not None:
            if self._claimed:
                attach.leave(memory, asked=self._bell is not None)
            if self._bell is not None:
                self._bell.nudge()
            memory.release()
        if self._bell is not None:
            self._bell.release()
        if self._link is not None:
            self._link.close()
        if self._segment is not None:
            self._segment.close()
        self._bell = None  # type: ignore[assignment]
        self._link = self._segment = None
