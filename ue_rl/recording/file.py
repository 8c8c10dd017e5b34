"""The file of a trace: written in frames, a hundred kilobytes each, read frame by frame.

A replay of bridges/realtime/replay.py plays a game again, from actions and checksums. A trace needs no game, so it
holds every number, and has another form.

A frame is a mark of four bytes, the bytes stored, the bytes unpacked, the CRC-32 of both and of what is stored (u32
each, little endian), then one frame of Zstandard. The first, "UTR1", holds the header, a JSON object. Each further one,
"UTRm", holds whole messages: a kind (u8), seconds since the beginning (f64), and, by the kind,

    1  all envs were asked for a step: actions, float32 of all rows
    2  all envs answered: obs, rewards, dones, truncated, and masks, present, image where the engine has them
    3  a request of another kind: bytes of JSON, envs that step, envs that are reset (u32 each), the JSON (seeds,
       options, parameters; ahead: begun by the engine before they were asked), the ids of both (i32), actions of the
       envs that step
    4  another answer: bytes of JSON, envs (u32 each; 2**32 - 1: all), the JSON (infos, lost), their ids (i32), arrays
       as in 2, of the rows of these envs
    5  to 8: a call, its answer, an error, a session that begins: bytes of JSON (u32), the JSON

 The last frame, "UTRz", is empty: nothing was cut off.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import platform
import struct
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import StepBuffers
from ue_rl.errors import ConfigurationError, ReplayInvalid, UeRlError
from ue_rl.spec import EnvSpec
from ue_rl.system.durable import amount
from ue_rl.system.files import require_file
from ue_rl.system.lazy import named_if_missing
from ue_rl.system.versions import installed
from ue_rl.wire.handshake import decode_handshake, encode_handshake

with named_if_missing("a trace"):
    import zstandard

_log = logging.getLogger("ue_rl.recording")

FORMAT, VERSION = "ue_rl trace", 1
AHEAD = "ahead"
MOST = 1 << 30  # bytes that a trace may take on the disk, unless somebody says otherwise
_FIRST, _MESSAGES, _LAST = b"UTR1", b"UTRm", b"UTRz"
_FRAME = struct.Struct("<4sIII")
HEAD = struct.Struct("<Bd")
_LENGTHS = {3: struct.Struct("<III"), 4: struct.Struct("<II"), **dict.fromkeys(range(5, 9), struct.Struct("<I"))}
_ALL = 2**32 - 1
_Ids = Sequence[int] | NDArray[np.intp]
_BATCH = 1 << 17  # bytes of a frame as a rule
_LONGEST = 64 << 20  # bytes that a frame may unpack to
_HEADER = 8 << 20  # and the first one
_PATIENCE = 0.5  # seconds that a message may wait for its frame
_PACKAGES = ("ue_rl", "numpy", "stable-baselines3", "torch", "gymnasium")


class Kind(IntEnum):
    """Of a message; see the module's docstring."""

    STEP = 1
    ANSWER = 2
    ASK = 3
    PART = 4
    CALL = 5
    REPLY = 6
    ERROR = 7
    SESSION = 8


_JSON_ONLY = (Kind.CALL, Kind.REPLY, Kind.ERROR, Kind.SESSION)


class Message(NamedTuple):
    """One message.

    Attributes:
        kind: what it is. at: seconds since the recording began.
        envs: intp, those that step, or that have answered; None: all.
        arrays: of their rows: actions, or obs, rewards and so on. facts: what stands in JSON.
    """

    kind: Kind
    at: float
    envs: NDArray[np.intp] | None
    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]


def answer_arrays(spec: EnvSpec) -> list[str]:
    """The arrays of StepBuffers that an answer of such an engine consists of."""
    more = {"masks": spec.mask_size, "present": spec.groups, "image": spec.image}
    return ["obs", "rewards", "dones", "truncated", *(name for name, is_there in more.items() if is_there)]


def rows_of(envs: Any, spec: EnvSpec) -> NDArray[np.intp]:
    """The rows of these envs."""
    agents, ids = spec.agents_per_env, np.asarray(envs, np.intp)
    if agents == 1:
        return ids
    rows: NDArray[np.intp] = (ids[:, None] * agents + np.arange(agents)).ravel()
    return rows


