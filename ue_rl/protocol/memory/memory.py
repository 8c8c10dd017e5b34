"""StepMemory: a segment's header, arrays and rings as one object, over any writable memoryview (a bytearray will do).

    memory = StepMemory.create(bytearray(size), header)      the engine
    memory = StepMemory(view)                                 the trainer: everything is checked first

The arrays are views: `memory.obs.ctypes.data` is the segment's address plus obs_offset. Offsets are read once, here.
ue_rl/protocol/memory/segment.py makes and maps segments, ue_rl/protocol/memory/bell.py waits. Layout:
docs/shared-memory.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.memory.bell import Bell
from ue_rl.protocol.memory.header import (
    ACTION_SEQ,
    ANSWERED_SEQ,
    CLIENT_FLAG,
    ENGINE_FLAG,
    FRAME_SEQ,
    HEADER_SIZE,
    MAX_REASON,
    REASON,
    REASON_PID,
    Header,
    plan,
)
from ue_rl.protocol.memory.ring import Ring
from ue_rl.system.compiled import load
from ue_rl.system.spin import ENGINE_SPIN_US, TRAINER_SPIN_US

__all__ = ["HEADER_SIZE", "Header", "Ring", "StepMemory", "plan"]


class StepMemory:
    """What both sides see.

    Args:
        memory: the segment; writable.

    Attributes:
        header: as checked when this was made; the counters in it are of that moment.
        obs: float32 [rows, obs_size]. actions: float32 [rows, act_size]. rewards: float32 [rows]. A row is an env, or
            with agents one of them, see EnvSpec.num_rows.
        dones, truncated, resets: uint8 [rows]. image: uint8, see Header.image_shape; None without images.
        ask, answered: uint8 [rows] and seeds: int64 [rows]; None with a plain producer.
        masks: uint8 [rows, mask_size]; None without masks. present: uint8 [rows]; None without agents.
        first: float32 [rows, obs_size] and ahead: uint8 [rows]; None where no reset can be asked ahead.
        answered_seq: one uint64, the action_seq that the last frame (or `answered`) belongs to; None with a plain
            producer. Written before frame_seq is counted up, read after it: no barrier of its own is needed.
        s2c, c2s: the command rings, engine to trainer and back; None without them.

    Raises:
        SegmentInvalid: a field of the header is invalid.
    """

    def __init__(self, memory: Any) -> None:
        self.words: ModuleType = load("sync")
        self.buffer = memory
        # aligned words of the header, by their offset
        self.load_u32: Callable[[int], int] = partial(self.words.load_u32, memory)
        self.load_u64: Callable[[int], int] = partial(self.words.load_u64, memory)
        self.store_u32: Callable[[int, int], None] = partial(self.words.store_u32, memory)
        self.store_u64: Callable[[int, int], None] = partial(self.words.store_u64, memory)
        view = memoryview(memory).cast("B")
        self.header = header = Header.parse(view)
        self.obs: NDArray[np.float32] = self._array("obs", np.float32, header.obs_size)
        self.actions: NDArray[np.float32] = self._array("act", np.float32, header.act_size)
        self.rewards: NDArray[np.float32] = self._array("rewards", np.float32)
        self.dones: NDArray[np.uint8] = self._array("dones", np.uint8)
        self.resets: NDArray[np.uint8] = self._array("resets", np.uint8)
        has_truncated = "truncateds" in header.regions
        self.truncated: NDArray[np.uint8]
        if has_truncated:
            self.truncated = self._array("truncateds", np.uint8)
        else:
            self.truncated = np.zeros(header.num_envs, np.uint8)
        self.image: NDArray[np.uint8] | None = None
        if header.image_offset:
            self.image = self._array("image", np.uint8, *header.image_shape[1:])
        self.ask: NDArray[np.uint8] | None = None
        self.answered: NDArray[np.uint8] | None = None
        self.seeds: NDArray[np.int64] | None = None
        self.answered_seq: memoryview | None = None
        if header.extended:
            self.ask = self._array("ask", np.uint8)
            self.answered = self._array("answered", np.uint8)
            self.seeds = self._array("seeds", np.int64)
            self.answered_seq = view[ANSWERED_SEQ : ANSWERED_SEQ + 8].cast("Q")
        self.masks: NDArray[np.uint8] | None = None
        if header.mask_size:
            self.masks = self._array("masks", np.uint8, header.mask_size)
        self.present: NDArray[np.uint8] | None = None
        if header.present_offset:
            self.present = self._array("present", np.uint8)
        self.first: NDArray[np.float32] | None = None
        self.ahead: NDArray[np.uint8] | None = None
        if header.first_offset:
            self.first = self._array("first", np.float32, header.obs_size)
            self.ahead = self._array("ahead", np.uint8)
        self.s2c = self._ring(view, "cmd_s2c")
        self.c2s = self._ring(view, "cmd_c2s")

    @classmethod
    def create(cls, memory: Any, header: Header, config: bytes = b"") -> StepMemory:
        """Writes `header` (from `plan`) and the CONFIG line into fresh memory."""
        view = memoryview(memory).cast("B")
        packed = header.pack()
        view[4:HEADER_SIZE] = packed[4:]
        if header.extended:
            start, size = header.regions["config"]
            view[start : start + size] = config
            seeds, size = header.regions["seeds"]
            view[seeds : seeds + size] = b"\xff" * size
        load("sync").store_u32(memory, 0, header.magic)  # last: a reader that finds the magic finds everything
        return cls(memory)

    @property
    def config(self) -> bytes:
        """The CONFIG line; b"" with a plain producer."""
        if self.header.extended:
            start, size = self.header.regions["config"]
        else:
            start = 0
            size = 0
        return bytes(memoryview(self.buffer).cast("B")[start : start + size])

    def bell(self, engine: bool, sock: Any = None, spin_us: float | None = None) -> Bell:
        """The Bell of one side: it publishes that side's counter and waits for the other's.

        Args:
            engine: the engine's side, or the trainer's.
            sock: a connected socket that carries doorbells and shows the other side's death; None: futex or naps.
            spin_us: microseconds to spin before blocking; None: see ue_rl/system/spin.py.
        """
        if engine:
            own = FRAME_SEQ
            peer = ACTION_SEQ
            own_flag = ENGINE_FLAG
            peer_flag = CLIENT_FLAG
        else:
            own = ACTION_SEQ
            peer = FRAME_SEQ
            own_flag = CLIENT_FLAG
            peer_flag = ENGINE_FLAG
        ring = "cmd_s2c"
        if engine:
            ring = "cmd_c2s"
        if self.header.extended:
            flags = (own_flag, peer_flag)
        else:
            flags = (0, 0)
        at = 0
        if ring in self.header.regions and self.header.extended:
            at = self.header.regions[ring][0]
        if spin_us is None:
            if engine:
                spin_us = ENGINE_SPIN_US
            else:
                spin_us = TRAINER_SPIN_US
        bell: Bell = self.words.Bell(self.buffer, own, peer, *flags, at, sock, spin_us)
        return bell

    # -- why a session has ended

    def tell_end(self, pid: int, why: str) -> None:
        """Engine: tells the trainer with this client_pid why its session ends; before the slot is freed."""
        text = why.encode("utf-8", "replace")[: MAX_REASON - 1].decode("utf-8", "ignore").replace("\0", " ").encode()
        self.store_u32(REASON_PID, 0)
        memoryview(self.buffer).cast("B")[REASON : REASON + MAX_REASON] = text.ljust(MAX_REASON, b"\0")
        self.store_u32(REASON_PID, pid)

    def end_of(self, pid: int) -> str:
        """Trainer: the engine's sentence for the session of this client_pid; "" where it says nothing."""
        if not self.header.extended or self.load_u32(REASON_PID) != pid:
            return ""
        raw = bytes(memoryview(self.buffer).cast("B")[REASON : REASON + MAX_REASON])
        return raw.partition(b"\0")[0].decode("utf-8", "replace")

    def release(self) -> None:
        """Lets go of the rings; the arrays live for as long as somebody holds one."""
        for ring in (self.s2c, self.c2s):
            if ring is not None:
                ring.release()
        self.s2c = self.c2s = None
        if self.answered_seq is not None:
            self.answered_seq.release()
            self.answered_seq = None

    # -- helpers

    def _array(self, name: str, dtype: Any, *row: int) -> NDArray[Any]:
        """One region as an array [rows, *row]."""
        start, size = self.header.regions[name]
        # frombuffer, not ndarray(buffer=..): it keeps the mapping alive for as long as the array lives
        flat: NDArray[Any] = np.frombuffer(self.buffer, np.uint8, size, start).view(dtype)
        return flat.reshape(self.header.num_envs, *row)

    def _ring(self, view: memoryview, name: str) -> Ring | None:
        if name not in self.header.regions:
            return None
        start, size = self.header.regions[name]
        return Ring(view[start : start + size], name)
