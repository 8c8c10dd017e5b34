"""What tests of bridges with agents need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ue_rl.buffers import ActionBatch, Resets
from ue_rl.testing import MemoryTransport


class Arrays(MemoryTransport):
    """Arrays copied straight over, agents and masks among them."""

    def __init__(self, bridge: Any) -> None:
        super().__init__(bridge, through_codec=False, max_ticks=20)

    def _ask(self, actions: NDArray[np.float32], resets: Resets | None) -> None:
        self._expect(resets, steps=True)
        inbox = self.bridge.inbox
        inbox.actions[:] = actions
        inbox.command[:] = np.where(self.buffers.pending == 1, ActionBatch.STEP, ActionBatch.NOTHING)
        if resets is not None:
            self._copy_resets(resets)

    def _ask_resets(self, resets: Resets) -> None:
        self._expect(resets, steps=False)
        self._copy_resets(resets)

    def _take_answers(self) -> None:
        out, buffers, per_env = self.bridge.outbox, self.buffers, self.spec.agents_per_env
        answered = self.bridge.answered.reshape(-1, per_env) != 0
        rows = (np.flatnonzero(answered.any(axis=1))[:, None] * per_env + np.arange(per_env)).ravel()
        for name in ("obs", "rewards", "dones", "truncated", "masks", "present"):
            getattr(buffers, name)[rows] = getattr(out, name)[rows]
        np.testing.assert_array_equal(out.present[rows], self.bridge.answered[rows])
        buffers.infos.update({row: dict(out.infos.pop(row)) for row in rows.tolist() if row in out.infos})
        buffers.pending[rows] = 0
        self.bridge.answered[:] = 0


@pytest.fixture
def open_agents() -> Callable[[Any], MemoryTransport]:
    """From a bridge with agents to a connected transport."""

    def opened(bridge: Any) -> MemoryTransport:
        transport = Arrays(bridge)
        transport.connect()
        return transport

    return opened
