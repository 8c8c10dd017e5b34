"""The replay log: MessagePack {metadata: {seed, tick_rate, version}, events: [{tick, type, data}]}.

It is written as the game plays, and can be read at any time: the number of events stands in four bytes that are written
anew after each event.
Types of events: "reset" (data: seed), "decision" (agent_id, tool, params, reasoning) and "tick" (the world's hash and
metrics after it).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ue_rl.system.errors import ConfigurationError
from ue_rl.system.messagepack import Unpacker, UnpackException, packb

VERSION = "0.1.0"
_ARRAY32 = b"\xdd"


class ReplayWriter:
    """Writes a log.

    Args:
        path: of the file; what was in it is replaced. seed: of the first episode. tick_rate: of the game. scene: its
            name, so that `ue-rl arena replay` finds it.
    """

    def __init__(self, path: Path | str, seed: int | None, tick_rate: float = 60.0, scene: str = "") -> None:
        self._pack = partial(packb, unicode_errors="surrogatepass")  # a behaviour may say half a character
        self._file = Path(path).open("wb")  # noqa: SIM115 - until close()
        more = {}
        if scene:
            more = {"scene": scene}
        metadata = {"seed": seed, "tick_rate": tick_rate, "version": VERSION, **more}
        self._file.write(b"\x82" + self._pack("metadata") + self._pack(metadata) + self._pack("events") + _ARRAY32)
        self._at = self._file.tell()
        self._count = 0
        self._file.write(struct.pack(">I", 0))

    def event(self, tick: int, kind: str, data: Mapping[str, Any]) -> None:
        """Adds an event; then the file is whole again."""
        self._file.write(self._pack({"tick": tick, "type": kind, "data": dict(data)}))
        self._count += 1
        end = self._file.tell()
        self._file.seek(self._at)
        self._file.write(struct.pack(">I", self._count))
        self._file.seek(end)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read_replay(path: Path | str) -> dict[str, Any]:
    """{metadata, events} of a log.

    Raises:
        ConfigurationError: not such a file.
    """
    try:
        data = Path(path).read_bytes()
        unpacker = Unpacker(max_buffer_size=len(data) + 1, strict_map_key=False, unicode_errors="surrogatepass")
        unpacker.feed(data)
        log = unpacker.unpack()
        if not (isinstance(log, dict) and isinstance(log["metadata"], dict) and isinstance(log["events"], list)):
            raise ValueError("no metadata and events")
        if not all(isinstance(event, dict) and {"tick", "type", "data"} <= set(event) for event in log["events"]):
            raise ValueError("an event without tick, type and data")
        if not all(isinstance(event["type"], str) for event in log["events"]):
            raise ValueError("an event whose type is no text")
    except (ValueError, KeyError, TypeError, OSError, UnpackException) as error:
        raise ConfigurationError("not a replay log", field="path", got=f"{path}: {error!r}") from error
    return log
