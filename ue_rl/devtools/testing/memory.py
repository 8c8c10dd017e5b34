"""MemoryTransport: a Transport over a bridge in the same process; no socket, no thread, no clock.

`receive` ticks the bridge until every asked env has answered. With `through_codec` each message is written
as bytes and read back by the real codec on both sides, so that a test covers the wire; without, the arrays
are copied straight over, so that a difference between the two is the codec's. Images, which text does not carry, are
copied in either case. A bridge that does not answer within `max_ticks` is an EngineTimeout. Calls are answered where
the bridge is one of ue_rl.bridges.
"""

from __future__ import annotations

import importlib
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.base.checks import check_actions
from ue_rl.protocol.buffers import ActionBatch, Resets, StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text import Codec, decode_handshake, encode_handshake
from ue_rl.protocol.text.agent_rows import end_answers
from ue_rl.system.errors import EngineTimeout

__all__ = ["BridgeLike", "MemoryTransport"]


class BridgeLike(Protocol):
    """What MemoryTransport needs of a bridge.

    `update_rl` takes the requests of `inbox` (and clears their command), and marks in `answered` the rows
    whose state it wrote to `outbox`; of an env with agents, all that belong to its answer in one tick. An idle one (see
    its `mode`) is told to `start_training`.
    """

    inbox: ActionBatch
    outbox: StepBuffers
    answered: NDArray[np.uint8]

    @property
    def spec(self) -> EnvSpec:
        """The session's sizes and abilities."""
        ...

    def update_rl(self, delta: float, /) -> None:
        """One tick."""


