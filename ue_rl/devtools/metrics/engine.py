"""EngineMetrics: what a served engine has done, counted where its ticks are (bridges/lockstep.py)."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.devtools.metrics.names import SERVING, Metrics
from ue_rl.protocol.buffers import ActionBatch, Next, StepBuffers


class EngineMetrics:
    """A RecordsTicks of `bridge`, in front of the one that is there.

    Args:
        bridge: configured; its ticks are counted from now on.

    Attributes:
        metrics: what `serve_metrics` serves.
    """

    def __init__(self, bridge: BaseBridge) -> None:
        self._bridge = bridge
        self._next = bridge.lockstep.recorder
        self.metrics = Metrics(SERVING, self._refresh)
        self._times = self.metrics.histogram("ue_rl_step_seconds")
        self._steps = 0
        self._sessions = 0
        self._begun = False
        self._before = b""
        self._at = 0.0
        with bridge.lock:
            bridge.lockstep.recorder = self

    def asked(self, inbox: ActionBatch, command: NDArray[np.uint8]) -> None:
        """See RecordsTicks."""
        self._before = command.tobytes()
        if self._next is not None:
            self._next.asked(inbox, command)
        self._at = perf_counter()

    def stepped(self, inbox: ActionBatch, envs: NDArray[np.intp] | None) -> None:
        """See RecordsTicks."""
        if envs is None:
            self._steps += self._bridge.num_envs
        else:
            self._steps += len(envs)
        self._before = b""
        if self._next is not None:
            self._next.stepped(inbox, envs)
        self._at = perf_counter()

    def answered(self, outbox: StepBuffers, command: NDArray[np.uint8]) -> None:
        """See RecordsTicks."""
        if not self._begun:
            self._begun = True
            self._sessions += 1
        if 1 in self._before:
            after = command.reshape(-1)
            agents = self._bridge.spec.agents_per_env
            done = (np.frombuffer(self._before, np.uint8) == ActionBatch.STEP) & (after == 0)
            self._steps += int(np.count_nonzero(done.reshape(-1, agents).any(axis=1)))
        if 1 in self._before or not self._before:
            self._times.observe(perf_counter() - self._at)
        if self._next is not None:
            self._next.answered(outbox, command)

    def begun_ahead(self, envs: Sequence[int], following: Sequence[Next], outbox: StepBuffers) -> None:
        """See RecordsTicks."""
        if self._next is not None:
            self._next.begun_ahead(envs, following, outbox)

    def called(self, line: str, answer: str) -> None:
        """See RecordsTicks."""
        if self._next is not None:
            self._next.called(line, answer)

    def session_ends(self) -> None:
        """See RecordsTicks."""
        self._begun = False
        if self._next is not None:
            self._next.session_ends()

    def _refresh(self, metrics: Metrics) -> None:
        metrics.total("ue_rl_env_steps_total", self._steps)
        metrics.exchanged(self._bridge.spec, self._steps)
        metrics.gauge("ue_rl_queue", int(np.count_nonzero(self._bridge.lockstep.inbox.command)))
        metrics.total("ue_rl_sessions_total", self._sessions)
