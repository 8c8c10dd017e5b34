"""The engines of a run as a view shows them: state, envs, restarts, step latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ue_rl.connections.engines.lifecycle import LifeState


@dataclass(frozen=True)
class EngineStatus:
    """One engine now.

    Attributes:
        number: from 0. num_envs: of it. restarts: how often it was started again or dialled again.
        latency: seconds from a request to its answer, (p50, p99) of the last steps; None before there were any.
    """

    number: int
    state: LifeState
    num_envs: int
    restarts: int
    latency: tuple[float, float] | None


class Fleet:
    """Asks a connection about its engines; may be asked from another thread while steps are taken.

    Args:
        transport: of one engine, or of several; also one that gives out a part of the agents.
    """

    def __init__(self, transport: Any) -> None:
        while not hasattr(transport, "lives") and hasattr(transport, "transport"):  # GroupTransport and the like
            transport = transport.transport
        self._transport = transport
        self._one = not hasattr(transport, "lives")

    @property
    def restarts(self) -> int:
        """Of all engines."""
        return sum(self._counts().values())

    def statuses(self) -> list[EngineStatus]:
        """Of every engine, in the order of their numbers."""
        transport = self._transport
        counts = self._counts()
        if self._one:
            return [EngineStatus(0, LifeState.PLAYING, transport.spec.num_envs, 0, None)]
        return [
            EngineStatus(life.engine, life.state, len(envs), counts.get(life.engine, 0), self._latency(life.engine))
            for life, envs in zip(transport.lives, transport.engine_envs, strict=True)
        ]

    def _counts(self) -> dict[int, int]:
        restarts = getattr(self._transport, "restarts", None)
        if restarts is not None:
            return dict(restarts.counts)
        return {}

    def _latency(self, engine: int) -> tuple[float, float] | None:
        latencies = getattr(self._transport, "latencies", None)
        seconds = ()
        if latencies is not None:
            seconds = latencies(engine)
        if not len(seconds):
            return None
        p50, p99 = np.percentile(seconds, [50, 99])
        return float(p50), float(p99)
