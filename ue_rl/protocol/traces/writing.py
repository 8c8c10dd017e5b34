"""Writes a trace: messages are gathered into frames, within the bytes that it may take on the disk."""

from __future__ import annotations

import itertools
import json
import logging
import os
import platform
import struct
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import encode_handshake
from ue_rl.protocol.traces.file import (
    ALL,
    FIRST,
    FORMAT,
    FRAME,
    HEAD,
    LAST,
    LENGTHS,
    LONGEST,
    MESSAGES,
    MOST,
    VERSION,
    Ids,
    MessageKind,
    answer_arrays,
    frame,
)
from ue_rl.system.durable import amount
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.lazy import named_if_missing
from ue_rl.system.versions import installed

with named_if_missing("a trace"):
    import zstandard


_log = logging.getLogger("ue_rl.protocol.traces")

_BATCH = 1 << 17  # bytes of a frame as a rule
_PATIENCE = 0.5  # seconds that a message may wait for its frame
_own = threading.local()
_PACKAGES = ("ue_rl", "numpy", "stable-baselines3", "torch", "gymnasium")


class TraceWriter:
    """Writes a trace; what cannot be written is said once, and ends the trace, not the session.

    Args:
        path: the file; one that is there is replaced. spec: of the engine; None: there is none, and no arrays.
        side: whose, such as "trainer" or "engine".
        limit: bytes on the disk. Where they do not suffice the oldest half goes: it is kept as PATH.1 meanwhile.
        about: what else the header says, as JSON can.

    Attributes:
        pieces: what the next frame holds; append bytes of whole messages, and call `filled` after it.

    Raises:
        ConfigurationError: the file cannot be written, the limit is below 1 MB, or a step does not fit into a frame.
    """

    def __init__(
        self,
        path: str | Path,
        spec: EnvSpec | None,
        side: str,
        limit: int = MOST,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self.pieces: list[bytes] = []
        size = 2 * HEAD.size
        handshake = ""
        if spec is not None:
            buffers = StepBuffers.of(replace(spec, num_envs=1))
            agent = sum(getattr(buffers, name).nbytes for name in answer_arrays(spec))
            agent += 4 * spec.act_size * len(buffers.obs)
            size += agent * spec.num_envs
            handshake = encode_handshake(replace(spec, shm=None)).decode().strip()
        if size > LONGEST // 2 or limit < 1_000_000:
            raise ConfigurationError(
                "a trace cannot be written",
                field="trace",
                got=f"{amount(size)} a step, {amount(limit)} in all",
                expected=f"steps of at most {amount(LONGEST // 2)}, and 1 MB or more in all",
            )
        self.every = max(2 * _BATCH // size, 1)  # messages of a frame
        self._limit = limit // 2
        self._written = 0
        self._added = 0  # bytes since the last frame that `add` has gathered
        self._closed = False
        self._dropped = False
        self._header = {
            "format": FORMAT, "version": VERSION, "id": uuid.uuid4().hex, "side": side, "whole": True,
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "handshake": handshake, "versions": versions(), "about": dict(about or {}),
        }  # fmt: skip
        self.began = time.perf_counter()
        self.due = self.began + _PATIENCE
        self._older = self.path.with_name(f"{self.path.name}.1")
        try:
            self._older.unlink(missing_ok=True)
            self._file: IO[bytes] | None = self.path.open("wb")
            self._begin(self._file)
        except OSError as error:
            raise ConfigurationError("a trace cannot be written", field="trace", got=str(error)) from error

    def ask(self, steps: Ids, resets: Ids, facts: Mapping[str, Any], actions: NDArray[np.float32]) -> None:
        """A request that is not the usual one; `actions` of the rows of the envs that step."""
        self.add(MessageKind.ASK, facts, (len(steps), len(resets)), (steps, resets), actions)

    def part(self, envs: Ids | None, facts: Mapping[str, Any], *arrays: NDArray[Any]) -> None:
        """An answer that is not the usual one; `arrays` of the rows of these envs."""
        if envs is None:
            size = ALL
        else:
            size = len(envs)
        self.add(MessageKind.PART, facts, (size,), () if envs is None else (envs,), *arrays)

    def called(self, line: str, answer: str) -> None:
        """A call, and its answer."""
        self.add(MessageKind.CALL, {"line": line})
        self.add(MessageKind.REPLY, {"line": answer})

    def add(
        self,
        kind: MessageKind,
        facts: Mapping[str, Any],
        counts: tuple[int, ...] = (),
        ids: Sequence[Ids] = (),
        *arrays: NDArray[Any],
    ) -> None:
        """A message of any kind but the two usual ones, at this moment."""
        text = b""
        if facts:
            text = _encode(facts).encode()
        now = time.perf_counter()
        pieces = self.pieces
        pieces += (HEAD.pack(kind, now - self.began), LENGTHS[kind].pack(len(text), *counts), text)
        for each in ids:
            if len(each):
                pieces.append(struct.pack(f"<{len(each)}i", *each))  # of one id faster than by NumPy
        for array in arrays:
            pieces.append(array.tobytes())
            self._added += array.nbytes
        self._added += len(text)
        if now >= self.due or self._added > _BATCH:
            self.filled(now)

    def filled(self, now: float) -> None:
        """Writes what there is, as a frame."""
        self.due = now + _PATIENCE
        data = b"".join(self.pieces)
        self.pieces.clear()
        self._added = 0
        if data and not self._closed:
            self._put(data)

    def close(self) -> None:
        """Writes the rest; idempotent."""
        if not self._closed:
            self.filled(time.perf_counter())
            self._closed = True
            self._finish()

    def _put(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            if len(data) > LONGEST:
                raise ValueError(f"a message of {amount(len(data))} is too long")
            if self._written > self._limit:
                self._turn_over()
            self._frame(self._file, MESSAGES, data)
            self._file.flush()
        except (OSError, ValueError, zstandard.ZstdError) as error:
            _log.warning("%s is not recorded any further: %s", self.path, error)
            self._let_go()

    def _finish(self) -> None:
        if self._file is not None:
            try:
                self._frame(self._file, LAST, b"")
            except OSError as error:
                _log.warning("the end of %s could not be written: %s", self.path, error)
            self._let_go()

    def _begin(self, file: IO[bytes]) -> None:
        self._written = 0
        self._frame(file, FIRST, json.dumps(self._header, default=_plain).encode())

    def _frame(self, file: IO[bytes], mark: bytes, data: bytes) -> None:
        stored = _compressor().compress(data)
        file.write(frame(mark, stored, len(data)))
        self._written += FRAME.size + len(stored)

    def _turn_over(self) -> None:
        assert self._file is not None
        self._file.close()
        if self._older.exists() and not self._dropped:
            self._dropped = True
            _log.warning("%s: the oldest messages are dropped, as there are more than it may take", self.path)
        os.replace(self.path, self._older)
        self._header["whole"] = False
        self._file = self.path.open("wb")
        self._begin(self._file)

    def _let_go(self) -> None:
        file = self._file
        self._file = None
        try:
            if file is not None:
                file.close()
        except OSError:
            _log.debug("%s could not be closed", self.path, exc_info=True)


def keep_before(path: Path) -> Path | None:
    """Gives the trace `path`, of a run that goes on, another name: PATH.before-N; that name, None where there is none.

    Raises:
        ConfigurationError: it cannot be renamed.
    """
    if not path.exists():
        return None
    names = (path.with_name(f"{path.name}.before-{number}") for number in itertools.count(1))
    kept = next(name for name in names if not name.exists())
    try:
        path.rename(kept)
        older = path.with_name(f"{path.name}.1")
        if older.exists():
            older.rename(kept.with_name(f"{kept.name}.1"))
    except OSError as error:
        raise ConfigurationError("a trace cannot be written", field="trace", got=str(error)) from error
    return kept


def _compressor() -> zstandard.ZstdCompressor:
    """This thread's: each takes hundreds of kilobytes, and a server may record a thousand sessions."""
    if not hasattr(_own, "compressor"):
        _own.compressor = zstandard.ZstdCompressor(level=1)
    found: zstandard.ZstdCompressor = _own.compressor
    return found


def versions() -> dict[str, str]:
    """Of what a session depends on, by name."""
    return {"python": platform.python_version(), "system": platform.platform()} | installed(*_PACKAGES)


def _plain(value: Any) -> Any:
    """What JSON does not know: NumPy's numbers and arrays."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return str(value)


_encode = json.JSONEncoder(default=_plain).encode  # json.dumps would make an encoder each time
