"""MemoryPeer: a session in shared memory, over the trainer's own transport."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.diagnosing import of_malformed
from ue_rl.devtools.check.peer import AnsweredStates, Peer, Skip, Wrong
from ue_rl.protocol.buffers import Resets
from ue_rl.protocol.memory.header import CLIENT_FLAG, ENGINE_FLAG, FRAME_SEQ
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import (
    EngineDisconnected,
    EngineTimeout,
    MalformedMessage,
    NonFiniteValue,
    UeRlError,
    UnexpectedMessage,
    UnknownEnv,
)

if TYPE_CHECKING:
    from ue_rl.protocol.memory import StepMemory

MEMORY = "shared memory"
# docs/shared-memory.md, section 4
_ON_FUTEX = 1
_CANNOT_WAKE = 3
# seconds; the engine's process may wait for a processor meanwhile
_ANSWERED_WITHIN = 10.0
_WOKEN_WITHIN = 0.5
_NAMES: tuple[tuple[type[UeRlError], str], ...] = (
    (NonFiniteValue, "nan"), (UnknownEnv, "unknown-env"), (UnexpectedMessage, "two-answers"),
    (EngineTimeout, "no-answer"), (EngineDisconnected, "ends-session"),
)  # fmt: skip


def of_error(error: UeRlError) -> Wrong:
    """The mistake behind an error of a transport."""
    if isinstance(error, MalformedMessage):
        return Wrong(of_malformed(error), error.plain(), "", error.env_id)
    name = next((name for kind, name in _NAMES if isinstance(error, kind)), "shm-refused")
    text = error.plain()
    if error.field == "answered_seq":
        text += "; before frame_seq is counted answered_seq must be the action_seq that the frame answers"
    return Wrong(name, text, "", error.env_id)


def _until(happened: Callable[[], bool], seconds: float) -> bool:
    end = time.perf_counter() + seconds
    while not happened() and time.perf_counter() < end:
        time.sleep(0.001)
    return happened()


class MemoryPeer(Peer):
    """See Peer.

    Args:
        dial: makes a connected transport; closed with the peer.

    Raises:
        Wrong: the session cannot begin.
    """

    carrier = MEMORY
    partial = False

    def __init__(self, dial: Callable[[], Transport]) -> None:
        try:
            self._transport = dial()
        except UeRlError as error:
            raise Wrong("shm-refused", error.plain()) from error
        self.spec = self._transport.spec

    def _ask(self, actions: NDArray[np.float32] | None, steps: Sequence[int], resets: Resets) -> AnsweredStates:
        began = time.perf_counter()
        envs = resets.env_ids
        if actions is not None and len(steps) + len(envs or ()) < self.spec.num_envs:
            raise Skip("shared memory asks all envs")
        try:
            if actions is None:
                self._transport.reset(envs, resets.seeds, resets.options)
            else:
                due = envs or ()
                self._transport.send_actions(np.ascontiguousarray(actions), list(due))
            buffers = self._transport.receive()
        except UeRlError as error:
            raise of_error(error) from error
        return AnsweredStates.of(buffers, time.perf_counter() - began)

    def wakes(self) -> bool | None:
        """Is a trainer woken that waits on its futex for a frame, here that of a reset? None: there is no futex.

        Raises:
            Wrong.
        """
        transport = self._transport
        if sys.platform != "linux" or "memory" not in str(transport.describe().get("wiring")).partition(",")[2]:
            return None
        memory = cast("StepMemory", getattr(transport, "memory", None))
        if not memory.header.extended or memory.load_u32(ENGINE_FLAG) == _CANNOT_WAKE:
            return None
        before = memory.load_u64(FRAME_SEQ)
        memory.store_u32(CLIENT_FLAG, _ON_FUTEX)
        try:
            transport.reset()
            # Nobody waits for it in `receive`, which may block and then writes the flag itself.
            _until(lambda: memory.load_u64(FRAME_SEQ) != before, _ANSWERED_WITHIN)
            woken = _until(lambda: memory.load_u32(CLIENT_FLAG) != _ON_FUTEX, _WOKEN_WITHIN)
            memory.store_u32(CLIENT_FLAG, 0)
            transport.receive()
        except UeRlError as error:
            raise of_error(error) from error
        return woken

    def close(self) -> None:
        """See Peer."""
        self._transport.close()