class MemoryTransport(BaseTransport):
    """See the module's docstring.

    Args:
        bridge: the engine's side.
        through_codec: write and read every message as bytes.
        max_ticks: how many ticks one answer may take.
        compiled: see ue_rl.protocol.text.Codec.

    Attributes:
        ticks: ticks so far.
        lines: the messages, when they went through the codec, as (direction, line): ">" to the engine, "<"
            back.
    """

    carries = "arrays in memory"

    def __init__(
        self,
        bridge: BridgeLike,
        *,
        through_codec: bool = True,
        max_ticks: int = 10_000,
        compiled: bool | None = None,
    ) -> None:
        super().__init__()
        self.bridge = bridge
        self.through_codec = through_codec
        self.max_ticks = max_ticks
        self.compiled = compiled
        self.ticks = 0
        self.lines: list[tuple[str, bytes]] = []

    def forked(self) -> None:
        """A child has its own copy of the bridge: both go on."""

    def _open(self) -> EnvSpec:
        announce = getattr(self.bridge, "announce", None)  # the spec with the game's parameters, as hosts are told it
        spec: EnvSpec
        if announce is None:
            spec = self.bridge.spec
        else:
            spec = announce()
        if getattr(getattr(self.bridge, "mode", None), "name", None) == "IDLE":
            self.bridge.start_training()  # type: ignore[attr-defined]
        if self.through_codec:
            line = encode_handshake(spec)
            self.lines.append(("<", line))
            self._engine_codec = Codec(spec, compiled=self.compiled)
            spec = decode_handshake(line)
        self._codec = Codec(spec, compiled=self.compiled)
        self.buffers = StepBuffers.of(spec)
        return spec

    def _ask(self, actions: NDArray[np.float32], resets: Resets | None) -> None:
        check_actions(self.spec, actions)
        line = self._codec.encode_request(
            actions, resets, self.buffers
        )  # in either case: it refuses what is not finite
        self.expect_answers(resets, steps=True)
        if self.through_codec:
            self._to_engine(line)
            return
        inbox = self.bridge.inbox
        inbox.actions[:] = actions
        inbox.command[:] = np.where(self.buffers.pending == 1, ActionBatch.STEP, ActionBatch.NOTHING)
        if resets is not None:
            self._copy_resets(resets)

    def _ask_resets(self, resets: Resets) -> None:
        line = self._codec.encode_request(None, resets, self.buffers)
        self.expect_answers(resets, steps=False)
        if self.through_codec:
            self._to_engine(line)
        else:
            self._copy_resets(resets)

    def _copy_resets(self, resets: Resets) -> None:
        inbox = self.bridge.inbox
        per_env = self.spec.agents_per_env
        if resets.env_ids is not None:
            envs = resets.env_ids
        else:
            envs = range(self.spec.num_envs)
        for n, env in enumerate(envs):
            row = env * per_env
            inbox.command[row : row + per_env] = ActionBatch.RESET
            seed = None
            if resets.seeds is not None:
                seed = resets.seeds[n]
            if seed is None:
                inbox.seeds[row] = -1
            else:
                inbox.seeds[row] = seed
            for given, into in ((resets.options, inbox.options), (resets.parameters, inbox.parameters)):
                value = None
                if given is not None:
                    value = given[n]
                if value is not None:
                    into[row] = dict(value)

    def _collect(self) -> None:
        for _ in range(self.max_ticks):
            if not self.buffers.pending.any():
                return
            self.ticks += 1
            self.bridge.update_rl(1 / 60)
            self._take_answers()
        late = np.unique(np.flatnonzero(self.buffers.pending) // self.spec.agents_per_env).tolist()
        what = f"the bridge did not answer within {self.max_ticks} ticks"
        cure = "does its action ever end?"
        raise EngineTimeout(what, env_id=late[0], expected=f"answers of envs {late}", cure=cure)

    def _call(self, line: bytes) -> bytes:
        try:
            answer_call = importlib.import_module("ue_rl.bridges.calls").answer_call
        except ImportError:  # an installation without that room
            return super()._call(line)
        answer: bytes = answer_call(self.bridge, line)
        self.lines += [(">", line + b"\n"), ("<", answer + b"\n")]
        return answer

    def _drop(self) -> None:
        """Nothing is held."""

    def describe(self) -> dict[str, str]:
        """See Transport.describe."""
        wiring = "arrays"
        if self.through_codec:
            wiring = "codec"
        facts = {"transport": "memory", "wiring": wiring}
        if self._spec is not None:
            facts |= {"protocol": f"version {self._spec.version}", "kernels": self._codec.kernels}
        return facts

    def _to_engine(self, line: bytes) -> None:
        self.lines.append((">", line))
        self._engine_codec.decode_requests(line, self.bridge.inbox)

    def _take_answers(self) -> None:
        """Moves the answers of one tick over."""
        ids = np.flatnonzero(self.bridge.answered)
        if not len(ids):
            return
        out = self.bridge.outbox
        buffers = self.buffers
        if buffers.image is not None and out.image is not None:
            buffers.image[ids] = out.image[ids]
        if self.through_codec:
            line = self._engine_codec.encode_states(
                out.obs, out.rewards, out.dones, out.truncated, ids.astype(np.int32), out.infos, out.masks
            )
            self.lines.append(("<", line))
            self._codec.decode_states(line, buffers)
        else:
            self._copy_answers(ids)
        self.bridge.answered[:] = 0
        for row in ids.tolist():
            out.infos.pop(row, None)

    def _copy_answers(self, rows: NDArray[np.intp]) -> None:
        out = self.bridge.outbox
        buffers = self.buffers
        for name in ("obs", "rewards", "dones", "truncated", "masks"):
            getattr(buffers, name)[rows] = getattr(out, name)[rows]
        buffers.infos.update({row: dict(out.infos[row]) for row in rows.tolist() if row in out.infos})
        before = buffers.pending.copy()
        buffers.pending[rows] = 0
        if self.spec.groups:
            new = rows[before[rows] == 2]  # of agents that were not asked these mean nothing
            for values in (buffers.rewards, buffers.dones, buffers.truncated):
                values[new] = 0
            end_answers(self.spec, buffers, before)
