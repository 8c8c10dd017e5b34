"""The parse and format loops behind ue_rl/protocol/text/codec.py, in Python; the twin of
ue_rl/protocol/text/_kernels.c.

`ue_rl.system.compiled.load("kernels")` chooses between the two. Both have the functions below, with the same results
and the same failure codes (docs/protocol.md is the grammar); the tests run both over the same traffic and compare every
bit. Regular expressions do the scanning, Python's correctly rounded float() the reading, NumPy's shortest float32 text
the writing. About 55 times slower than the compiled loops (benchmarks/README.md). No I/O, no state.

The decoders return the number of rows, negated where a row carries INFO, OPTIONS or SET; the encoders return the text.
A failure of the first bad row is the tuple (code, env, field, position in data, got): rows before it have been written,
the bad one and those behind it have not. TypeError, ValueError and IndexError are mistakes of the caller.

`form` is one of FORM_*, with AGENTS where a row is an agent's. `only_env` is the env whose own socket the line came on,
or -1. `layout` is None, or, with AGENTS and wherever masks have flags, int32 [agents of one env, 2 + n]: how many
numbers a row of this agent has, how many mask flags, and how many choices each of its numbers has, in order, padded
with zeros. Without AGENTS there is one line for all envs.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.text import kernel_forms as k
from ue_rl.protocol.text.kernels_rows import (
    OBSERVATION_FIELDS,
    ONE_NUMBER,
    REQUEST_FIELDS,
    STATE_FIELDS,
    RowFields,
    bad_number,
    check_agent,
    read_numbers,
    read_row,
    read_usual_row,
    row_env,
    rows_of,
    skip,
    to_float32,
)
from ue_rl.protocol.text.kernels_writing import (
    copy_parts,
    encode_actions,
    encode_states,
    find_no_choice,
    own_dicts,
    take_step,
    write_choices,
)

__all__ = [
    "copy_parts", "decode_requests", "decode_states", "encode_actions", "encode_states", "find_no_choice",
    "find_number", "own_dicts", "take_step", "write_choices",
]  # fmt: skip

_SEQ = re.compile(rb"[ \t\r]*SEQ[ \t\r]*=[ \t\r]*(.*)", re.IGNORECASE | re.DOTALL)
_SEQ_NUMBER = re.compile(rb"[0-9]{1,18}")


def _read_rlbase(data: bytes, at: int, end: int, size: int) -> RowFields:
    row = RowFields()
    values: list[np.float32] = []
    line = at
    while True:
        at = skip(data, at, end)
        n = len(values)
        if n == size + 1:
            if at >= end or data[at] not in b"01":
                raise k.Refused(k.BAD_FLAG, 0, k.F_DONE, at)
            row.done = data[at] == 0x31
            rest = skip(data, at + 1, end)
            if rest < end:
                more = data[rest : rest + 1].isdigit() or data[rest] == 0x2E
                raise k.Refused(k.BAD_FLAG if more else k.WRONG_COUNT, 0, k.F_OBS, line, -1)
            row.numbers, row.reward = np.array(values[:size]), values[size]
            return row
        match = ONE_NUMBER.match(data, at, end)
        if match is None or data[match.end() : match.end() + 1] == b"#":
            raise bad_number(data, at, end, 0, k.F_OBS if n < size else k.F_REW, n)
        values.append(to_float32([match.group()], at, 0, k.F_OBS if n < size else k.F_REW, n)[0])
        n += 1
        begun, at = at, skip(data, match.end(), end)
        if at >= end:
            raise k.Refused(k.WRONG_COUNT, 0, k.F_OBS, line, n - 2)
        mark = data[at : at + 1]
        if mark in (b",", b";"):
            if n == size + 1 and mark != b";":
                raise k.Refused(k.WRONG_COUNT, 0, k.F_OBS, line, -1)
            at += 1
        elif not (n == size and mark in (b"-", b"+")):
            field = k.F_OBS if n <= size else k.F_REW
            raise k.Refused(k.RUN_TOGETHER if mark == b"." else k.BAD_NUMBER, 0, field, begun, n)


def find_number(data: Any, start: int, end: int) -> tuple[int, int]:
    """(where the rows of the line data[start:end] end, the number of FEATURES=SEQ behind them).

    The number is 0 where the last field is not SEQ, and -1 where its value is not 1 to 18 digits, above 0.
    """
    line = bytes(data[start:end]).rstrip(b" \t\r;")
    at = line.rfind(b";")
    found = _SEQ.fullmatch(line, at + 1) if at >= 0 else None
    if found is None:
        return end, 0
    return start + at, (int(found[1]) if _SEQ_NUMBER.fullmatch(found[1]) else 0) or -1


def decode_states(
    data: Any,
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    pending: NDArray[np.uint8],
    spans: NDArray[np.int32],
    masks: NDArray[np.uint8] | None,
    layout: NDArray[np.int32] | None,
    start: int,
    end: int,
    form: int,
    only_env: int,
    number: int = 0,
) -> int | k.Failure:
    """Reads one line of state rows, data[start:end] without its newline, into the arrays of StepBuffers.

    With `form + OBSERVATIONS` rows need OBS alone, and may have ENV and RESET (docs/policy-server.md): other fields are
    ignored, `dones` receives RESET, and `spans[env, 0]` the row's number in the line.

    Args:
        obs: float32 [rows, obs_size]. rewards: float32 [rows]. dones, truncated: uint8 [rows].
        pending: uint8 [rows]; a row is accepted where it is not 0, and makes it 0. Where it is 2 the row's agent was
            not asked and has just come: its REW, DONE and TRUNC are read as 0.
        spans: int32 [rows, 2]; receives start and end of the text of INFO, (0, 0) where there is none.
        masks: uint8 [rows, flags]; receives MASK, ones where there is none; None or of no flags: MASK is not read.
        number: with NUMBERED, that the line must have behind its rows, 0 for none. Where it has another one, 0 is
            returned and nothing is read.
    """
    if form & k.NUMBERED:
        end, found = find_number(data, start, end)
        if found != number:
            return 0
    data = bytes(data[:end])
    rows, size = obs.shape
    of = k.Layout(rows, size, form, layout, masks)
    count = 0
    json = False
    numbered = form & k.NUMBERED
    alone, form = form & k.OBSERVATIONS != 0, form & 3
    known, needed = (OBSERVATION_FIELDS, (k.F_OBS,)) if alone else (STATE_FIELDS, (k.F_OBS, k.F_REW, k.F_DONE))
    known |= {k.F_MASK} if of.mask_size else set()
    known |= ({k.F_AGENT} if of.agents else set()) | ({k.F_SEQ} if numbered else set())
    try:
        for first, last in [(start, end)] if form == k.FORM_RLBASE else rows_of(data, start, end):
            if form == k.FORM_RLBASE:
                row, env = _read_rlbase(data, first, last, size), 0
            else:
                usual = None if alone or of.agents else read_usual_row(data, first, last, size)
                row = usual or read_row(data, first, last, -1 if of.agents else size, k.F_OBS, known)
                env = row_env(row, first, form, only_env, True, of, needed)
                if of.agents or row.mask:
                    check_agent(row, env, first, k.F_OBS, of)
                if row.truncated and not row.done:
                    raise k.Refused(k.TRUNC_WITHOUT_DONE, env, k.F_TRUNC, first)
            agent = row.agent if of.agents else 0
            to = env * of.per_env + agent
            if not pending[to]:
                raise _repeated(env, agent, first, of)
            if pending[to] == 2:
                row.reward, row.done, row.truncated = np.float32(0), False, False
            if row.mask and not row.done:
                none = of.without_choice(agent, row.mask)
                if none >= 0:
                    raise k.Refused(k.NO_CHOICE, env, k.F_MASK, row.mask_at, none)
            assert row.numbers is not None
            obs[to, : len(row.numbers)] = row.numbers
            rewards[to] = row.reward
            dones[to] = row.done or row.reset
            truncated[to] = row.truncated
            pending[to] = 0
            if masks is not None:
                masks[to] = 1
                masks[to, : len(row.mask)] = np.frombuffer(row.mask, np.uint8) == 0x31
            spans[to] = (count, 0) if alone else row.span
            json |= row.span[1] != 0
            count += 1
    except k.Refused as refused:
        return _with_env(refused.failure, only_env)
    return -count if json else count


def decode_requests(
    data: Any,
    actions: NDArray[np.float32],
    command: NDArray[np.uint8],
    seeds: NDArray[np.int64],
    spans: NDArray[np.int32],
    layout: NDArray[np.int32] | None,
    start: int,
    end: int,
    form: int,
    only_env: int,
    number: int = 0,
) -> int | k.Failure:
    """Reads one line of asks into the arrays of ActionBatch.

    Args:
        actions: float32 [rows, act_size]. seeds: int64 [rows], -1 where none is given.
        command: uint8 [rows]; a row is accepted where it is 0, and makes it 1 (step) or 2 (reset). With AGENTS a reset
            is of the env, and is written to all its rows, its seed and spans to the first.
        spans: int32 [rows, 4]; receives start and end of the text of OPTIONS, (0, 0) where there is none, and those of
            SET.
        number: see decode_states.
    """
    if form & k.NUMBERED:
        end, found = find_number(data, start, end)
        if found != number:
            return 0
    data = bytes(data[:end])
    rows, size = actions.shape
    of = k.Layout(rows, size, form, layout)
    count = 0
    json = False
    known = REQUEST_FIELDS | ({k.F_SET} if form & k.SETTINGS else set()) | ({k.F_AGENT} if of.agents else set())
    known |= {k.F_SEQ} if form & k.NUMBERED else set()
    form &= 3
    try:
        for first, last in [(start, end)] if form == k.FORM_RLBASE else rows_of(data, start, end):
            if form == k.FORM_RLBASE:
                row, env = _rlbase_request(data, first, last, size), 0
            else:
                row = read_row(data, first, last, -1 if of.agents else size, k.F_ACT, known)
                env = row_env(row, first, form, only_env, False, of, (k.F_ACT,))
                if of.agents:
                    check_agent(row, env, first, k.F_ACT, of)
            begin = env * of.per_env + (row.agent if of.agents and not row.reset else 0)
            into = slice(begin, begin + (of.per_env if row.reset else 1))
            if command[into].any():
                agent = begin - env * of.per_env + int(np.argmax(command[into] != 0))
                raise _repeated(env, agent, first, of)
            if not row.reset:
                assert row.numbers is not None
                actions[begin, : len(row.numbers)] = row.numbers
            command[into] = 2 if row.reset else 1
            seeds[begin] = row.seed
            spans[begin] = row.span + row.set_span
            json |= row.span[1] != 0 or row.set_span[1] != 0
            count += 1
    except k.Refused as refused:
        return _with_env(refused.failure, 0 if form == k.FORM_RLBASE else only_env)
    return -count if json else count


def _rlbase_request(data: bytes, at: int, end: int, size: int) -> RowFields:
    row = RowFields()
    at = skip(data, at, end)
    if data[at:end].rstrip(b" \t\r").upper() == b"RESET":
        row.reset = True
        return row
    numbers, stop = read_numbers(data, at, end, -1, False, 0, k.F_ACT)
    if stop < end:
        raise k.Refused(k.BAD_NUMBER, 0, k.F_ACT, stop, len(numbers))
    if len(numbers) != size:
        raise k.Refused(k.WRONG_COUNT, 0, k.F_ACT, at, len(numbers))
    row.numbers = numbers
    return row


def _repeated(env: int, agent: int, at: int, of: k.Layout) -> k.Refused:
    return k.Refused(k.REPEATED_ENV, env, *((k.F_AGENT, at, agent) if of.agents else (k.F_ENV, at, env)))


def _with_env(failure: k.Failure, only_env: int) -> k.Failure:
    code, env, field, at, got = failure
    return code, only_env if env < 0 <= only_env else env, field, at, got
