"""The replay log: the trace of a scene's decisions and of what its world was like after each tick.

The form of the file, and what reads and writes it, is that of all traces (ue_rl/protocol/traces/). It is written tick
by tick, and can be read at any time. Messages:

    EPISODE  seed; hash: the world's
    ACTION   tick, agent_id, tool, params, reasoning: a decision
    TICKS    tick, hash, metrics: after it
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ue_rl.protocol.traces.file import MessageKind, TraceMessage
from ue_rl.protocol.traces.reading import Trace, require_no_earlier
from ue_rl.protocol.traces.writing import TraceWriter
from ue_rl.system.errors import ReplayInvalid, shorten

SIDE = "arena"
_EARLIER = b"\x82\xa8metadata"  # how a file of the form before this one begins, MessagePack
_FACTS: dict[MessageKind, dict[str, Any]] = {
    MessageKind.EPISODE: {"seed": (int, type(None)), "hash": str},
    MessageKind.ACTION: {"agent_id": str, "tool": str, "params": dict, "reasoning": str},
    MessageKind.TICKS: {"tick": int, "hash": str},
}


class ReplayWriter:
    """Writes a log; what cannot be written is said once, and ends the log, not the game.

    Args:
        path: of the file; what was in it is replaced. seed: of the first episode. tick_rate: of the game. scene: its
            name, so that `ue-rl arena replay` finds it.

    Attributes:
        trace: what writes it.

    Raises:
        ConfigurationError: the file cannot be written.
    """

    def __init__(self, path: Path | str, seed: int | None, tick_rate: float = 60.0, scene: str = "") -> None:
        self.trace = TraceWriter(path, None, SIDE, about={"seed": seed, "tick_rate": tick_rate, "scene": scene})

    def began(self, seed: int | None, digest: str) -> None:
        """An episode."""
        self.trace.add(MessageKind.EPISODE, {"seed": seed, "hash": digest})

    def decided(self, tick: int, agent_id: str, decision: Mapping[str, Any]) -> None:
        """Tool, params and reasoning of an agent's decision, which led to this tick."""
        self.trace.add(MessageKind.ACTION, {"tick": tick, "agent_id": agent_id, **decision})

    def ticked(self, tick: int, digest: str, metrics: Mapping[str, Any]) -> None:
        """The world after a tick; until then all is on the disk."""
        self.trace.add(MessageKind.TICKS, {"tick": tick, "hash": digest, "metrics": dict(metrics)})
        self.trace.filled(time.perf_counter())

    def close(self) -> None:
        """Closes the file."""
        self.trace.close()


class ReplayLog:
    """A log to be read; nothing in it is trusted.

    Attributes:
        about: seed, tick_rate, scene.

    Raises:
        ReplayInvalid: not such a file, or its beginning was dropped.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        require_no_earlier(self.path, _EARLIER)
        self._trace = Trace(self.path)
        self._trace.require_side(SIDE)
        if not self._trace.begins:
            raise ReplayInvalid("the beginning of this log was dropped, so it cannot be played", field="file")
        self.about: dict[str, Any] = self._trace.header["about"]

    @property
    def end(self) -> str:
        """Why nothing more was read, once it was: "" where it is whole, else a sentence."""
        return self._trace.end

    def __iter__(self) -> Iterator[TraceMessage]:
        """Episodes, decisions and ticks, to the last message that is whole.

        Raises:
            ReplayInvalid: what no arena writes.
        """
        for message in self._trace:
            wanted = _FACTS.get(message.kind)
            facts = message.facts
            if wanted is None or not all(isinstance(facts.get(name), kind) for name, kind in wanted.items()):
                raise ReplayInvalid(
                    "the log has a message that no arena writes",
                    field="file",
                    got=f"{message.kind.name} {shorten(facts)} in {self.path}",
                )
            yield message
