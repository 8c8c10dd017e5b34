"""Replay files: what a session was asked, tick by tick, so that it can be played again to the bit (docs/realtime.md).

A file is a stream of MessagePack objects. The first is the header, a map with "checksum", the CRC-32 of the map packed
without it. Each further one is an array [kind, tick, a, b, checksum]; its checksum is the CRC-32 of its first four
packed, continued from the checksum before. Ticks are those of the episode that have been made before. Kinds:

    0  an episode begins: a = seed or nil, b = [options or nil, checksum of the observation]
    1  an action in numbers, in the tick after `tick`: a = float32, little endian
    2  a tool call, likewise: a = name, b = arguments
    3  so many ticks have been made: a = checksum of the observation

Options and arguments that MessagePack cannot carry are JSON, as text.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ue_rl.plugins.sessions.realtime.checks import MOST_TICKS
from ue_rl.plugins.sessions.realtime.observation import Action, SessionObservation, ToolCall
from ue_rl.system.errors import ReplayInvalid, shorten
from ue_rl.system.messagepack import OutOfData, Unpacker, packb

_log = logging.getLogger("ue_rl.plugins.sessions.realtime")
FORMAT = "ue_rl replay"
VERSION = 1
_RESET, _NUMBERS, _TOOL, _REACHED = range(4)
_FLUSHED_EVERY = 0.25  # seconds
_LONGEST = 64 << 20  # bytes of one object
_HEADER: dict[str, tuple[type, ...]] = {
    "game": (str,), "kwargs": (dict,), "handshake": (str,), "session_id": (str,), "hold": (bool,), "max_ticks": (int,),
    "tick_rate": (int, float, type(None)),
}  # fmt: skip


def checksum(observation: SessionObservation) -> int:
    """Of what an agent sees."""
    return zlib.crc32(observation.observation.astype("<f4").tobytes())


def _packable(values: Mapping[str, Any]) -> Any:
    try:
        packb(dict(values))
    except (ValueError, TypeError, OverflowError):  # half a character, a number beyond 64 bits, nested too deeply
        return json.dumps(dict(values), default=repr)
    return dict(values)


class ReplayRecorder:
    """Writes one session's file. Called by the session's world alone; what cannot be written is said once.

    Args:
        folder: made where there is none. session_id: names the file. header: what the pool says of the game.
    """

    def __init__(self, folder: Path, session_id: str, header: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', session_id)[:100]}.replay"
        self._file = self.path.open("wb")
        self._flushed = time.monotonic()
        facts = {"format": FORMAT, "version": VERSION, **header}
        self._last = zlib.crc32(packb(facts))
        self._write({**facts, "checksum": self._last})

    def began(self, seed: int | None, options: Mapping[str, Any] | None, seen: SessionObservation) -> None:
        """An episode."""
        given_options = None
        if options is not None:
            given_options = _packable(options)
        self._record(_RESET, 0, seed, [given_options, checksum(seen)])

    def acted(self, tick: int, action: Action) -> None:
        """An action was applied, after so many ticks."""
        if isinstance(action, ToolCall):
            self._record(_TOOL, tick, action.tool, _packable(action.arguments))
        else:
            self._record(_NUMBERS, tick, np.asarray(action, "<f4").tobytes(), None)

    def reached(self, seen: SessionObservation) -> None:
        """Ticks were made."""
        self._record(_REACHED, seen.tick, checksum(seen), None)
        if time.monotonic() - self._flushed > _FLUSHED_EVERY:
            self._flush()

    def close(self) -> None:
        """Once more would do nothing."""
        self._flush()
        self._file.close()

    def _record(self, *record: Any) -> None:
        self._last = zlib.crc32(packb(record), self._last)
        self._write([*record, self._last])

    def _write(self, what: Any) -> None:
        self._while_it_can(lambda: self._file.write(packb(what)))

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        self._while_it_can(self._file.flush)

    def _while_it_can(self, write: Callable[[], object]) -> None:
        try:
            if not self._file.closed:
                write()
        except OSError as error:
            _log.warning("%s is not recorded any further: %s", self.path, error)
            try:
                self._file.close()
            except OSError:
                _log.debug("%s could not be closed", self.path, exc_info=True)


@dataclass
class ReplayEpisode:
    """One of a replay.

    Attributes:
        actions: what was applied after so many ticks. sums: checksums of observations, by tick.
    """

    seed: int | None
    options: dict[str, Any] | None
    actions: dict[int, list[Action]] = field(default_factory=dict)
    sums: dict[int, int] = field(default_factory=dict)

    @property
    def ticks(self) -> int:
        """Whole ticks."""
        if self.actions:
            return max(*self.sums, *self.actions, 0)
        return max(self.sums)


@dataclass
class Replay:
    """A file's content.

    Attributes:
        header: game, kwargs, handshake, hold, max_ticks, tick_rate, session_id, format, version.
        whole: False: the file was cut off; its last tick is the last one that is whole.
    """

    header: dict[str, Any]
    episodes: list[ReplayEpisode]
    whole: bool

    @classmethod
    def load(cls, path: Path) -> Replay:
        """Reads a file.

        Raises:
            ReplayInvalid: not a replay, of another version, damaged, or not written by this library, or it cannot be
                read.
        """
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ReplayInvalid("the file cannot be read", field="file", got=str(error)) from error
        objects = _objects(path, data)
        header, last = next(objects, ({}, 0))
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ReplayInvalid("not a replay", field="file", got=str(path))
        if header.get("version") != VERSION:
            raise ReplayInvalid(
                "a replay of another version",
                field="version",
                expected=VERSION,
                got=header.get("version"),
                cure="play it with the ue_rl that has recorded it",
            )
        read = header.pop("checksum", None)
        total = _crc(header, 0, path, 0)
        if read != total:
            raise _damaged(path, 0)
        _require_header(header, path)
        reading = _Reading()
        for record, at in objects:
            if not isinstance(record, list) or len(record) != 5:
                raise _damaged(path, last)
            total = _crc(record[:4], total, path, last)
            if record[4] != total:
                raise _damaged(path, last)
            try:
                reading.take(*record[:4])
            except ValueError as error:  # its checksum is right: whoever wrote it is not this library
                raise ReplayInvalid(
                    f"the replay has a record that no session writes: {error}",
                    field="file",
                    got=f"{path}, from byte {last} on",
                ) from None
            last = at
        return cls(header, reading.episodes, last == len(data))


class _Reading:
    """Episodes, record by record; what has a wrong type or is out of its place is a ValueError."""

    def __init__(self) -> None:
        self.episodes: list[ReplayEpisode] = []
        self._tick = 0  # of the last observation

    def take(self, kind: Any, tick: Any, a: Any, b: Any) -> None:
        if type(kind) is not int or kind not in range(4):
            raise ValueError("its kind is unknown")
        if kind == _RESET:
            self._begin(tick, a, b)
            return
        if not self.episodes:
            raise ValueError("it comes before the first episode")
        if not _is_count(tick) or not self._tick <= tick <= self._tick + MOST_TICKS:
            raise ValueError(f"its tick does not follow tick {self._tick}")
        if kind == _REACHED:
            self.episodes[-1].sums[tick] = _sum_of(a)
            self._tick = tick
        else:
            self.episodes[-1].actions.setdefault(tick, []).append(_action_of(kind, a, b))

    def _begin(self, tick: Any, seed: Any, b: Any) -> None:
        if tick != 0 or not (seed is None or (_is_count(seed) and seed < 2**63)):
            raise ValueError("its tick is not 0, or its seed is none")
        if not isinstance(b, list) or len(b) != 2:
            raise ValueError("it has no options and checksum")
        options = None
        if b[0] is not None:
            options = _map_of(b[0])
        self.episodes.append(ReplayEpisode(seed, options, sums={0: _sum_of(b[1])}))
        self._tick = 0


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0  # True is no count


def _sum_of(value: Any) -> int:
    if not _is_count(value) or value >= 2**32:
        raise ValueError("its checksum of an observation is none")
    return int(value)


def _map_of(value: Any) -> dict[Any, Any]:
    """Options or arguments: a map, or JSON of one, as the recorder writes what MessagePack cannot carry."""
    try:
        if isinstance(value, str):
            found = json.loads(value)
        else:
            found = value
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError("its options or arguments are no object")
    return found


def _action_of(kind: int, a: Any, b: Any) -> Action:
    if kind == _TOOL:
        if not isinstance(a, str):
            raise ValueError("its tool has no name")
        arguments = _map_of(b)
        if not all(isinstance(key, str) for key in arguments):
            raise ValueError("its arguments have no names")
        return ToolCall(a, arguments)
    if not isinstance(a, bytes) or len(a) % 4 or b is not None:
        raise ValueError("its action is no row of float32")
    return np.frombuffer(a, "<f4").astype(np.float32)


def _require_header(header: Mapping[str, Any], path: Path) -> None:
    """Raises ReplayInvalid, which names the field."""
    for name, kinds in _HEADER.items():
        value = header.get(name)
        right = isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
        if right and name in ("max_ticks", "tick_rate"):
            right = value is None or 0 <= value < math.inf
        if right and name == "kwargs":
            right = all(isinstance(key, str) for key in header["kwargs"])
        if not right:
            raise ReplayInvalid(
                "the replay's header is not one that a session writes",
                field=name,
                expected=_named(kinds),
                got=f"{shorten(value)} in {path}",
            )


def _named(kinds: tuple[type, ...]) -> str:
    return " or ".join("nothing" if kind is type(None) else kind.__name__ for kind in kinds)


def _crc(value: Any, before: int, path: Path, at: int) -> int:
    try:
        return zlib.crc32(packb(value), before)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:  # such as nested too deeply
        raise _damaged(path, at) from error


def _objects(path: Path, data: bytes) -> Iterator[tuple[Any, int]]:
    """Each object of a stream, and the byte behind it; what is cut off at the end is left out."""
    # Options may have numbers as keys.
    reader = Unpacker(max_buffer_size=_LONGEST + len(data), strict_map_key=False)
    reader.feed(data)
    while True:
        begin = reader.tell()
        try:
            found = reader.unpack()
        except OutOfData:
            return
        except (ValueError, TypeError, RecursionError) as error:
            raise _damaged(path, begin) from error
        yield found, reader.tell()


def _damaged(path: Path, at: int) -> ReplayInvalid:
    return ReplayInvalid(
        "the replay is damaged", field="file", expected="checksums that agree", got=f"{path}, from byte {at} on"
    )
