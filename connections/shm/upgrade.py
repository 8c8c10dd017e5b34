"""The trainer's side of the upgrade from text (docs/shared-memory.md, section 3): may the offer be taken, and is it?"""

from __future__ import annotations

import time
from dataclasses import replace

from ue_rl.connections.tcp.link import Link
from ue_rl.errors import SegmentInvalid, UnsupportedByEngine
from ue_rl.shm.memory import StepMemory
from ue_rl.shm.offer import accept_line, refusal
from ue_rl.spec import EnvSpec


class UpgradeRefused(Exception):
    """Why a session cannot move to shared memory; it goes on in text."""

    def as_error(self) -> UnsupportedByEngine:
        """For a caller who wanted shared memory and nothing else."""
        return UnsupportedByEngine(
            "no shared memory with this engine", fault="caller", field="transport", expected="shared memory",
            got=str(self), cure="start the engine on this machine with shared memory on offer "
            "(`ue-rl serve --shm`, ShmUpgrader), or connect with transport='auto'",
        )  # fmt: skip


def check_same(memory: StepMemory, spec: EnvSpec) -> None:
    """Raises SegmentInvalid where the segment's CONFIG line is not the handshake's."""
    offered, written = replace(spec, shm=None), memory.spec()
    if written != offered:
        raise SegmentInvalid(
            "the segment was made for another session", fault="engine", field="CONFIG", expected=offered, got=written
        )


def propose(link: Link, memory: StepMemory, seconds: float) -> None:
    """Tells the engine that its segment was mapped, and reads its answer.

    Raises:
        UpgradeRefused: it refuses. EngineDisconnected, EngineTimeout, HandshakeError.
    """
    deadline = time.monotonic() + seconds
    link.send(accept_line(memory.header.proof), deadline)
    start, end = link.next_span(deadline)
    why = refusal(bytes(link.lines.data[start:end]))
    if why is not None:
        raise UpgradeRefused(why)
