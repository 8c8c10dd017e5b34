"""The text kernels as lines.c has them: a Codec's module whose functions ask a process."""

from __future__ import annotations

import struct
import subprocess
from typing import Any

import numpy as np

_DECODE_STATES, _DECODE_REQUESTS, _ENCODE_ACTIONS, _ENCODE_STATES, _FIND_NUMBER = range(5)
_CALL = struct.Struct("<11q")


class FarKernels:
    """What Codec and the tests call of ue_rl/protocol/text/kernels_pure.py, which documents it.

    Args:
        process: lines.c, with pipes.
    """

    __name__ = "far"

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to = process.stdin
        self._from = process.stdout

    def _ask(
        self,
        call: int,
        text: bytes,
        columns: list[Any],
        masks: Any,
        layout: Any,
        numbers: tuple[int, int, int, int],
    ) -> Any:
        """`numbers`: form, only_env, number, start. A failure's tuple, or the result's bytes."""
        rows, size, width, agents, flags = 0, 0, 0, 0, -1
        if columns:
            rows, size = columns[0].shape
        if masks is not None:
            flags = masks.size // max(rows, 1)
        if layout is not None:
            agents, width = layout.shape
        sent = [_CALL.pack(call, *numbers, len(text), rows, size, flags, agents, width), text]
        there = [array for array in (*columns, masks, layout) if array is not None]
        self._to.write(b"".join([*sent, *(array.tobytes() for array in there)]))
        self._to.flush()
        status, length = struct.unpack("<2q", self._read(16))
        answer = self._read(length)
        if call in (_DECODE_STATES, _DECODE_REQUESTS):
            for array in (*columns, *([] if masks is None else [masks])):
                array[...] = np.frombuffer(self._read(array.nbytes), array.dtype).reshape(array.shape)
        if status:
            return struct.unpack("<5q", answer)
        return answer

    def _read(self, size: int) -> bytes:
        got = self._from.read(size)
        assert len(got) == size, "the process has ended"
        return got

    def _decode(self, call: int, data: Any, columns: list[Any], masks: Any, layout: Any, *numbers: int) -> Any:
        start, end, form, only_env, *rest = numbers
        number = sum(rest)  # of one at most
        answer = self._ask(call, bytes(data[:end]), columns, masks, layout, (form, only_env, number, start))
        if isinstance(answer, bytes):
            return struct.unpack("<q", answer)[0]
        return answer

    def decode_states(self, data: Any, *args: Any) -> Any:
        return self._decode(_DECODE_STATES, data, list(args[:6]), args[6], args[7], *args[8:])

    def decode_requests(self, data: Any, *args: Any) -> Any:
        return self._decode(_DECODE_REQUESTS, data, list(args[:4]), None, args[4], *args[5:])

    def encode_actions(self, ids: Any, actions: Any, layout: Any, form: int, separate: bool, number: int = 0) -> Any:
        assert not separate
        rows = np.asarray(ids, np.int32).tobytes()
        return self._ask(_ENCODE_ACTIONS, rows, [actions], None, layout, (form, -1, number, 0))

    def encode_states(self, ids: Any, *args: Any) -> Any:
        rows = np.asarray(ids, np.int32).tobytes()
        return self._ask(_ENCODE_STATES, rows, list(args[:4]), args[4], args[5], (args[6], -1, sum(args[7:]), 0))

    def find_number(self, data: Any, start: int, end: int) -> Any:
        return struct.unpack("<2q", self._ask(_FIND_NUMBER, bytes(data[:end]), [], None, None, (0, -1, 0, start)))
