"""Replays: the trace of a session that plays its game again, to the bit (docs/realtime.md).

The form of the file, and what reads and writes it, is that of all traces (ue_rl/protocol/traces/). Of the game's
observations it has the checksums alone: whoever plays it has the game. Ticks are those of the episode that have been
made before. Messages:

    EPISODE  seed, options; sum: the checksum of the first observation
    ACTION   in the tick after `tick`: action, its numbers; or tool, a name, and arguments
    TICKS    so many, `tick`, have been made; sum: the checksum of the observation
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ue_rl.plugins.sessions.realtime.checks import MOST_TICKS
from ue_rl.plugins.sessions.realtime.observation import Action, SessionObservation, ToolCall
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.traces.file import MessageKind, TraceMessage
from ue_rl.protocol.traces.reading import Trace, require_no_earlier
from ue_rl.protocol.traces.writing import TraceWriter
from ue_rl.system.errors import ReplayInvalid, shorten

SIDE = "session"
_EARLIER = b"ue_rl replay"  # near the begin of a file of the form before this one, MessagePack
_MOST_WAITING = 100_000  # actions between two observations; a session's queue holds 16 for each tick
_HEADER: dict[str, tuple[type, ...]] = {
    "game": (str,), "kwargs": (dict,), "session_id": (str,), "hold": (bool,), "max_ticks": (int,),
    "tick_rate": (int, float, type(None)),
}  # fmt: skip


def checksum(observation: SessionObservation) -> int:
    """Of what an agent sees."""
    return zlib.crc32(observation.observation.astype("<f4").tobytes())


class ReplayRecorder:
    """Writes one session's file. Called by the session's world alone; what cannot be written is said once.

    Args:
        folder: made where there is none. session_id: names the file. spec: of the session.
        header: what the pool says of the game.

    Attributes:
        path: of the file. trace: what writes it.
    """

    def __init__(self, folder: Path, session_id: str, spec: EnvSpec, header: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', session_id)[:100]}.replay"
        self.trace = TraceWriter(self.path, spec, SIDE, about=header)

    def began(self, seed: int | None, options: Mapping[str, Any] | None, seen: SessionObservation) -> None:
        """An episode."""
        given = None
        if options is not None:
            given = dict(options)
        self.trace.add(MessageKind.EPISODE, {"seed": seed, "options": given, "sum": checksum(seen)})

    def acted(self, tick: int, action: Action) -> None:
        """An action was applied, after so many ticks."""
        facts: dict[str, Any] = {"tick": tick}
        if isinstance(action, ToolCall):
            facts["tool"] = action.tool
            facts["arguments"] = dict(action.arguments)
        else:
            facts["action"] = np.asarray(action, np.float32).tolist()
        self.trace.add(MessageKind.ACTION, facts)

    def reached(self, seen: SessionObservation) -> None:
        """Ticks were made."""
        self.trace.add(MessageKind.TICKS, {"tick": seen.tick, "sum": checksum(seen)})

    def close(self) -> None:
        """Once more would do nothing."""
        self.trace.close()


class ReplayTurn(NamedTuple):
    """One thing that the session was asked: an episode, some ticks, or tools between two ticks.

    Attributes:
        episode: which one, from 0 on. begins: it begins with this, with seed and options.
        ticks: so many; 0: tools alone. actions: that come with the first of them.
        sum: the checksum of what was seen behind the last of them; None: nobody looked.
    """

    episode: int
    begins: bool
    ticks: int
    actions: tuple[Action, ...] = ()
    seed: int | None = None
    options: dict[str, Any] | None = None
    sum: int | None = None


class Replay:
    """A file's content, read turn by turn; nothing in it is trusted, and no more than a turn is kept in memory.

    Attributes:
        header: game, kwargs, handshake, hold, max_ticks, tick_rate, session_id.
        episodes: how many begin in it.
        end: why nothing more was read: "" where it is whole, else a sentence.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.header: dict[str, Any] = {**trace.header["about"], "handshake": trace.header["handshake"]}
        self.episodes = 0
        self.end = ""

    @classmethod
    def load(cls, path: Path) -> Replay:
        """Reads a file once, so that it is known before the game begins whether it can be played.

        Raises:
            ReplayInvalid: not a replay, of another version, or not written by this library, or it cannot be read.
        """
        require_no_earlier(path, _EARLIER)
        trace = Trace(path)
        trace.require_side(SIDE)
        if not trace.begins:
            raise ReplayInvalid(
                "the beginning of this replay was dropped, so it cannot be played", field="file", got=str(path)
            )
        _require_header(trace.header["about"], path)
        replay = cls(trace)
        for turn in replay:
            replay.episodes += turn.begins
        replay.end = trace.end
        return replay

    def __iter__(self) -> Iterator[ReplayTurn]:
        """Every turn to the last message that is whole.

        Raises:
            ReplayInvalid: what no session writes.
        """
        reading = _Reading()
        for number, message in enumerate(self._trace):
            try:
                yield from reading.take(message)
            except ValueError as error:  # its frame is whole: whoever wrote it is not this library
                raise ReplayInvalid(
                    f"the replay has a message that no session writes: {error}",
                    field="file",
                    got=f"message {number} of {self._trace.path}",
                ) from None
        yield from reading.rest()


