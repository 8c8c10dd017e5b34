"""BatchedEngines: the usual step of several engines in one go, where their connections can do that together."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ue_rl.connections.base.batched_step import BatchedStep
from ue_rl.connections.engines.part import KEPT, EnginePart
from ue_rl.protocol.buffers import StepBuffers


class BatchedEngines:
    """Of one EnginesTransport.

    Attributes:
        together: asks and reads all engines, since `joined`; None: they cannot, or one of them was lost.
        again: the last request was made and answered in one go.
        took: latencies of all engines that they do not have yet.
    """

    def __init__(self) -> None:
        self.together: BatchedStep | None = None
        self.joined = self.again = False
        self.took: deque[tuple[float, ...]] = deque(maxlen=KEPT)

    def join(self, parts: Sequence[EnginePart], buffers: StepBuffers) -> None:
        """All engines are there; `buffers`: of all of them."""
        transports = [part.transport for part in parts if part.transport is not None]
        self.joined = True
        if len(parts) > 1 and len({type(transport) for transport in transports}) == 1:
            self.together = transports[0].join(transports, buffers)
            for part in parts:
                part.bind()

    def part_ways(self, parts: Sequence[EnginePart]) -> None:
        """What follows is engine by engine: gives every one the latencies of the steps before."""
        self.again = False
        for part, took in zip(parts, zip(*self.took, strict=True), strict=False):
            part.answered_after.extend(took)
        self.took.clear()
