"""SharedMemoryConnection: a Transport over shared memory (docs/shared-memory.md).

    SharedMemoryConnection("ue_rl_123_ab12cd34")          by name, liveness by pid and deadline
    SharedMemoryConnection(engine=("127.0.0.1", 7777))    from TCP, whose socket stays as doorbell and sign of life

`receive()` gives arrays that hold until the next request: images are views into the segment, numbers and flags are
copied out of it, and the copy is checked before it is given out, so that nobody who writes there late is believed:
finite numbers, flags that are flags, exactly one frame per request. After any failure a connection is dead.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.base.batched_step import BatchedStep
from ue_rl.connections.base.carrier import Carrier
from ue_rl.connections.base.checks import check_actions
from ue_rl.connections.shm import attach
from ue_rl.connections.shm.batch import MemoryBatch
from ue_rl.connections.shm.commands import ShmCommands
from ue_rl.connections.shm.handles import SystemHandles
from ue_rl.connections.shm.plain import PlainSteps
from ue_rl.connections.shm.requests import copy_actions, entries_ahead, note_ahead, note_resets, reset_entries
from ue_rl.connections.shm.rows import AgentReader, MaskReader, Taken, readers, take_first
from ue_rl.connections.shm.torch_upload import TorchUpload
from ue_rl.connections.shm.upgrade import UpgradeRefused, check_name, check_offered, propose
from ue_rl.connections.shm.waiting import EngineWatch, bad_state, unasked
from ue_rl.connections.tcp.greeting import shake_hands
from ue_rl.connections.tcp.link import Link
from ue_rl.protocol.access.client_access import ClientAccess
from ue_rl.protocol.buffers import ActionBatch, Next, Resets, StepBuffers
from ue_rl.protocol.memory.bell import ASKED, NOT_OURS, Bell
from ue_rl.protocol.memory.header import ANSWERED_SEQ, CLIENT_PID
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.protocol.memory.offer import parse_offer
from ue_rl.protocol.memory.segment import Segment
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.connection_state import ConnectionEvent, ConnectionPhase
from ue_rl.protocol.text.refusals import nonfinite_action
from ue_rl.system.compiled import load
from ue_rl.system.errors import UeRlError, UnsupportedByEngine
from ue_rl.system.timing import SYSTEM_TIMING, Timing

_LARGE = 1 << 16  # bytes of observations: from here on a new array costs less than a copy


class SharedMemoryConnection(BaseTransport):
    """One trainer's end of a segment.

    Args:
        name: of the segment, or the path of a file; None: the environment variable LUCKY_SHM_NAME.
        engine: (host, port) where an engine listens that offers shared memory in its handshake; then no `name`.
        access: token of this side, for `engine`. timeout, connect_timeout, wait: see BaseTransport.
        spin_us: microseconds to spin before blocking while waiting for an answer; None: see ue_rl/system/spin.py.
        timing: whose clock its waits for answers and for `engine` go by.

    Attributes:
        buffers: the arrays of the last answer. image: uint8 [num_envs, ..], those of `buffers`, or None.
        commands: requests beside the steps, and what the engine sends unasked.

    Raises:
        ConfigurationError: an invalid deadline.
    """

    carries = "shared memory"
    _commands: ShmCommands
    _watch: EngineWatch
    _taken: Taken
    _agent_reader: AgentReader | None
    _mask_reader: MaskReader | None
    _who_acts: bytes | None  # present and dones of the last request of some agents, without resets

    def __init__(
        self,
        name: str | None = None,
        *,
        engine: tuple[str, int] | None = None,
        access: ClientAccess | None = None,
        timeout: float = 30.0,
        connect_timeout: float | None = None,
        wait: float = 0.0,
        spin_us: float | None = None,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        super().__init__(timeout, connect_timeout, wait)
        self._engine, self._access, self.name = engine, access, name
        self._spin_us = spin_us
        self._timing = timing
        self._held = SystemHandles(weakref.WeakMethod(self.fail))
        weakref.finalize(self, self._held.let_go)  # where nobody calls close()
        self._bell: Bell = None  # type: ignore[assignment]  # None before attaching and after close()
        self._greeted: tuple[Link, EnvSpec] | None = None
        self._upload: TorchUpload | None = None

    # -- life cycle

    @property
    def memory(self) -> StepMemory:
        """The segment's arrays and header."""
        memory = self._held.memory
        if memory is None:
            self._session.require(ConnectionEvent.ASK)
        assert memory is not None
        return memory

    @property
    def image(self) -> NDArray[np.uint8] | None:
        """The images of the last answer, uint8 [num_envs, h, w, c] or [num_envs, c, h, w]; None without."""
        return None if self.memory.image is None else self.buffers.image

    def to_torch(self, device: Any = "cuda") -> dict[str, Any]:
        """The last answer as tensors, on a GPU by one upload from pinned memory; see torch_upload.py."""
        self._session.require(ConnectionEvent.ASK)
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
        connection._greeted, connection.handshake = (link, spec), link.greeting
        connection.connect()
        return connection

    def describe(self) -> dict[str, str]:
        """See Transport.describe."""
        facts = {"address": f"shm://{self.name}", "transport": "shared memory"}
        if self._held.memory is not None and self._spec is not None:
            extended = self._held.memory.header.extended
            facts["protocol"] = f"version {self._spec.version}" if extended else "plain layout (version 1)"
            facts["kernels"] = "compiled"
            facts["wiring"] = "shared memory, " + ("socket doorbell" if self._held.link else "doorbell in memory")
        return facts

    # -- requests and answers

    def _ask(self, actions: NDArray[np.float32], resets: Resets | None) -> None:
        if resets is not None or self._some_act:
            self._ask_some(actions, resets)
            return
        if self._mixed:
            self._ask_all()
        if actions is None:  # Bell.ask(None) means that the actions are already in the segment
            check_actions(self.spec, actions)
        try:
            outcome = self._bell.ask(actions)
        except (TypeError, ValueError, BufferError):
            check_actions(self.spec, actions)  # nothing was asked: says what is wrong with them
            raise
        if outcome >= 0:
            row, number = divmod(outcome, self.spec.act_size)
            raise nonfinite_action(actions, row, number, self.spec)
        if outcome != ASKED:
            raise self._refused(outcome)

    def _ask_resets(self, resets: Resets) -> None:
        self._ask_some(None, resets)

    @property
    def asks_ahead(self) -> bool:
        """See Carrier.asks_ahead: where the segment has room for it, and an answer is numbers and flags alone."""
        memory = self.memory
        more = (memory.present, memory.masks, memory.image)
        return memory.first is not None and more == (None, None, None) and "AUTORESET" in self.spec.features

    def _ask_ahead(self, following: Mapping[int, Next]) -> None:
        entries = entries_ahead(self._commands, following, self._ahead.asked)
        attach.require_ours(self.memory)
        for entry in entries:
            self._commands.send_entry(entry, self.timeout)
        note_ahead(self.memory, following)

    def _take_begun(self, env_ids: list[int]) -> None:
        infos = self._commands.first_infos
        bad = take_first(self.memory, env_ids, self._ahead.asked, self.buffers)
        if bad >= 0:
            raise bad_state(self.spec, self._taken, (1, bad))
        self.buffers.infos.update(infos)
        infos.clear()

    def _ask_some(self, actions: NDArray[np.float32] | None, resets: Resets | None) -> None:
        """A step of some rows, a new episode of some envs, or both."""
        who = None
        if actions is not None:
            if self._plain is not None:
                what = "a segment of the plain layout steps or resets all its envs at once"
                raise UnsupportedByEngine(what, field="resets", got=resets and resets.env_ids)
            check_actions(self.spec, actions)
            who = self.buffers.present.tobytes() + self.buffers.dones.tobytes()
            if resets is None and who == self._who_acts:  # the same agents as in the request before
                attach.require_ours(self.memory)
                copy_actions(self.memory, self.spec, actions)
                self._publish([])
                return
        env_ids, entries = reset_entries(self.spec, self._commands, resets)
        attach.require_ours(self.memory)
        self._mixed, self._who_acts = True, None
        if self._plain is not None:
            self._plain.ask_resets(env_ids)
        else:
            self.expect_answers(resets, steps=actions is not None)
            assert self.memory.ask is not None
            np.equal(self.buffers.pending, 1, out=self.memory.ask)
            note_resets(self.memory, self.spec, env_ids, resets)
            if actions is not None:
                copy_actions(self.memory, self.spec, actions)
            self._who_acts = who if resets is None else None
        self._publish(entries)

    def _publish(self, entries: list[bytes]) -> None:
        """What is asked stands in the segment."""
        for entry in entries:
            self._commands.send_entry(entry, self.timeout)
        outcome = self._bell.ask(None)
        if outcome != ASKED:
            raise self._refused(outcome)

    def _call(self, line: bytes) -> bytes:
        return self._commands.call(line, self.timeout)

    def _ask_all(self) -> None:
        """Every env takes a step, as it does in every further one until a reset is asked."""
        if self._plain is not None:
            self._plain.ask_step()
            return
        attach.require_ours(self.memory)
        assert self.memory.ask is not None
        self.memory.ask[:] = ActionBatch.STEP
        self.memory.resets[:] = 0
        self.buffers.pending[:] = 1
        self._mixed, self._who_acts = False, None

    @classmethod
    def join(cls, transports: Sequence[Carrier], buffers: StepBuffers) -> BatchedStep | None:
        """See Carrier.join. Not where an answer is more than observations, rewards and flags."""
        mine = [each for each in transports if isinstance(each, SharedMemoryConnection)]
        rings = [each._ring for each in mine if each._ring is not None]
        more = [(each._agent_reader, each._mask_reader, each.image) for each in mine]
        if len(rings) != len(transports) or any(each != (None, None, None) for each in more):
            return None
        return MemoryBatch(
            mine, [each._bell for each in mine], rings, buffers, min(each._watch.slice_ms for each in mine)
        )

    def ready_for_all(self) -> bool:
        """Makes ready for a step of all envs; False: it is not, and send_actions() says why."""
        if self._session.state is not ConnectionPhase.READY:
            return False
        if self._mixed:
            try:
                self._ask_all()
            except UeRlError:
                return False
        return True

    def _collect(self) -> None:
        if self.buffers.given:
            self._take_into_another()
        ring, watch = self._ring, self._watch
        if self.timeout != watch.timeout:
            watch.set_timeout(self.timeout)
        try:
            good = self._bell.answer(0 if ring is None else ring.write_pos, watch.slice_ms)
        except ConnectionResetError as error:
            raise attach.gone(self.memory, "its socket was closed") from error
        if not good:
            self._look_closer()
        if self._agent_reader is not None:
            self._agent_reader.take()
            self._some_act = not self._agent_reader.all_act
        if self._mask_reader is not None:
            self._mask_reader.take(self.buffers)

    def _take_into_another(self) -> None:
        """The array of the last answer belongs to whoever has read it."""
        obs = np.empty_like(self.buffers.obs)
        self._bell.take_into(obs)
        self._taken = (obs, *self._taken[1:])
        self.buffers.obs, self.buffers.given = obs, False

    def _look_closer(self) -> None:
        """The answer is not there yet, messages came with it, or something is wrong with it."""
        self._watch.wait_for_answer(self._commands.drain)
        if self._plain is not None:
            self._plain.answered(self.buffers)
        bad = self._bell.take()
        if isinstance(bad, tuple):
            raise bad_state(self.spec, self._taken, bad)

    def _refused(self, outcome: int) -> UeRlError:
        if outcome == NOT_OURS:
            return attach.gone(self.memory, "it has ended this session")
        return unasked("frame_seq", self._bell.expected, self._bell.peek())

    # -- attaching

    def _open(self) -> EnvSpec:
        if self._greeted is not None:
            return self._take_offer(*self._greeted)
        load("sync")  # raises where shared memory is not available, before anything is waited for or dialled
        if self._engine is None:
            wait_until = time.monotonic() + self.wait
            memory = self._map(attach.open_segment(self.name, self.wait), wait_until=wait_until)
            return self._begin(attach.spec_of(memory), None)
        link, spec = shake_hands(*self._engine, self.connect_timeout, self.wait, self._access, self._timing)
        try:
            return self._take_offer(link, spec)
        except BaseException as error:
            link.close()
            if isinstance(error, UpgradeRefused):
                raise error.as_error() from error
            raise

    def _take_offer(self, link: Link, spec: EnvSpec) -> EnvSpec:
        """Raises as `upgrade` does."""
        if spec.shm is None:
            raise UpgradeRefused("the engine does not offer it")
        try:
            name, token = parse_offer(spec.shm)
            if link.peer is None:
                raise UpgradeRefused("the engine has closed the connection")
            check_name(name, link.peer[0])
            self._map(Segment.open(name), lambda memory: check_offered(memory, token, spec))
        except UeRlError as error:
            raise UpgradeRefused(error) from error
        propose(link, self.memory, self.connect_timeout)
        return self._begin(spec, link)

    def _map(
        self, segment: Segment, check: Callable[[StepMemory], None] = lambda memory: None, wait_until: float = 0.0
    ) -> StepMemory:
        """Maps and checks the segment, and takes it for this process; `wait_until`: see attach.claim."""
        self._held.segment, self.name = segment, segment.name
        self._held.memory = memory = StepMemory(segment.memory)
        check(memory)
        self._held.claim(self.connect_timeout, wait_until)
        return memory

    def _begin(self, spec: EnvSpec, link: Link | None) -> EnvSpec:
        memory = self.memory
        self._held.link = link
        sock = None if link is None else link.sock
        self._bell = self._held.bell = memory.bell(engine=False, sock=sock, spin_us=self._spin_us)
        self._ring = memory.s2c if memory.header.extended else None
        if memory.s2c is not None:
            memory.s2c.skip_all()
        self.buffers = buffers = StepBuffers(spec.num_rows, spec.obs_size, mask_size=spec.mask_size)
        self._plain = None if memory.header.extended else PlainSteps(memory, buffers)
        self._taken, self._agent_reader, self._mask_reader = readers(memory, spec, buffers)
        self._some_act, self._mixed, self._who_acts = self._agent_reader is not None, True, None
        # of a plain producer: private arrays. Bell.answer finds no answer there, and every answer takes the slow path
        given, into = self._taken, None
        if self._plain is None:
            buffers.image = memory.image
            given, into = (memory.obs, memory.rewards, memory.dones, memory.truncated), self._taken
            buffers.may_give = buffers.obs.nbytes >= _LARGE
        holder = (CLIENT_PID, os.getpid()) if memory.header.extended else (0, 0)
        self._bell.bind(memory.actions, *given, ANSWERED_SEQ, *holder, into)
        self._watch = watch = EngineWatch(memory, spec, self._bell, sock, self.timeout, self._timing.now)
        self._commands = ShmCommands(
            memory.c2s,
            memory.s2c,
            nudge=self._bell.nudge,
            wait=lambda ms: watch.wait(None, ms),
            check=lambda: self.memory,
            fail=self.fail,
            infos=self.buffers.infos,
            num_rows=spec.num_rows,
            timeout=self.timeout,
            now=self._timing.now,
        )
        return spec

    def _drop(self) -> None:
        self._held.let_go()
        self._bell = None  # type: ignore[assignment]
        commands: ShmCommands | None = getattr(self, "_commands", None)
        if commands is not None:  # or the two would hold each other, and the segment stay mapped until a collection
            commands.end(self._session)
