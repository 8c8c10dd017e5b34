"""What an engine was asked and has answered, as a trace: `record_engine(bridge, path)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.buffers import ActionBatch, StepBuffers
from ue_rl.recording.file import HEAD, MOST, Kind, TraceWriter, answer_arrays, rows_of

_STEP, _ANSWER = int(Kind.STEP), int(Kind.ANSWER)
_ASKED_STEP, _ASKED_RESET = ActionBatch.STEP, ActionBatch.RESET


def record_engine(bridge: BaseBridge, path: str | Path, limit: int = MOST) -> TraceWriter:
    """Records whatever trainer is served, one session behind the other; the caller closes what this gives.

    Raises:
        ConfigurationError: see TraceWriter.
    """
    writer = TraceWriter(path, bridge.announce(), "engine", limit)
    with bridge.lock:
        bridge.lockstep.recorder = _Recorder(writer, bridge)
    return writer


class _Begun(NamedTuple):
    """An episode that was asked ahead: what it began with, and how."""

    seed: int | None
    parameters: Mapping[str, float] | None
    info: dict[str, Any] | None
    arrays: list[NDArray[Any]]


class _Recorder:
    """See RecordsTicks."""

    def __init__(self, writer: TraceWriter, bridge: BaseBridge) -> None:
        self._writer, self._spec = writer, bridge.spec
        self._names = answer_arrays(bridge.spec)
        self._open: NDArray[np.bool_] = np.zeros(bridge.num_envs, np.bool_)
        self._all_step = bytes([_ASKED_STEP]) * bridge.spec.num_rows
        self._whole = self._begun = False
        self._ahead: dict[int, _Begun] = {}

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
        self._settle(steps)
        for env in resets:
            self._ahead.pop(env, None)  # the trainer has begun it otherwise
        facts: dict[str, Any] = {}
        seeds = [int(inbox.seeds[row]) for row in first]
        facts |= {"seeds": [None if seed < 0 else seed for seed in seeds]} if max(seeds, default=-1) >= 0 else {}
        facts |= {"options": [inbox.options.get(row) for row in first]} if inbox.options else {}
        facts |= {"parameters": [inbox.parameters.get(row) for row in first]} if inbox.parameters else {}
        self._session()
        self._writer.ask(steps, resets, facts, inbox.actions[rows_of(steps, self._spec)])

    def stepped(self, inbox: ActionBatch, envs: NDArray[np.intp] | None) -> None:
        """See RecordsTicks."""
        self._session()
        if self._ahead:
            self._settle(range(len(self._open)) if envs is None else envs.tolist())
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
        infos = {row: outbox.infos[row] for row in rows.tolist() if row in outbox.infos} if outbox.infos else {}
        some = None if len(envs) == len(done) else envs
        self._writer.part(
            some, {"infos": infos} if infos else {}, *(getattr(outbox, name)[rows] for name in self._names)
        )

    def began_ahead(
        self,
        outbox: StepBuffers,
        envs: Sequence[int],
        following: Sequence[tuple[int | None, Mapping[str, float] | None]],
    ) -> None:
        """See RecordsTicks. It is kept until a step follows: a trainer may still begin the episode otherwise."""
        for env, (seed, parameters) in zip(envs, following, strict=True):
            arrays = [getattr(outbox, name)[env : env + 1].copy() for name in self._names]
            self._ahead[env] = _Begun(seed, parameters, outbox.infos.get(env), arrays)

    def _settle(self, envs: Iterable[int]) -> None:
        """These envs step: episodes of theirs that were asked ahead are recorded as any other reset."""
        for env in [env for env in envs if env in self._ahead]:
            begun = self._ahead.pop(env)
            facts: dict[str, Any] = {} if begun.seed is None else {"seeds": [begun.seed]}
            facts |= {"parameters": [dict(begun.parameters)]} if begun.parameters else {}
            self._writer.ask((), (env,), facts, np.empty(0, np.float32))
            self._writer.part((env,), {"infos": {env: begun.info}} if begun.info else {}, *begun.arrays)

    def called(self, line: str, answer: str) -> None:
        """See RecordsTicks."""
        self._session()
        self._writer.add(Kind.CALL, {"line": line})
        self._writer.add(Kind.REPLY, {"line": answer})

    def session_ends(self) -> None:
        """See RecordsTicks."""
        self._open[:] = False
        self._whole = self._begun = False
        self._settle(list(self._ahead))

    def _session(self) -> None:
        if not self._begun:
            self._begun = True
            self._writer.add(Kind.SESSION, {})