class TraceWriter:
    """Writes a trace; what cannot be written is said once, and ends the trace, not the session.

    Args:
        path: the file; one that is there is replaced. spec: of the engine. side: "trainer" or "engine".
        limit: bytes on the disk. Where they do not suffice the oldest half goes: it is kept as PATH.1 meanwhile.

    Attributes:
        pieces: what the next frame holds; append bytes of whole messages, and call `filled` after it.

    Raises:
        ConfigurationError: the file cannot be written, the limit is below 1 MB, or a step does not fit into a frame.
    """

    def __init__(self, path: str | Path, spec: EnvSpec, side: str, limit: int = MOST) -> None:
        self.path, self.pieces = Path(path), [b""]
        self.pieces.clear()
        buffers = StepBuffers.of(replace(spec, num_envs=1))
        agent = sum(getattr(buffers, name).nbytes for name in answer_arrays(spec)) + 4 * spec.act_size * len(
            buffers.obs
        )
        size = agent * spec.num_envs + 2 * HEAD.size
        if size > _LONGEST // 2 or limit < 1_000_000:
            raise ConfigurationError(
                "a trace cannot be written", field="trace", got=f"{amount(size)} a step, {amount(limit)} in all",
                expected=f"steps of at most {amount(_LONGEST // 2)}, and 1 MB or more in all",
            )  # fmt: skip
        self.every = max(2 * _BATCH // size, 1)  # messages of a frame
        self._limit, self._written, self._closed, self._dropped = limit // 2, 0, False, False
        self._header = {
            "format": FORMAT, "version": VERSION, "id": uuid.uuid4().hex, "side": side, "whole": True,
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "handshake": encode_handshake(replace(spec, shm=None)).decode().strip(), "versions": versions(),
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

    def ask(self, steps: _Ids, resets: _Ids, facts: Mapping[str, Any], actions: NDArray[np.float32]) -> None:
        """A request that is not the usual one; `actions` of the rows of the envs that step."""
        self.add(Kind.ASK, facts, (len(steps), len(resets)), (steps, resets), actions)

    def part(self, envs: _Ids | None, facts: Mapping[str, Any], *arrays: NDArray[Any]) -> None:
        """An answer that is not the usual one; `arrays` of the rows of these envs."""
        self.add(Kind.PART, facts, (_ALL if envs is None else len(envs),), () if envs is None else (envs,), *arrays)

    def add(
        self, kind: Kind, facts: Mapping[str, Any], counts: tuple[int, ...] = (), ids: Sequence[_Ids] = (),
        *arrays: NDArray[Any],
    ) -> None:  # fmt: skip
        """A message of any kind but the two usual ones, at this moment."""
        text = json.dumps(facts, default=_plain).encode() if facts else b""
        now = time.perf_counter()
        pieces = self.pieces
        pieces += (HEAD.pack(kind, now - self.began), _LENGTHS[kind].pack(len(text), *counts), text)
        for each in ids:
            if len(each):
                pieces.append(struct.pack(f"<{len(each)}i", *each))  # of one id faster than by NumPy
        for array in arrays:
            pieces.append(array.tobytes())
        if now >= self.due or len(text) > _BATCH:
            self.filled(now)

    def filled(self, now: float) -> None:
        """Hands what there is over to the thread that writes; it waits where that one is far behind."""
        self.due = now + _PATIENCE
        data = b"".join(self.pieces)
        self.pieces.clear()
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
            if len(data) > _LONGEST:
                raise ValueError(f"a message of {amount(len(data))} is too long")
            if self._written > self._limit:
                self._turn_over()
            self._frame(self._file, _MESSAGES, data)
            self._file.flush()
        except (OSError, ValueError, zstandard.ZstdError) as error:
            _log.warning("%s is not recorded any further: %s", self.path, error)
            self._let_go()

    def _finish(self) -> None:
        if self._file is not None:
            try:
                self._frame(self._file, _LAST, b"")
            except OSError as error:
                _log.warning("the end of %s could not be written: %s", self.path, error)
            self._let_go()

    def _begin(self, file: IO[bytes]) -> None:
        self._zip = zstandard.ZstdCompressor(level=1)
        self._written = 0
        self._frame(file, _FIRST, json.dumps(self._header).encode())

    def _frame(self, file: IO[bytes], mark: bytes, data: bytes) -> None:
        stored = self._zip.compress(data)
        file.write(frame(mark, stored, len(data)))
        self._written += _FRAME.size + len(stored)

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
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        except OSError:
            _log.debug("%s could not be closed", self.path, exc_info=True)


def frame(mark: bytes, stored: bytes, unpacked: int) -> bytes:
    """A frame as it stands in the file."""
    sizes = struct.pack("<II", len(stored), unpacked)
    return _FRAME.pack(mark, len(stored), unpacked, zlib.crc32(stored, zlib.crc32(sizes))) + stored


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


class Trace:
    """A trace to be read. Nothing in it is trusted: sizes are bounded before anything is unpacked.

    Args:
        path: the file; the part before it, PATH.1, is read first where it belongs to it.

    Attributes:
        header: side, began, versions, handshake. spec: of the engine.
        begins: False: its beginning was dropped. end: why nothing more was read: "" where it is whole, else a sentence.

    Raises:
        ReplayInvalid: not a trace, of another version, or a header that cannot be.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.end = Path(path), ""
        older = self.path.with_name(f"{self.path.name}.1")
        self._parts = [self.path]
        self.header = _header_of(self.path)
        if not self.header["whole"] and older.exists() and _header_of(older)["id"] == self.header["id"]:
            self._parts.insert(0, older)
        self.begins: bool = _header_of(self._parts[0])["whole"]
        try:
            self.spec = decode_handshake(self.header["handshake"].encode())
        except UeRlError as error:
            raise ReplayInvalid("the trace's engine cannot be", field="handshake", got=error.message) from error
        self._names = answer_arrays(self.spec)
        like = StepBuffers.of(replace(self.spec, num_envs=1))
        self._like = {name: (getattr(like, name).dtype, getattr(like, name).shape[1:]) for name in self._names}
        self._like["actions"] = np.dtype(np.float32), (self.spec.act_size,)

    def __iter__(self) -> Iterator[Message]:
        """Every message to the last whole one; `end` then says whether there was more.

        Raises:
            ReplayInvalid: a frame that is no accident: it would unpack to more than it says, or holds no messages.
        """
        self.end = "it was cut off"
        for part in self._parts:
            with part.open("rb") as file:
                for mark, data in _frames(file, part):
                    if mark == _LAST:
                        self.end = ""
                    elif mark == _MESSAGES:
                        yield from self._messages(data, part)
                if damaged := _damage(file, part):
                    self.end = damaged

    def _messages(self, data: bytes, part: Path) -> Iterator[Message]:
        view, at = memoryview(data), 0
        while at < len(data):
            try:
                message, at = self._message(view, at)
            except (struct.error, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                raise ReplayInvalid(
                    "a frame of the trace holds no messages", field="file", got=f"{part}: {error}"
                ) from error
            yield message

    def _message(self, view: memoryview, at: int) -> tuple[Message, int]:
        number, when = HEAD.unpack_from(view, at)
        kind, at, envs, arrays = Kind(number), at + HEAD.size, None, {}
        facts: dict[str, Any] = {}
        if kind > Kind.ANSWER:
            length, *counts = _LENGTHS[kind].unpack_from(view, at)
            at += _LENGTHS[kind].size
            facts = dict(json.loads(bytes(view[at : at + length]))) if length else {}
            at += length
            ids = []
            for count in counts:
                one = (
                    np.frombuffer(view, "<i4", count, at).astype(np.intp) if 0 < count < _ALL else np.zeros(0, np.intp)
                )
                at += 4 * len(one)
                if len(one) and not (one.min() >= 0 and one.max() < self.spec.num_envs):
                    raise ValueError("an env that does not exist")
                ids.append(None if count == _ALL else one)
            if ids:
                envs = ids[0]
            if kind is Kind.ASK:
                facts["resets"] = [] if ids[1] is None else ids[1].tolist()
        if kind not in _JSON_ONLY:
            asks = kind in (Kind.STEP, Kind.ASK)
            rows = self.spec.num_rows if envs is None else len(envs) * self.spec.agents_per_env
            for name in ["actions"] if asks else self._names:
                dtype, shape = self._like[name]
                count = rows * int(np.prod(shape, dtype=np.int64))
                arrays[name] = (
                    np.frombuffer(view, dtype, count, at).reshape(rows, *shape)
                    if count
                    else np.zeros((rows, *shape), dtype)
                )
                at += count * dtype.itemsize
        return Message(kind, when, envs, arrays, facts), at

    def tail(self, limit: int) -> bytes:
        """A trace of the newest frames: about `limit` bytes at most, unless the last one alone is longer."""
        kept: list[bytes] = []
        size = 0
        for part in reversed(self._parts):
            with part.open("rb") as file:
                found = [(mark, stored, unpacked) for mark, stored, unpacked in _stored(file, part) if mark != _FIRST]
            for mark, stored, unpacked in reversed(found):
                size += _FRAME.size + len(stored)
                if size > limit and len(kept) > 1:
                    return self._headed(kept, False)
                kept.insert(0, frame(mark, stored, unpacked))
        return self._headed(kept, self.begins)

    def _headed(self, frames: Sequence[bytes], begins: bool) -> bytes:
        text = json.dumps({**self.header, "whole": begins}).encode()
        return b"".join([frame(_FIRST, zstandard.compress(text), len(text)), *frames])


def versions() -> dict[str, str]:
    """Of what a session depends on, by name."""
    return {"python": platform.python_version(), "system": platform.platform()} | installed(*_PACKAGES)


def _header_of(path: Path) -> dict[str, Any]:
    try:
        require_file(path)
        with path.open("rb") as file:
            mark, data = next(_frames(file, path), (b"", b""))
        header = json.loads(data) if mark == _FIRST else None
    except OSError as error:
        raise ReplayInvalid("the trace cannot be read", field="file", got=str(error)) from error
    except (ValueError, RecursionError):
        header = None
    texts = ("id", "side", "handshake", "began")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ReplayInvalid("not a trace", field="file", got=str(path), cure="ue-rl train --trace FILE writes one")
    if header.get("version") != VERSION:
        raise ReplayInvalid(
            "a trace of another version", field="version", expected=VERSION, got=header.get("version"),
            cure="play it with the ue_rl that has recorded it",
        )  # fmt: skip
    if not all(isinstance(header.get(name), str) for name in texts) or not isinstance(header.get("versions"), dict):
        raise ReplayInvalid("the header of the trace is not complete", field="file", got=str(path))
    return {**header, "whole": header.get("whole") is True}


def _stored(file: IO[bytes], path: Path) -> Iterator[tuple[bytes, bytes, int]]:
    """(mark, what is stored, bytes that it unpacks to) of each frame that is whole; stands behind the last of them."""
    good = 0
    while len(head := file.read(_FRAME.size)) == _FRAME.size:
        mark, stored, unpacked, crc = _FRAME.unpack(head)
        if mark not in (_FIRST, _MESSAGES, _LAST) or stored > _LONGEST or unpacked > _LONGEST:
            break
        data = file.read(stored)
        if len(data) < stored or zlib.crc32(data, zlib.crc32(head[4:12])) != crc:
            break
        good = file.tell()
        yield mark, data, unpacked
    file.seek(good)


def _frames(file: IO[bytes], path: Path) -> Iterator[tuple[bytes, bytes]]:
    """(mark, unpacked) of each."""
    for mark, stored, unpacked in _stored(file, path):
        try:
            says = zstandard.frame_content_size(stored)
            if says != unpacked or unpacked > (_HEADER if mark == _FIRST else _LONGEST):
                raise ReplayInvalid(
                    "a frame of the trace unpacks to more than it may", field="file", expected=f"{unpacked} bytes",
                    got=f"{says} bytes in {path}",
                )  # fmt: skip
            data = zstandard.ZstdDecompressor(max_window_size=_LONGEST).decompress(stored) if unpacked else b""
        except zstandard.ZstdError as error:
            raise ReplayInvalid(
                "a frame of the trace cannot be unpacked", field="file", got=f"{path}: {error}"
            ) from error
        yield mark, data


def _damage(file: IO[bytes], path: Path) -> str:
    """A sentence where something stands behind the last whole frame."""
    at = file.tell()
    return f"{path} is damaged or cut off from byte {at} on" if file.read(1) else ""


def _plain(value: Any) -> Any:
    """What JSON does not know: NumPy's numbers and arrays."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return str(value)
