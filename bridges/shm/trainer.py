"""Trainer: the process that holds a segment's one place, as the engine sees it: does it live, and does it read."""

from __future__ import annotations

import time

from ue_rl.shm.header import CLIENT_PID, CLIENT_SINCE, CLIENT_STATE, LEAVING
from ue_rl.shm.memory import StepMemory
from ue_rl.system import processes
from ue_rl.system.spin import ENGINE_SLICE_MS


class Trainer:
    """Whoever holds the place in `memory`."""

    def __init__(self, memory: StepMemory) -> None:
        self._memory = memory
        self._served = 0  # the process whose session it is; 0: nobody's
        self._start: int | None = None
        self._next_look = 0.0

    @property
    def pid(self) -> int:
        """Its process id; 0: nobody is attached."""
        return self._memory.load_u32(CLIENT_PID)

    @property
    def leaving(self) -> bool:
        """Does it go by itself?"""
        return self._memory.load_u32(CLIENT_STATE) == LEAVING

    def begin(self, pid: int) -> None:
        """Its session begins."""
        self._served = pid
        # a trainer with a socket may be in another container, with other process ids
        self._start = processes.start_time(pid) if processes.alive(pid) else None

    def has_died(self, pid: int) -> bool:
        """Has this process ended? False where it could not be observed from the start (another container)."""
        if pid != self._served:
            return not processes.alive(pid)
        return self._start is not None and not processes.alive(pid, self._start)

    def reads(self) -> bool:
        """Is it still there? Looked at once per slice."""
        now = time.monotonic()
        if now < self._next_look:
            return True
        self._next_look = now + ENGINE_SLICE_MS / 1000
        pid = self.pid
        return bool(pid) and not self.leaving and not self.has_died(pid)

    def require_reader(self) -> None:
        """Raises ConnectionResetError where nobody is left to read the command ring."""
        if not self.reads():
            raise ConnectionResetError("nobody is left to read the command ring")

    def tell_end(self, why: str) -> None:
        """Tells it why its session ends, unless it goes by itself."""
        pid = self.pid
        if pid and not self.leaving:
            self._memory.tell_end(pid, why)

    def free(self) -> None:
        """The place is free for the next one."""
        self._served = 0
        self._memory.store_u64(CLIENT_SINCE, 0)
        self._memory.store_u32(CLIENT_STATE, 0)
        self._memory.store_u32(CLIENT_PID, 0)
