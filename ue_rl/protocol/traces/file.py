"""The file of a trace, the one log of a session: written in frames of a hundred kilobytes, read frame by frame.

What was written before its process was killed is read; a frame that is cut or damaged ends the trace, which says where.

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
    9  to 11, of a game that is played again itself, where 1 to 4 need none: an episode begins, somebody acts, ticks
       were made; likewise. `tick`: of the episode, how many were made before

The last frame, "UTRz", is empty: nothing was cut off.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spec import EnvSpec

FORMAT = "ue_rl trace"
VERSION = 1
AHEAD = "ahead"
PLAYED = ("trainer", "engine")  # whose traces hold every number
MOST = 1 << 30  # bytes that a trace may take on the disk, unless somebody says otherwise
FIRST = b"UTR1"
MESSAGES = b"UTRm"
LAST = b"UTRz"
FRAME = struct.Struct("<4sIII")
HEAD = struct.Struct("<Bd")
# By the kind: bytes of JSON, and how many envs.
LENGTHS = {3: struct.Struct("<III"), 4: struct.Struct("<II"), **dict.fromkeys(range(5, 12), struct.Struct("<I"))}
ALL = 2**32 - 1  # in the place of how many envs
Ids = Sequence[int] | NDArray[np.intp]
LONGEST = 64 << 20  # bytes that a frame may unpack to


class MessageKind(IntEnum):
    """Of a message; see the module's docstring."""

    STEP = 1
    ANSWER = 2
    ASK = 3
    PART = 4
    CALL = 5
    REPLY = 6
    ERROR = 7
    SESSION = 8
    EPISODE = 9
    ACTION = 10
    TICKS = 11


JSON_ONLY = frozenset(MessageKind) - {MessageKind.STEP, MessageKind.ANSWER, MessageKind.ASK, MessageKind.PART}


class TraceMessage(NamedTuple):
    """One message.

    Attributes:
        kind: what it is. at: seconds since the recording began.
        envs: intp, those that step, or that have answered; None: all.
        arrays: of their rows: actions, or obs, rewards and so on. facts: what stands in JSON.
    """

    kind: MessageKind
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
    agents = spec.agents_per_env
    ids = np.asarray(envs, np.intp)
    if agents == 1:
        return ids
    rows: NDArray[np.intp] = (ids[:, None] * agents + np.arange(agents)).ravel()
    return rows


def frame(mark: bytes, stored: bytes, unpacked: int) -> bytes:
    """A frame as it stands in the file."""
    sizes = struct.pack("<II", len(stored), unpacked)
    return FRAME.pack(mark, len(stored), unpacked, zlib.crc32(stored, zlib.crc32(sizes))) + stored
