"""What an engine was asked and has answered, as a trace: `record_engine(bridge, path)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.protocol.buffers import ActionBatch, Next, StepBuffers
from ue_rl.protocol.traces.file import AHEAD, HEAD, MOST, MessageKind, answer_arrays, rows_of
from ue_rl.protocol.traces.writing import TraceWriter

_STEP = int(MessageKind.STEP)
_ANSWER = int(MessageKind.ANSWER)
_ASKED_STEP = ActionBatch.STEP
_ASKED_RESET = ActionBatch.RESET


def record_engine(bridge: BaseBridge, path: str | Path, limit: int = MOST) -> TraceWriter:
    """Records whatever trainer is served, one session behind the other; the caller closes what this gives.

    Raises:
        ConfigurationError: see TraceWriter.
    """
    writer = TraceWriter(path, bridge.announce(), "engine", limit)
    with bridge.lock:
        bridge.lockstep.recorder = _Recorder(writer, bridge)
    return writer


class _Recorder:
    """See RecordsTicks."""

    def __init__(self, writer: TraceWriter, bridge: BaseBridge) -> None:
        self._writer = writer
        self._spec = bridge.spec
        self._names = answer_arrays(bridge.spec)
        self._open: NDArray[np.bool_] = np.zeros(bridge.num_envs, np.bool_)
        self._all_step = bytes([_ASKED_STEP]) * bridge.spec.num_rows
        self._whole = self._begun = False

    def asked(self, inbox: ActionBatch, command: NDArray[np.uint8]) -> None:
        """See RecordsTicks."""
        if command.tobytes() == self._all_step and not self._open.any():
            self.stepped(inbox, None)
            return
        per_env = command.reshape(len(self._open), -1).max(axis=1)
        new = (per_env != 0) & ~self._open
        if not new.any():
            return
        self._open |= new
        steps = np.flatnonzero(new & (per_env == _ASKED_STEP)).tolist()
        resets = np.flatnonzero(new & (per_env == _ASKED_RESET)).tolist()
        first = [env * self._spec.agents_per_env for env in resets]
        facts: dict[str, Any] = {}
        seeds = [int(inbox.seeds[row]) for row in first]
        if max(seeds, default=-1) >= 0:
            facts |= {"seeds": [None if seed < 0 else seed for seed in seeds]}
        else:
            facts |= {}
        if inbox.options:
            facts |= {"options": [inbox.options.get(row) for row in first]}
        else:
            facts |= {}
        if inbox.parameters:
            facts |= {"parameters": [inbox.parameters.get(row) for row in first]}
        else:
            facts |= {}
        self._session()
        self._writer.ask(steps, resets, facts, inbox.actions[rows_of(steps, self._spec)])

    def stepped(self, inbox: ActionBatch, envs: NDArray[np.intp] | None) -> None:
        """See RecordsTicks."""
        self._session()
        if envs is None:
            self._whole = True
            self._writer.pieces += (HEAD.pack(_STEP, perf_counter() - self._writer.began), inbox.actions.tobytes())
            return
        self._open[envs] = True
        self._writer.ask(envs, (), {}, inbox.actions[rows_of(envs, self._spec)])

    def answered(self, outbox: StepBuffers, command: NDArray[np.uint8]) -> None:
        """See RecordsTicks."""
        if self._whole:
            self._whole = False
            if not outbox.infos and not command.any():
                now = perf_counter()
                pieces = self._writer.pieces
                pieces.append(HEAD.pack(_ANSWER, now - self._writer.began))
                pieces += [getattr(outbox, name).tobytes() for name in self._names]
                if len(pieces) > 5 * self._writer.every or now > self._writer.due:
                    self._writer.filled(now)
                return
            self._open[:] = True
        done = self._open & (command.reshape(len(self._open), -1).max(axis=1) == 0)
        envs = np.flatnonzero(done)
        if not len(envs):
            return
        self._open[envs] = False
        rows = rows_of(envs, self._spec)
        part = None
        if len(envs) != len(done):
            part = envs
        self._part(part, rows, outbox)

    def begun_ahead(self, envs: Sequence[int], following: Sequence[Next], outbox: StepBuffers) -> None:
        """See RecordsTicks."""
        seeds, parameters = ([one[at] for one in following] for at in (0, 1))
        facts: dict[str, Any] = {AHEAD: [True] * len(envs), "seeds": seeds, "parameters": parameters}
        self._writer.ask((), envs, facts, np.zeros((0, self._spec.act_size), np.float32))
        self._part(envs, rows_of(envs, self._spec), outbox)

    def _part(self, envs: Any, rows: NDArray[np.intp], outbox: StepBuffers) -> None:
        infos = {}
        if outbox.infos:
            infos = {row: outbox.infos[row] for row in rows.tolist() if row in outbox.infos}
        facts = {}
        if infos:
            facts = {"infos": infos}
        self._writer.part(envs, facts, *(getattr(outbox, name)[rows] for name in self._names))

    def called(self, line: str, answer: str) -> None:
        """See RecordsTicks."""
        self._session()
        self._writer.called(line, answer)

    def session_ends(self) -> None:
        """See RecordsTicks."""
        self._open[:] = False
        self._whole = self._begun = False

    def _session(self) -> None:
        if not self._begun:
            self._begun = True
            self._writer.add(MessageKind.SESSION, {})
