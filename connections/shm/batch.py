"""MemoryBatch: several engines in shared memory, asked and read in one compiled call each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.memory.bell import Bell, Bells
from ue_rl.protocol.memory.ring import Ring
from ue_rl.system.compiled import load

if TYPE_CHECKING:
    from ue_rl.connections.shm.connection import SharedMemoryConnection


class MemoryBatch:
    """See BatchedStep.

    Args:
        connections: whose engines they are. bells, rings: of each. buffers: of all. slice_ms: how long a wait may take.
    """

    def __init__(
        self,
        connections: Sequence[SharedMemoryConnection],
        bells: Sequence[Bell],
        rings: Sequence[Ring],
        buffers: StepBuffers,
        slice_ms: int,
    ) -> None:
        self._connections = connections
        self._rings = rings
        self._slice_ms = slice_ms
        self._positions: list[int] = []
        self._bells: Bells = load("sync").Bells(
            tuple(bells), buffers.obs, buffers.rewards, buffers.dones, buffers.truncated
        )

    def ask(self, actions: NDArray[np.float32], again: bool) -> list[bytes] | None:
        """See BatchedStep.ask."""
        if not again:
            if not all(connection.ready_for_all() for connection in self._connections):
                return None
            self._positions = [ring.write_pos for ring in self._rings]
        try:
            if self._bells.ask(actions):
                return []
            return None
        except (TypeError, ValueError, BufferError):  # the connections say what is wrong
            return None

    def collect(self) -> tuple[float, ...] | None:
        """See BatchedStep.collect."""
        try:
            return self._bells.answer(self._positions, self._slice_ms)
        except (ConnectionResetError, ValueError):  # likewise
            return None