class _Reading:
    """Turns, message by message; what has a wrong type or is out of its place is a ValueError."""

    def __init__(self) -> None:
        self._episode = -1
        self._tick = 0  # of the last observation
        self._waiting: dict[int, list[Action]] = {}  # by the tick before which they were applied
        self._count = 0

    def take(self, message: TraceMessage) -> Iterator[ReplayTurn]:
        facts = message.facts
        if message.kind is MessageKind.EPISODE:
            yield from self.rest()
            yield self._begin(facts.get("seed"), facts.get("options"), facts.get("sum"))
            return
        if message.kind not in (MessageKind.ACTION, MessageKind.TICKS):
            raise ValueError("its kind is unknown")
        if self._episode < 0:
            raise ValueError("it comes before the first episode")
        tick: Any = facts.get("tick")
        if not _is_count(tick) or not self._tick <= tick <= self._tick + MOST_TICKS:
            raise ValueError(f"its tick does not follow tick {self._tick}")
        if message.kind is MessageKind.ACTION:
            self._waiting.setdefault(tick, []).append(_action_of(facts))
            self._count += 1
            if self._count > _MOST_WAITING:
                raise ValueError(f"there are more than {_MOST_WAITING} actions without a look")
        else:
            yield from self._ticks(tick, _sum_of(facts.get("sum")))

    def rest(self) -> Iterator[ReplayTurn]:
        """What was applied after the last look."""
        if self._waiting:
            last = max(self._waiting)
            yield from self._ticks(last, None)
            yield ReplayTurn(self._episode, False, 0, tuple(self._waiting.pop(last)))
        self._waiting.clear()

    def _begin(self, seed: Any, options: Any, total: Any) -> ReplayTurn:
        if not (seed is None or (_is_count(seed) and seed < 2**63)):
            raise ValueError("its seed is none")
        if not (options is None or isinstance(options, dict)):
            raise ValueError("its options are no object")
        self._episode += 1
        self._tick = self._count = 0
        return ReplayTurn(self._episode, True, 0, (), seed, options, _sum_of(total))

    def _ticks(self, end: int, total: int | None) -> Iterator[ReplayTurn]:
        at = self._tick
        for stop in [*sorted(tick for tick in self._waiting if at < tick < end), end]:
            if stop > at:
                actions = tuple(self._waiting.pop(at, ()))
                seen = None
                if stop == end:
                    seen = total
                yield ReplayTurn(self._episode, False, stop - at, actions, sum=seen)
                at = stop
        self._tick = end
        self._count = sum(map(len, self._waiting.values()))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0  # True is no count


def _sum_of(value: Any) -> int:
    if not _is_count(value) or value >= 2**32:
        raise ValueError("its checksum of an observation is none")
    return int(value)


def _action_of(facts: Mapping[str, Any]) -> Action:
    if "tool" in facts:
        tool = facts["tool"]
        arguments = facts.get("arguments")
        if not isinstance(tool, str):
            raise ValueError("its tool has no name")
        if not isinstance(arguments, dict):
            raise ValueError("its arguments are no object")
        return ToolCall(tool, arguments)
    numbers = facts.get("action")
    if not isinstance(numbers, list) or not all(type(number) in (int, float) for number in numbers):
        raise ValueError("its action is no row of numbers")
    try:
        return np.array(numbers, np.float32)
    except OverflowError as error:
        raise ValueError("its action is no row of numbers") from error


def _require_header(header: Mapping[str, Any], path: Path) -> None:
    """Raises ReplayInvalid, which names the field."""
    for name, kinds in _HEADER.items():
        value = header.get(name)
        right = isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
        if right and name in ("max_ticks", "tick_rate"):
            right = value is None or 0 <= value < math.inf
        if not right:
            raise ReplayInvalid(
                "the replay's header is not one that a session writes",
                field=name,
                expected=_named(kinds),
                got=f"{shorten(value)} in {path}",
            )


def _named(kinds: tuple[type, ...]) -> str:
    return " or ".join("nothing" if kind is type(None) else kind.__name__ for kind in kinds)
