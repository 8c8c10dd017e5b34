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
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ue_rl.bridges.realtime.observation import Action, Observation, ToolCall
from ue_rl.errors import ReplayInvalid
from ue_rl.system.messagepack import OutOfData, Unpacker, packb

_log = logging.getLogger("ue_rl.bridges.realtime")
FORMAT, VERSION = "ue_rl replay", 1
_RESET, _NUMBERS, _TOOL, _REACHED = range(4)
_FLUSHED_EVERY = 0.25  # seconds
_LONGEST = 64 << 20  # bytes of one object


def checksum(observation: Observation) -> int:
    """Of what an agent sees."""
    return zlib.crc32(observation.observation.astype("<f4").tobytes())


def _packable(values: Mapping[str, Any]) -> Any:
    try:
        packb(dict(values))
    except (ValueError, TypeError, OverflowError):  # half a character, a number beyond 64 bits, nested too deeply
        return json.dumps(dict(values), default=repr)
    return dict(values)


def _unpacked(values: Any) -> Any:
    return json.loads(values) if isinstance(values, str) else values


class Recorder:
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

    def began(self, seed: int | None, options: Mapping[str, Any] | None, seen: Observation) -> None:
        """An episode."""
        self._record(_RESET, 0, seed, [None if options is None else _packable(options), checksum(seen)])

    def acted(self, tick: int, action: Action) -> None:
        """An action was applied, after so many ticks."""
        if isinstance(action, ToolCall):
            self._record(_TOOL, tick, action.tool, _packable(action.arguments))
        else:
            self._record(_NUMBERS, tick, np.asarray(action, "<f4").tobytes(), None)

    def reached(self, seen: Observation) -> None:
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
class Episode:
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
        return max(*self.sums, *self.actions, 0) if self.actions else max(self.sums)


@dataclass
class Replay:
    """A file's content.

    Attributes:
        header: game, kwargs, handshake, hold, max_ticks, tick_rate, session_id, format, version.
        whole: False: the file was cut off; its last tick is the last one that is whole.
    """

    header: dict[str, Any]
    episodes: list[Episode]
    whole: bool

    @classmethod
    def load(cls, path: Path) -> Replay:
        """Reads a file.

        Raises:
            ReplayInvalid: not a replay, of another version, or damaged, or it cannot be read.
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
                "a replay of another version", field="version", expected=VERSION, got=header.get("version"),
                cure="play it with the ue_rl that has recorded it",
            )  # fmt: skip
        read = header.pop("checksum", None)
        total = zlib.crc32(packb(header))
        if read != total:
            raise _damaged(path, 0)
        episodes: list[Episode] = []
        for record, at in objects:
            if not isinstance(record, list) or len(record) != 5 or record[0] not in range(4):
                raise _damaged(path, last)
            total = zlib.crc32(packb(record[:4]), total)
            if record[4] != total or (record[0] != _RESET and not episodes):
                raise _damaged(path, last)
            last = at
            kind, tick, a, b, _ = record
            if kind == _RESET:
                episodes.append(Episode(a, _unpacked(b[0]), sums={0: b[1]}))
            elif kind == _REACHED:
                episodes[-1].sums[tick] = a
            else:
                action: Action = (
                    ToolCall(a, _unpacked(b)) if kind == _TOOL else np.frombuffer(a, "<f4").astype(np.float32)
                )
                episodes[-1].actions.setdefault(tick, []).append(action)
        return cls(header, episodes, last == len(data))


def _objects(path: Path, data: bytes) -> Iterator[tuple[Any, int]]:
    """Each object of a stream, and the byte behind it; what is cut off at the end is left out."""
    reader = Unpacker(max_buffer_size=_LONGEST + len(data))
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
