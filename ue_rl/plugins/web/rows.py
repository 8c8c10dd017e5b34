"""RowCodec: steps of a page, and their answers, as binary messages of its WebSocket (FEATURES=BINARY).

A page that says BINARY and SEQ in its handshake, and has no agents, may be asked for a step by one binary message. All
else stays text, as docs/protocol.md has it: the handshake, resets, a step together with a reset, resets asked ahead,
calls and ERROR. So a trainer without this form, which never asks in it, never sees it.

- What was asked in text is answered in text. What was asked in binary is answered in binary, or in text where a row has
  an INFO. First states of episodes that were asked ahead come as an answer of their own, likewise.
- All numbers are little-endian; a page on a machine where they are not does not say BINARY.
- A message is a head, and then columns, each of all rows, with nothing between them. A row is an env's. Rows of a step
  may stand in any order, and so may those of its answers. No env comes twice.
- A trainer, or a page, that gets another length, kind, number or env than those that are due, a number that is not
  finite, or a flag that is none, ends the session, as for text.

head        b"URB1"; uint32: kind (1: step, 2: answer), rows, numbers of a row (ACT or OBS), mask flags of a row, 0;
            uint64: the number of the request, as SEQ. 32 bytes.
a step      env ids uint32, actions float32 [rows, ACT]; choices are whole numbers, and there are no mask flags
an answer   env ids uint32, rewards float32, observations float32 [rows, OBS], ends uint8 (0; 1: DONE; 3: DONE and
            TRUNC), mask flags uint8 [rows, flags]. Without flags each choice is legal.

The numbers are those that text carries: of rewards and observations, the nearest float32.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text import kernel_forms as k
from ue_rl.protocol.text.refusals import nonfinite_action, nonfinite_state
from ue_rl.system.compiled import load
from ue_rl.system.errors import MalformedMessage, ProtocolError, RepeatedEnv, UnknownEnv, WrongCount

HEAD = struct.Struct("<6IQ")
MAGIC = int.from_bytes(b"URB1", "little")
STEP = 1
ANSWER = 2
_MOST_NUMBER = 10**18 - 1  # of a request: 18 digits, as in text
_DONE = 1
_TRUNC = 2
_SHOWN = 48  # bytes of a message that an error shows


class RowMessage(bytes):
    """A binary message, which a PageSocket sends as one."""


class Head(NamedTuple):
    """What a message's head says.

    Attributes:
        rows: of the message. marks: mask flags of a row; 0: it has none. number: of the request.
    """

    rows: int
    marks: int
    number: int


class RowCodec:
    """Reads and writes the binary messages of one session. No state, no I/O.

    Args:
        spec: the session's handshake; `carries` says whether it has this form.
        compiled: see ue_rl.protocol.text.Codec.

    Attributes:
        longest: bytes of the longest right answer.
    """

    def __init__(self, spec: EnvSpec, compiled: bool | None = None) -> None:
        self.spec = spec
        # A step touches NumPy's functions with cold caches, after a wait: then those of `decode_states` take 40 us.
        self._read_rows: Callable[..., int] | None = None
        if not spec.mask_size:
            self._read_rows = getattr(load("kernels", compiled), "read_rows", None)
        self._ids = np.arange(spec.num_envs, dtype="<u4").tobytes()
        self._going_on = bytes(spec.num_envs)  # the ends of envs of which no episode has ended
        self._first_choices = np.zeros(0, np.intp)  # among the mask's flags, those of each number of an action
        if spec.mask_size:
            counts = np.array(spec.action_spec.counts, np.intp)
            chosen = counts[counts > 0]
            self._first_choices = np.cumsum(chosen) - chosen
        self.longest = self._length(spec.num_envs, spec.mask_size)

    @staticmethod
    def carries(spec: EnvSpec) -> bool:
        """Has a session with this handshake binary steps? Not with agents: who is there differs from step to step."""
        return {"BINARY", "SEQ"} <= spec.features and spec.env_type is EnvType.MULTI and not spec.groups

    def _length(self, rows: int, marks: int) -> int:
        """Bytes of an answer."""
        return HEAD.size + rows * (4 + 4 + 4 * self.spec.obs_size + 1 + marks)

    # -- the trainer's side

    def encode_step(self, actions: NDArray[np.float32], number: int) -> RowMessage:
        """A step of all envs.

        Args:
            actions: float32 [num_envs, act_size]. number: of the request.

        Raises:
            ActionError: an action is NaN or infinite.
        """
        if not math.isfinite(np.vdot(actions, actions)):  # a sum of squares that is finite has finite terms
            wrong = np.argwhere(~np.isfinite(actions))
            if len(wrong):
                raise nonfinite_action(actions, int(wrong[0, 0]), int(wrong[0, 1]), self.spec)
        head = HEAD.pack(MAGIC, STEP, len(actions), self.spec.act_size, 0, 0, number)
        return RowMessage(b"".join((head, self._ids, np.ascontiguousarray(actions, "<f4").tobytes())))

    def read_usual(self, message: bytes, buffers: StepBuffers, number: int) -> int:
        """Reads an answer to request `number` as `decode_states`, if it is right and as usual; returns its rows, or 0.

        Where it returns 0 nothing was read, and `read_head` and `decode_states` read it, or say what is wrong.
        """
        if self._read_rows is None:
            return 0
        into = buffers
        return self._read_rows(message, into.obs, into.rewards, into.dones, into.truncated, into.pending, number)

    def read_head(self, message: bytes) -> Head:
        """The head of an answer, once it and the message's length are right.

        Raises:
            MalformedMessage: it is no such answer. WrongCount: a row has not the numbers or flags of the handshake.
        """
        if len(message) < HEAD.size:
            raise self._refused(MalformedMessage, message, "a binary message is cut off", f"{HEAD.size} bytes or more")
        magic, kind, rows, width, marks, nothing, number = HEAD.unpack_from(message)
        if magic != MAGIC:
            raise self._refused(MalformedMessage, message, "a binary message of another form", "URB1 at its begin")
        if kind != ANSWER or nothing != 0:
            raise self._refused(MalformedMessage, message, "a binary message is no answer", "kind 2, and 0 at byte 20")
        if width != self.spec.obs_size:
            expected = f"{self.spec.obs_size} numbers"
            raise self._refused(WrongCount, message, f"a row has {width} numbers", expected, field="OBS")
        if marks not in (0, self.spec.mask_size):
            expected = f"{self.spec.mask_size} flags, or none"
            raise self._refused(WrongCount, message, f"a row has {marks} mask flags", expected, field="MASK")
        if not 1 <= rows <= self.spec.num_envs:
            expected = f"1 to {self.spec.num_envs}"
            raise self._refused(MalformedMessage, message, f"a binary message has {rows} rows", expected)
        if not 1 <= number <= _MOST_NUMBER:
            expected = "1 to 18 digits, from 1"
            raise self._refused(MalformedMessage, message, "the number of an answer cannot be", expected, field="SEQ")
        length = self._length(rows, marks)
        if len(message) != length:
            what = f"a binary message of {rows} rows has {len(message)} bytes"
            raise self._refused(MalformedMessage, message, what, f"{length} bytes")
        return Head(rows, marks, number)

    def decode_states(self, message: bytes, head: Head, buffers: StepBuffers) -> int:
        """Reads an answer into `buffers`; returns its rows. Nothing is written before all of it was found right.

        Args:
            head: what `read_head` gave. buffers: each row must be of an env whose `pending` is 1, and clears it.

        Raises:
            UnknownEnv, RepeatedEnv, NonFiniteValue, MalformedMessage: a row is wrong.
        """
        rows = head.rows
        width = self.spec.obs_size
        at = HEAD.size
        own_ids = message[at : at + 4 * rows]
        ids = np.frombuffer(message, "<u4", rows, at)
        at += 4 * rows
        rewards = np.frombuffer(message, "<f4", rows, at)
        at += 4 * rows
        obs = np.frombuffer(message, "<f4", rows * width, at).reshape(rows, width)
        at += 4 * rows * width
        ends = message[at : at + rows]
        at += rows
        whole = own_ids == self._ids
        if not (whole and np.count_nonzero(buffers.pending) == rows):
            self._check_ids(message, ids, buffers)
        if not (math.isfinite(np.vdot(obs, obs)) and math.isfinite(np.vdot(rewards, rewards))):
            self._check_finite(ids, rewards, obs)
        flags = np.frombuffer(ends, np.uint8)
        if ends != self._going_on and not np.isin(flags, (0, _DONE, _DONE | _TRUNC)).all():
            self._refuse_ends(message, ids, flags)
        masks = None
        if head.marks:
            masks = np.frombuffer(message, np.uint8, rows * head.marks, at).reshape(rows, head.marks)
            self._check_masks(message, ids, flags, masks)
        where: slice | NDArray[np.intp] = slice(None)
        if not whole:
            where = ids.astype(np.intp)
        buffers.obs[where] = obs
        buffers.rewards[where] = rewards
        buffers.dones[where] = flags & _DONE
        buffers.truncated[where] = flags >> 1
        if masks is not None:
            buffers.masks[where] = masks
        elif self.spec.mask_size:
            buffers.masks[where] = 1
        buffers.pending[where] = 0
        return rows

    # -- what is wrong

    def _check_ids(self, message: bytes, ids: NDArray[np.uint32], buffers: StepBuffers) -> None:
        unknown = np.flatnonzero(ids >= self.spec.num_envs)
        if len(unknown):
            what = f"the env id does not exist: {ids[unknown[0]]}"
            raise self._refused(UnknownEnv, message, what, f"0 to {self.spec.num_envs - 1}", field="ENV")
        asked = buffers.pending[ids.astype(np.intp)] != 0
        first = np.zeros(len(ids), np.bool_)
        first[np.unique(ids, return_index=True)[1]] = True
        wrong = np.flatnonzero(~(asked & first))
        if len(wrong):
            what = "an env answered that was not asked, or answered twice"
            raise self._refused(RepeatedEnv, message, what, None, field="ENV", env_id=int(ids[wrong[0]]))

    def _check_finite(self, ids: NDArray[np.uint32], rewards: NDArray[np.float32], obs: NDArray[np.float32]) -> None:
        for field, numbers in ((k.F_OBS, obs), (k.F_REW, rewards[:, np.newaxis])):
            wrong = np.argwhere(~np.isfinite(numbers))
            if len(wrong):
                row = int(wrong[0, 0])
                error = nonfinite_state(obs, rewards, (k.NON_FINITE, row, field, 0, int(wrong[0, 1])), self.spec)
                error.env_id = int(ids[row])
                raise error

    def _refuse_ends(self, message: bytes, ids: NDArray[np.uint32], flags: NDArray[np.uint8]) -> None:
        row = int(np.flatnonzero((flags > (_DONE | _TRUNC)) | (flags == _TRUNC))[0])
        what = f"the end of an episode is written as {flags[row]}"
        if flags[row] == _TRUNC:
            what = "TRUNC=1 came with DONE=0"
        expected = "0, 1 (DONE) or 3 (DONE and TRUNC)"
        raise self._refused(MalformedMessage, message, what, expected, field="DONE", env_id=int(ids[row]))

    def _check_masks(
        self, message: bytes, ids: NDArray[np.uint32], flags: NDArray[np.uint8], masks: NDArray[np.uint8]
    ) -> None:
        wrong = np.argwhere(masks > 1)
        if len(wrong):
            what = "a flag is neither 0 nor 1"
            raise self._refused(MalformedMessage, message, what, None, field="MASK", env_id=int(ids[wrong[0, 0]]))
        choices = np.maximum.reduceat(masks, self._first_choices, axis=1)
        wrong = np.argwhere((choices == 0) & ((flags & _DONE) == 0)[:, np.newaxis])
        if len(wrong):
            what = f"an action mask leaves a number without a choice: number {wrong[0, 1]}"
            expected = "a choice at least for each number, unless DONE=1"
            raise self._refused(MalformedMessage, message, what, expected, field="MASK", env_id=int(ids[wrong[0, 0]]))

    @staticmethod
    def _refused(
        kind: type[ProtocolError],
        message: bytes,
        what: str,
        expected: str | None,
        field: str | None = None,
        env_id: int | None = None,
    ) -> ProtocolError:
        return kind(what, fault="engine", env_id=env_id, field=field, expected=expected, got=shown(message))


def shown(message: bytes) -> str:
    """A binary message for people: what its head says, or its first bytes."""
    length = f"{len(message)} bytes"
    if len(message) < HEAD.size or not message.startswith(b"URB1"):
        return f"{length}: {message[:_SHOWN].hex(' ')}"
    _, kind, rows, width, marks, _, number = HEAD.unpack_from(message)
    return f"{length}: kind {kind}, {rows} rows of {width} numbers and {marks} flags, SEQ {number}"
