"""Reads a trace, frame by frame: sizes are bounded before anything is unpacked."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.protocol.traces.file import (
    ALL,
    FIRST,
    FORMAT,
    FRAME,
    HEAD,
    JSON_ONLY,
    LAST,
    LENGTHS,
    LONGEST,
    MESSAGES,
    VERSION,
    MessageKind,
    TraceMessage,
    answer_arrays,
)
from ue_rl.system.errors import ReplayInvalid, UeRlError
from ue_rl.system.files import require_file
from ue_rl.system.lazy import named_if_missing

with named_if_missing("a trace"):
    import zstandard


_SHOW = "ue-rl trace show FILE shows what is in it"
_HEADER = 8 << 20  # bytes that the first frame may unpack to


class Trace:
    """A trace to be read; nothing in it is trusted.

    Args:
        path: the file; the part before it, PATH.1, is read first where it belongs to it.

    Attributes:
        header: side, began, versions, handshake, about. spec: of the engine.
        begins: False: its beginning was dropped. end: why nothing more was read: "" where it is whole, else a sentence.

    Raises:
        ReplayInvalid: not a trace, of another version, or a header that cannot be.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.end = ""
        older = self.path.with_name(f"{self.path.name}.1")
        self._parts = [self.path]
        self.header = _header_of(self.path)
        if not self.header["whole"] and older.exists() and _header_of(older)["id"] == self.header["id"]:
            self._parts.insert(0, older)
        self.begins: bool = _header_of(self._parts[0])["whole"]
        self._spec: EnvSpec | None = None
        if not self.header["handshake"]:
            return
        try:
            self._spec = spec = decode_handshake(self.header["handshake"].encode())
        except UeRlError as error:
            raise ReplayInvalid("the trace's engine cannot be", field="handshake", got=error.message) from error
        self._names = answer_arrays(spec)
        like = StepBuffers.of(replace(spec, num_envs=1))
        self._like = {name: (getattr(like, name).dtype, getattr(like, name).shape[1:]) for name in self._names}
        self._like["actions"] = np.dtype(np.float32), (spec.act_size,)

    @property
    def spec(self) -> EnvSpec:
        """Of the engine.

        Raises:
            ReplayInvalid: it is the trace of a game without one.
        """
        if self._spec is None:
            raise ReplayInvalid("the trace is of no engine", field="handshake", got=str(self.path), cure=_SHOW)
        return self._spec

    def require_side(self, *sides: str) -> None:
        """Raises ReplayInvalid where it was written by others than these."""
        if self.header["side"] not in sides:
            raise ReplayInvalid(
                "the trace was recorded elsewhere than what plays it needs",
                field="side",
                expected=" or ".join(sides),
                got=self.header["side"],
                cure=_SHOW,
            )

    def __iter__(self) -> Iterator[TraceMessage]:
        """Every message to the last whole one; `end` then says whether there was more.

        Raises:
            ReplayInvalid: a frame that is no accident: it would unpack to more than it says, or holds no messages.
        """
        self.end = "it was cut off"
        for part in self._parts:
            with part.open("rb") as file:
                for mark, data in _frames(file, part):
                    if mark == LAST:
                        self.end = ""
                    elif mark == MESSAGES:
                        yield from self._messages(data, part)
                if damaged := _damage(file, part):
                    self.end = damaged

    def _messages(self, data: bytes, part: Path) -> Iterator[TraceMessage]:
        view = memoryview(data)
        at = 0
        while at < len(data):
            try:
                message, at = self._message(view, at)
            except (struct.error, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                raise ReplayInvalid(
                    "a frame of the trace holds no messages", field="file", got=f"{part}: {error}"
                ) from error
            yield message

    def _message(self, view: memoryview, at: int) -> tuple[TraceMessage, int]:
        number, when = HEAD.unpack_from(view, at)
        kind = MessageKind(number)
        if self._spec is None and kind not in JSON_ONLY:
            raise ValueError("arrays of no engine")
        at = at + HEAD.size
        envs = None
        arrays = {}
        facts: dict[str, Any] = {}
        if kind > MessageKind.ANSWER:
            length, *counts = LENGTHS[kind].unpack_from(view, at)
            at += LENGTHS[kind].size
            facts = {}
            if length:
                facts = dict(json.loads(bytes(view[at : at + length])))
            at += length
            ids: list[np.ndarray | None] = []
            for count in counts:
                if 0 < count < ALL:
                    one = np.frombuffer(view, "<i4", count, at).astype(np.intp)
                else:
                    one = np.zeros(0, np.intp)
                at += 4 * len(one)
                if len(one) and not (one.min() >= 0 and one.max() < self.spec.num_envs):
                    raise ValueError("an env that does not exist")
                if count == ALL:
                    ids.append(None)
                else:
                    ids.append(one)
            if ids:
                envs = ids[0]
            if kind is MessageKind.ASK:
                if ids[1] is None:
                    facts["resets"] = []
                else:
                    facts["resets"] = ids[1].tolist()
        if kind not in JSON_ONLY:
            asks = kind in (MessageKind.STEP, MessageKind.ASK)
            if envs is None:
                rows = self.spec.num_rows
            else:
                rows = len(envs) * self.spec.agents_per_env
            if asks:
                names = ["actions"]
            else:
                names = self._names
            for name in names:
                dtype, shape = self._like[name]
                count = rows * int(np.prod(shape, dtype=np.int64))
                if count:
                    arrays[name] = np.frombuffer(view, dtype, count, at).reshape(rows, *shape)
                else:
                    arrays[name] = np.zeros((rows, *shape), dtype)
                at += count * dtype.itemsize
        return TraceMessage(kind, when, envs, arrays, facts), at


def require_no_earlier(path: Path, mark: bytes) -> None:
    """Raises ReplayInvalid where `mark` stands at the begin of the file, as in those that were no traces yet."""
    try:
        require_file(path)
        with path.open("rb") as file:
            first = file.read(100)
    except OSError as error:
        raise ReplayInvalid("the file cannot be read", field="file", got=str(error)) from error
    if mark in first:
        raise ReplayInvalid(
            "a recording of an earlier form",
            field="file",
            expected="a trace",
            got=str(path),
            cure="play it with the ue_rl that has recorded it",
        )


def _header_of(path: Path) -> dict[str, Any]:
    try:
        require_file(path)
        with path.open("rb") as file:
            mark, data = next(_frames(file, path), (b"", b""))
        if mark == FIRST:
            header = json.loads(data)
        else:
            header = None
    except OSError as error:
        raise ReplayInvalid("the trace cannot be read", field="file", got=str(error)) from error
    except (ValueError, RecursionError):
        header = None
    texts = ("id", "side", "handshake", "began")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ReplayInvalid("not a trace", field="file", got=str(path), cure="ue-rl train --trace FILE writes one")
    if header.get("version") != VERSION:
        raise ReplayInvalid(
            "a trace of another version",
            field="version",
            expected=VERSION,
            got=header.get("version"),
            cure="play it with the ue_rl that has recorded it",
        )
    about = header.setdefault("about", {})
    maps = (header.get("versions"), about)
    if not all(isinstance(header.get(name), str) for name in texts) or not all(isinstance(one, dict) for one in maps):
        raise ReplayInvalid("the header of the trace is not complete", field="file", got=str(path))
    return {**header, "whole": header.get("whole") is True}


def _stored(file: IO[bytes]) -> Iterator[tuple[bytes, bytes, int]]:
    """(mark, what is stored, bytes that it unpacks to) of each frame that is whole; stands behind the last of them."""
    good = 0
    while len(head := file.read(FRAME.size)) == FRAME.size:
        mark, stored, unpacked, crc = FRAME.unpack(head)
        if mark not in (FIRST, MESSAGES, LAST) or stored > LONGEST or unpacked > LONGEST:
            break
        data = file.read(stored)
        if len(data) < stored or zlib.crc32(data, zlib.crc32(head[4:12])) != crc:
            break
        good = file.tell()
        yield mark, data, unpacked
    file.seek(good)


def _frames(file: IO[bytes], path: Path) -> Iterator[tuple[bytes, bytes]]:
    """(mark, unpacked) of each."""
    for mark, stored, unpacked in _stored(file):
        try:
            says = zstandard.frame_content_size(stored)
            if says != unpacked or unpacked > (_HEADER if mark == FIRST else LONGEST):
                raise ReplayInvalid(
                    "a frame of the trace unpacks to more than it may",
                    field="file",
                    expected=f"{unpacked} bytes",
                    got=f"{says} bytes in {path}",
                )
            if unpacked:
                data = zstandard.ZstdDecompressor(max_window_size=LONGEST).decompress(stored)
            else:
                data = b""
        except zstandard.ZstdError as error:
            raise ReplayInvalid(
                "a frame of the trace cannot be unpacked", field="file", got=f"{path}: {error}"
            ) from error
        yield mark, data


def _damage(file: IO[bytes], path: Path) -> str:
    """A sentence where something stands behind the last whole frame."""
    at = file.tell()
    if file.read(1):
        return f"{path} is damaged or cut off from byte {at} on"
    return ""
