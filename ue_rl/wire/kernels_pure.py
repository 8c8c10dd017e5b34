"""The parse and format loops behind ue_rl/wire/codec.py, in Python; the twin of ue_rl/wire/_kernels.c.

`ue_rl.compiled.load("kernels")` chooses between the two. Both have the functions below, with the same results and the
same failure codes (docs/protocol.md is the grammar); the tests run both over the same traffic and compare every bit.
Regular expressions do the scanning, Python's correctly rounded float() the reading, NumPy's shortest float32 text the
writing. About 8 to 15 times slower than the compiled loops (docs/performance.md). No I/O, no state.

The decoders return the number of rows, negated where a row carries INFO, OPTIONS or SET; the encoders return the text.
A failure of the first bad row is the tuple (code, env, field, position in data, got): rows before it have been written,
the bad one and those behind it have not. TypeError, ValueError and IndexError are mistakes of the caller.

`form` is one of FORM_*, with AGENTS where a row is an agent's. `only_env` is the env whose own socket the line came on,
or -1. `layout` is None, or, with AGENTS and wherever masks have flags, int32 [agents of one env, 2 + n]: how many
numbers a row of this agent has, how many mask flags, and how many choices each of its numbers has, in order, padded
with zeros. Without AGENTS there is one line for all envs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORM_MULTI, FORM_SINGLE, FORM_RLBASE = 0, 1, 2
OBSERVATIONS = 4  # added to the form of decode_states: see there
SETTINGS = 8  # added to the form of decode_requests: SET is read
AGENTS = 16  # rows are an agent's, and say so with AGENT
(
    BAD_NUMBER,
    WRONG_COUNT,
    NON_FINITE,
    UNKNOWN_ENV,
    REPEATED_ENV,
    MISSING_FIELD,
    REPEATED_FIELD,
    BAD_FLAG,
    NOT_A_FIELD,
    TRUNC_WITHOUT_DONE,
    RUN_TOGETHER,
    BAD_INTEGER,
    OTHER_ENV,
    UNKNOWN_AGENT,
    RESET_OF_AGENT,
    NO_CHOICE,
) = range(1, 17)
FIELDS = (
    "OBS", "REW", "DONE", "ENV", "TRUNC", "INFO", "ACT", "SEED", "OPTIONS", "RESET", "MASK", "AGENT", "SET", "message",
)  # fmt: skip
(
    F_OBS, F_REW, F_DONE, F_ENV, F_TRUNC, F_INFO, F_ACT, F_SEED, F_OPTIONS, F_RESET, F_MASK, F_AGENT, F_SET, F_OTHER,
) = range(14)  # fmt: skip

Failure = tuple[int, int, int, int, int]

_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_ONE = re.compile(_NUMBER)
_COMMAS = re.compile(rb"[ \t\r]*%b[ \t\r]*(?:,[ \t\r]*%b[ \t\r]*)*" % (_NUMBER, _NUMBER))
_MIXED = re.compile(rb"[ \t\r]*%b[ \t\r]*(?:[,;][ \t\r]*%b[ \t\r]*)*" % (_NUMBER, _NUMBER))
_USUAL = re.compile(
    rb"OBS=(%b(?:,%b)*);REW=(%b);DONE=([01])(?:;ENV=([0-9]{1,5}))?(?:;TRUNC=([01]))?" % (_NUMBER, _NUMBER, _NUMBER)
)
_SEPARATOR = re.compile(rb"[,;]")
_KEY = re.compile(rb"([A-Za-z][A-Za-z0-9_]*)[ \t\r]*=")
_SPACE = re.compile(rb"[ \t\r]*")
_INTEGER = re.compile(rb"[0-9]+")
_FLAGS = re.compile(rb"[01]+")
_NON_FINITE = re.compile(rb"[+-]?(?:nan|inf)", re.IGNORECASE)
_RESET = re.compile(rb"[ \t\r]*reset", re.IGNORECASE)
_FIELD_IDS = {name.encode(): i for i, name in enumerate(FIELDS[:-1])}
_STATE_FIELDS = frozenset((F_OBS, F_REW, F_DONE, F_ENV, F_TRUNC, F_INFO))
_REQUEST_FIELDS = frozenset((F_ACT, F_ENV, F_SEED, F_OPTIONS))
_OBSERVATION_FIELDS = frozenset((F_OBS, F_ENV, F_RESET))
_SEQ = re.compile(rb"[ \t\r]*SEQ[ \t\r]*=[ \t\r]*(.*)", re.IGNORECASE | re.DOTALL)
_SEQ_NUMBER = re.compile(rb"[0-9]{1,18}")
_CODE_BEHIND = {
    F_DONE: BAD_FLAG, F_TRUNC: BAD_FLAG, F_RESET: BAD_FLAG, F_MASK: BAD_FLAG, F_ENV: BAD_INTEGER, F_SEED: BAD_INTEGER,
    F_AGENT: BAD_INTEGER, F_OTHER: NOT_A_FIELD,
}  # fmt: skip
_INTEGER_LIMIT = 2**63 - 1


class _Refused(Exception):
    def __init__(self, code: int, env: int, field: int, at: int, got: int = 0) -> None:
        self.failure: Failure = (code, env, field, at, got)


class _Row:
    # In the class: a row sets only what it has.
    numbers: NDArray[np.float32] | None = None
    reward = np.float32(0)
    env = seed = agent = -1
    done = truncated = reset = False
    span: tuple[int, int] = (0, 0)
    set_span: tuple[int, int] = (0, 0)
    mask = b""
    mask_at = numbers_at = 0

    def __init__(self) -> None:
        self.seen: set[int] = set()


class _Layout:
    """What decode_* and encode_* are told of rows: see the module's docstring.

    Raises:
        ValueError: masks, layout and the number of rows disagree.
    """

    def __init__(
        self, rows: int, size: int, form: int, layout: NDArray[np.int32] | None, masks: NDArray[np.uint8] | None = None
    ) -> None:
        self.agents = form & AGENTS != 0
        self.layout = layout
        self.mask_size = 0 if masks is None else masks.size // max(rows, 1)
        self.per_env = len(layout) if self.agents and layout is not None else 1
        if (self.agents or self.mask_size) and (layout is None or layout.shape[1] < 2 or len(layout) != self.per_env):
            raise ValueError("masks, layout and the number of rows disagree")
        if self.per_env < 1 or rows % self.per_env:
            raise ValueError("masks, layout and the number of rows disagree")
        self.envs, self.size = rows // self.per_env, size

    def numbers(self, agent: int) -> int:
        return int(self.layout[agent, 0]) if self.agents and self.layout is not None else self.size

    def flags(self, agent: int) -> int:
        return int(self.layout[agent, 1]) if self.mask_size and self.layout is not None else 0

    def without_choice(self, agent: int, mask: bytes) -> int:
        """The first number that `mask` leaves without a choice, or -1."""
        assert self.layout is not None
        at = 0
        for number, count in enumerate(self.layout[agent, 2:].tolist()):
            if count and b"1" not in mask[at : at + count]:
                return number
            at += count
        return -1


def _skip(data: bytes, at: int, end: int) -> int:
    match = _SPACE.match(data, at, end)
    return match.end() if match else at


def _bad_number(data: bytes, at: int, end: int, env: int, field: int, count: int) -> _Refused:
    """The failure for the text at `at`, where a number should stand."""
    match = _ONE.match(data, at, end)
    if _NON_FINITE.match(data, at, end) or (match and data[match.end() : match.end() + 1] == b"#"):
        return _Refused(NON_FINITE, env, field, at, count)
    return _Refused(BAD_NUMBER, env, field, at, count)


def _ahead(texts: list[bytes], index: int) -> int:
    """Bytes before the number `index` of a list."""
    return sum(len(text) + 1 for text in texts[:index]) + len(texts[index]) - len(texts[index].lstrip())


def _to_float32(texts: list[bytes], starts: int, env: int, field: int) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        values = np.array([float(t) for t in texts], np.float64).astype(np.float32)
    finite = np.isfinite(values)
    if not finite.all():
        bad = int(finite.argmin())
        raise _Refused(NON_FINITE, env, field, starts + _ahead(texts, bad), bad)
    return values


def _numbers(
    data: bytes, at: int, end: int, size: int, semicolons: bool, env: int, field: int
) -> tuple[NDArray[np.float32], int]:
    at = _skip(data, at, end)
    match = (_MIXED if semicolons else _COMMAS).match(data, at, end)
    if match is None:
        raise _bad_number(data, at, end, -1, field, 0)
    stop = match.end()
    texts = _SEPARATOR.split(match.group())
    values = _to_float32(texts, at, -1, field)
    tail = data[stop : stop + 1] if stop < end else b""
    if tail == b"#" and data[stop - 1] not in b" \t\r":
        raise _Refused(NON_FINITE, -1, field, at + _ahead(texts, len(texts) - 1), len(texts) - 1)
    if tail == b",":
        raise _bad_number(data, _skip(data, stop + 1, end), end, -1, field, len(texts))
    if tail == b";" and semicolons:
        after = _skip(data, stop + 1, end)
        if after < end and not _KEY.match(data, after, end):
            raise _bad_number(data, after, end, -1, field, len(texts))
    if tail and tail != b";" and not _KEY.match(data, stop, end):
        raise _Refused(BAD_NUMBER, -1, field, stop, len(texts))
    if size >= 0 and len(texts) != size:
        raise _Refused(WRONG_COUNT, env, field, at, len(texts))
    return values, stop


def _read_row(data: bytes, at: int, end: int, size: int, main: int, known: frozenset[int]) -> _Row:
    """`size`: numbers of a row; -1: whatever came, since AGENT says how many there should be."""
    row = _Row()
    while True:
        at = _skip(data, at, end)
        if at >= end:
            return row
        key = _KEY.match(data, at, end)
        if key is None:
            raise _Refused(NOT_A_FIELD, row.env, F_OTHER, at)
        field = _FIELD_IDS.get(key.group(1).upper(), F_OTHER)
        if field not in known:
            field = F_OTHER
        if field != F_OTHER and field in row.seen:
            raise _Refused(REPEATED_FIELD, row.env, field, at)
        row.seen.add(field)
        at, closed = _read_value(data, key.end(), end, size, main, field, row)
        at = _skip(data, at, end)
        if at >= end:
            return row
        if data[at] == 0x3B:  # ";"
            at += 1
        elif closed or not data[at : at + 1].isalpha():
            raise _Refused(_CODE_BEHIND.get(field, BAD_NUMBER), row.env, field, at)


def _read_usual_row(data: bytes, at: int, end: int, size: int) -> _Row | None:
    """A state row spelt as ue_rl writes it, in one match; None: leave it to `_read_row`, which knows all spellings."""
    match = _USUAL.fullmatch(data, at, end)
    if match is None:
        return None
    obs, reward, done, env, truncated = match.groups()
    texts = obs.split(b",")
    if len(texts) != size:
        return None
    with np.errstate(over="ignore"):
        values = np.array([*map(float, texts), float(reward)], np.float64).astype(np.float32)
    if not np.isfinite(values).all():
        return None
    row = _Row()
    row.numbers, row.reward = values[:size], values[size]
    row.done, row.truncated = done == b"1", truncated == b"1"
    row.seen = {F_OBS, F_REW, F_DONE}
    if env is not None:
        row.env = int(env)
        row.seen.add(F_ENV)
    return row


def _read_value(data: bytes, at: int, end: int, size: int, main: int, field: int, row: _Row) -> tuple[int, bool]:
    """Reads one field's value into `row`; returns (where it ends, must a separator follow)."""
    if field == main:
        if field == F_ACT:
            reset = _RESET.match(data, at, end)
            if reset:
                row.reset = True
                return reset.end(), True
        row.numbers_at = _skip(data, at, end)
        row.numbers, at = _numbers(data, at, end, size, field == F_OBS, row.env, field)
        return at, False
    if field == F_MASK:
        row.mask_at = _skip(data, at, end)
        flags = _FLAGS.match(data, row.mask_at, end)
        if flags is None:
            raise _Refused(BAD_FLAG, row.env, field, row.mask_at)
        row.mask = flags.group()
        return flags.end(), True
    if field == F_REW:
        at = _skip(data, at, end)
        match = _ONE.match(data, at, end)
        if match is None or data[match.end() : match.end() + 1] == b"#":
            raise _bad_number(data, at, end, row.env, field, 0)
        row.reward = _to_float32([match.group()], at, row.env, field)[0]
        return match.end(), False
    if field in (F_DONE, F_TRUNC, F_RESET):
        at = _skip(data, at, end)
        if at >= end or data[at] not in b"01":
            raise _Refused(BAD_FLAG, row.env, field, at)
        setattr(row, {F_DONE: "done", F_TRUNC: "truncated", F_RESET: "reset"}[field], data[at] == 0x31)
        return at + 1, True
    if field in (F_ENV, F_SEED, F_AGENT):
        match = _INTEGER.match(data, _skip(data, at, end), end)
        # Python's int() refuses a text of more than 4300 digits, however many of them are leading zeros.
        digits = match.group().lstrip(b"0") if match else b""
        if match is None or len(digits) > 19 or int(digits or b"0") > _INTEGER_LIMIT:
            raise _Refused(BAD_INTEGER, -1, field, at)
        setattr(row, {F_ENV: "env", F_SEED: "seed", F_AGENT: "agent"}[field], int(digits or b"0"))
        return match.end(), True
    stop = data.find(b";", at, end)
    stop = end if stop < 0 else stop
    if field == F_SET:
        row.set_span = (at, stop)
    elif field != F_OTHER:
        row.span = (at, stop)
    return stop, True


def _row_env(row: _Row, at: int, form: int, only_env: int, strict: bool, of: _Layout, needed: Iterable[int]) -> int:
    """The env of a keyed row, which is checked but for its agent. `strict`: on another env's socket it is refused."""
    for field in needed:
        if field not in row.seen:
            raise _Refused(MISSING_FIELD, row.env, field, at)
    if F_ENV not in row.seen:
        if only_env < 0 and form == FORM_MULTI:
            raise _Refused(MISSING_FIELD, -1, F_ENV, at)
        return max(only_env, 0)
    if row.env >= of.envs:
        raise _Refused(UNKNOWN_ENV, row.env, F_ENV, at, row.env)
    if strict and only_env >= 0 and row.env != only_env:
        raise _Refused(OTHER_ENV, only_env, F_ENV, at, row.env)
    return row.env


def _check_agent(row: _Row, env: int, at: int, main: int, of: _Layout) -> None:
    """Checks AGENT, and how many numbers and flags this agent has."""
    if of.agents:
        if row.reset and main == F_ACT:
            if F_AGENT in row.seen:
                raise _Refused(RESET_OF_AGENT, env, F_AGENT, at, row.agent)
        elif F_AGENT not in row.seen:
            raise _Refused(MISSING_FIELD, env, F_AGENT, at)
        elif row.agent >= of.per_env:
            raise _Refused(UNKNOWN_AGENT, env, F_AGENT, at, row.agent)
        elif row.numbers is None or len(row.numbers) != of.numbers(row.agent):
            raise _Refused(WRONG_COUNT, env, main, row.numbers_at, 0 if row.numbers is None else len(row.numbers))
    if row.mask and len(row.mask) != of.flags(max(row.agent, 0)):
        raise _Refused(WRONG_COUNT, env, F_MASK, row.mask_at, len(row.mask))


def _rows(data: bytes, start: int, end: int) -> Iterable[tuple[int, int]]:
    while True:
        bar = data.find(b"|", start, end)
        if bar < 0 or data[bar + 1 : min(bar + 2, end)] != b"|":
            yield start, end
            return
        yield start, bar
        start = bar + 2


def _read_rlbase(data: bytes, at: int, end: int, size: int) -> _Row:
    row = _Row()
    numbers: list[bytes] = []
    line = at
    while True:
        at = _skip(data, at, end)
        n = len(numbers)
        if n == size + 1:
            if at >= end or data[at] not in b"01":
                raise _Refused(BAD_FLAG, 0, F_DONE, at)
            row.done = data[at] == 0x31
            rest = _skip(data, at + 1, end)
            if rest < end:
                more = data[rest : rest + 1].isdigit() or data[rest] == 0x2E
                raise _Refused(BAD_FLAG if more else WRONG_COUNT, 0, F_OBS, line, -1)
            values = _to_float32(numbers, line, 0, F_OBS)
            row.numbers, row.reward = values[:size], values[size]
            return row
        match = _ONE.match(data, at, end)
        if match is None or data[match.end() : match.end() + 1] == b"#":
            raise _bad_number(data, at, end, 0, F_OBS if n < size else F_REW, n)
        _to_float32([match.group()], at, 0, F_OBS if n < size else F_REW)
        numbers.append(match.group())
        n += 1
        begun, at = at, _skip(data, match.end(), end)
        if at >= end:
            raise _Refused(WRONG_COUNT, 0, F_OBS, line, n - 2)
        mark = data[at : at + 1]
        if mark in (b",", b";"):
            if n == size + 1 and mark != b";":
                raise _Refused(WRONG_COUNT, 0, F_OBS, line, -1)
            at += 1
        elif not (n == size and mark in (b"-", b"+")):
            field = F_OBS if n <= size else F_REW
            raise _Refused(RUN_TOGETHER if mark == b"." else BAD_NUMBER, 0, field, begun, n)


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
    number: int = -1,
) -> int | Failure:
    """Reads one line of state rows, data[start:end] without its newline, into the arrays of StepBuffers.

    With `form + OBSERVATIONS` rows need OBS alone, and may have ENV and RESET (docs/policy-server.md): other fields are
    ignored, `dones` receives RESET, and `spans[env, 0]` the row's number in the line.

    Args:
        obs: float32 [rows, obs_size]. rewards: float32 [rows]. dones, truncated: uint8 [rows].
        pending: uint8 [rows]; a row is accepted where it is not 0, and makes it 0. Where it is 2 the row's agent was
            not asked and has just come: its REW, DONE and TRUNC are read as 0.
        spans: int32 [rows, 2]; receives start and end of the text of INFO, (0, 0) where there is none.
        masks: uint8 [rows, flags]; receives MASK, ones where there is none; None or of no flags: MASK is not read.
        number: that the line must have behind its rows (FEATURES=SEQ), 0 for none; -1: whichever. Where it has another
            one, 0 is returned and nothing is read.
    """
    if number >= 0:
        end, found = find_number(data, start, end)
        if found != number:
            return 0
    data = bytes(data[:end])
    rows, size = obs.shape
    of = _Layout(rows, size, form, layout, masks)
    count = 0
    json = False
    alone, form = form & OBSERVATIONS != 0, form & 3
    known, needed = (_OBSERVATION_FIELDS, (F_OBS,)) if alone else (_STATE_FIELDS, (F_OBS, F_REW, F_DONE))
    known |= {F_MASK} if of.mask_size else set()
    known |= {F_AGENT} if of.agents else set()
    try:
        for first, last in [(start, end)] if form == FORM_RLBASE else _rows(data, start, end):
            if form == FORM_RLBASE:
                row, env = _read_rlbase(data, first, last, size), 0
            else:
                usual = None if alone or of.agents else _read_usual_row(data, first, last, size)
                row = usual or _read_row(data, first, last, -1 if of.agents else size, F_OBS, known)
                env = _row_env(row, first, form, only_env, True, of, needed)
                if of.agents or row.mask:
                    _check_agent(row, env, first, F_OBS, of)
                if row.truncated and not row.done:
                    raise _Refused(TRUNC_WITHOUT_DONE, env, F_TRUNC, first)
            agent = row.agent if of.agents else 0
            to = env * of.per_env + agent
            if not pending[to]:
                raise _Refused(REPEATED_ENV, env, *((F_AGENT, first, agent) if of.agents else (F_ENV, first, env)))
            if pending[to] == 2:
                row.reward, row.done, row.truncated = np.float32(0), False, False
            if row.mask and not row.done:
                none = of.without_choice(agent, row.mask)
                if none >= 0:
                    raise _Refused(NO_CHOICE, env, F_MASK, row.mask_at, none)
            assert row.numbers is not None
            obs[to, : len(row.numbers)] = row.numbers
            rewards[to] = row.reward
            dones[to] = row.done or row.reset
            truncated[to] = row.truncated
            pending[to] = 0
            if masks is not None and of.mask_size:
                masks[to] = 1
                masks[to, : len(row.mask)] = np.frombuffer(row.mask, np.uint8) == 0x31
            spans[to] = (count, 0) if alone else row.span
            json |= row.span[1] != 0
            count += 1
    except _Refused as refused:
        return _with_env(refused.failure, 0 if form == FORM_RLBASE else only_env)
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
    number: int = -1,
) -> int | Failure:
    """Reads one line of asks into the arrays of ActionBatch.

    Args:
        actions: float32 [rows, act_size]. seeds: int64 [rows], -1 where none is given.
        command: uint8 [rows]; a row is accepted where it is 0, and makes it 1 (step) or 2 (reset). With AGENTS a reset
            is of the env, and is written to all its rows, its seed and spans to the first.
        spans: int32 [rows, 4]; receives start and end of the text of OPTIONS, (0, 0) where there is none, and those of
            SET.
        number: see decode_states.
    """
    if number >= 0:
        end, found = find_number(data, start, end)
        if found != number:
            return 0
    data = bytes(data[:end])
    rows, size = actions.shape
    of = _Layout(rows, size, form, layout)
    count = 0
    json = False
    known = _REQUEST_FIELDS | ({F_SET} if form & SETTINGS else set()) | ({F_AGENT} if of.agents else set())
    form &= 3
    try:
        for first, last in [(start, end)] if form == FORM_RLBASE else _rows(data, start, end):
            if form == FORM_RLBASE:
                row, env = _rlbase_request(data, first, last, size), 0
            else:
                row = _read_row(data, first, last, -1 if of.agents else size, F_ACT, known)
                env = _row_env(row, first, form, only_env, False, of, (F_ACT,))
                if of.agents:
                    _check_agent(row, env, first, F_ACT, of)
            begin = env * of.per_env + (row.agent if of.agents and not row.reset else 0)
            into = slice(begin, begin + (of.per_env if row.reset else 1))
            if command[into].any():
                agent = begin - env * of.per_env + int(np.argmax(command[into] != 0))
                raise _Refused(REPEATED_ENV, env, *((F_AGENT, first, agent) if of.agents else (F_ENV, first, env)))
            if not row.reset:
                assert row.numbers is not None
                actions[begin, : len(row.numbers)] = row.numbers
            command[into] = 2 if row.reset else 1
            seeds[begin] = row.seed
            spans[begin] = row.span + row.set_span
            json |= row.span[1] != 0 or row.set_span[1] != 0
            count += 1
    except _Refused as refused:
        return _with_env(refused.failure, 0 if form == FORM_RLBASE else only_env)
    return -count if json else count


def _rlbase_request(data: bytes, at: int, end: int, size: int) -> _Row:
    row = _Row()
    at = _skip(data, at, end)
    if data[at:end].rstrip(b" \t\r").upper() == b"RESET":
        row.reset = True
        return row
    numbers, stop = _numbers(data, at, end, -1, False, 0, F_ACT)
    if stop < end:
        raise _Refused(BAD_NUMBER, 0, F_ACT, stop, len(numbers))
    if len(numbers) != size:
        raise _Refused(WRONG_COUNT, 0, F_ACT, at, len(numbers))
    row.numbers = numbers
    return row


def _with_env(failure: Failure, only_env: int) -> Failure:
    code, env, field, at, got = failure
    return code, only_env if env < 0 <= only_env else env, field, at, got


def float32_text(value: np.float32) -> str:
    """The shortest text that reads back to the same finite float32: `0.1`, `1`, `-0`, `1.5e-07`."""
    text = str(value)
    if "e" not in text:
        return text[:-2] if text.endswith(".0") else text
    # NumPy's switch to exponents differs between its versions: lay the digits out ourselves.
    sign = "-" if text.startswith("-") else ""
    head, power = text.lstrip("-").split("e")
    whole, _, fraction = head.partition(".")
    digits = (whole + fraction).rstrip("0")
    point = int(power) + 1  # value = 0.digits * 10**point
    if point > 16 or point < -3:
        e = point - 1
        return f"{sign}{digits[0]}{'.' if len(digits) > 1 else ''}{digits[1:]}e{'-' if e < 0 else '+'}{abs(e):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits.ljust(point, '0')}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _finite_row(values: NDArray[np.float32], env: int, field: int) -> str:
    finite = np.isfinite(values)
    if not finite.all():
        raise _Refused(NON_FINITE, env, field, 0, int(finite.argmin()))
    return ",".join(map(float32_text, values))


def encode_actions(
    env_ids: NDArray[np.int32],
    actions: NDArray[np.float32],
    layout: NDArray[np.int32] | None,
    form: int,
    separate: bool,
    number: int | NDArray[np.int64] = 0,
) -> bytes | list[bytes] | Failure:
    """One line asking the rows `env_ids` for a step; where `separate`, a list of one line per row, without ENV.

    Args:
        env_ids: int32 [n]. actions: float32 [rows, act_size].
        number: of the request (FEATURES=SEQ), where `separate` int64 [n], of each line; 0: it has none.
    """
    _check_ids(env_ids, len(actions))
    of = _Layout(len(actions), actions.shape[1], form, layout)
    form &= 3
    key = "" if form == FORM_RLBASE else "ACT="
    try:
        rows = [key + _finite_row(actions[i, : of.numbers(i % of.per_env)], i, F_ACT) for i in env_ids.tolist()]
    except _Refused as refused:
        return refused.failure
    if separate:
        numbers = [0] * len(rows) if isinstance(number, int) else number.tolist()
        if len(numbers) != len(rows):
            raise ValueError("one number for each line")
        return [end_line(row.encode(), one) for row, one in zip(rows, numbers, strict=True)]
    if form == FORM_MULTI:
        rows = [row + _env_text(i, of) for row, i in zip(rows, env_ids.tolist(), strict=True)]
    assert isinstance(number, int)
    return end_line("||".join(rows).encode(), number)


def encode_states(
    env_ids: NDArray[np.int32],
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    masks: NDArray[np.uint8] | None,
    layout: NDArray[np.int32] | None,
    form: int,
    number: int = 0,
) -> bytes | Failure:
    """One line with the states of the rows `env_ids`, int32 [n]; the arrays as for `decode_states`.

    Args:
        number: of the request that they answer; 0: it has none.
    """
    _check_ids(env_ids, len(rewards))
    of = _Layout(len(obs), obs.shape[1], form, layout, masks)
    form &= 3
    rows = []
    try:
        for i in env_ids.tolist():
            agent = i % of.per_env
            numbers = _finite_row(obs[i, : of.numbers(agent)], i, F_OBS)
            reward = _finite_row(rewards[i : i + 1], i, F_REW)
            done = int(bool(dones[i]))
            if form == FORM_RLBASE:
                rows.append(f"{numbers};{reward};{done}")
                continue
            env = _env_text(i, of) if form == FORM_MULTI else ""
            trunc = ";TRUNC=1" if truncated[i] and done else ""
            flags = masks[i, : of.flags(agent)] if of.mask_size and masks is not None else None
            mask = "" if flags is None or flags.all() else f";MASK={''.join(map(str, (flags != 0).astype(int)))}"
            rows.append(f"OBS={numbers};REW={reward};DONE={done}{env}{trunc}{mask}")
    except _Refused as refused:
        return refused.failure
    return end_line("||".join(rows).encode(), number)


def end_line(line: bytes, number: int) -> bytes:
    """`line` with its number (FEATURES=SEQ), unless that is 0, and its line ending."""
    return b"%b;SEQ=%d\n" % (line, number) if number > 0 else line + b"\n"


def copy_parts(
    rows: NDArray[np.float32], parts: tuple[tuple[str, int, tuple[int, ...]], ...]
) -> dict[str, NDArray[np.float32]]:
    """{name: its part of a copy of `rows`}, float32 [n, *shape], views of one array.

    Args:
        rows: float32 [n, size]. parts: (name, index of the first number, shape) each.

    Raises:
        ValueError: a row has no such numbers.
    """
    copy, found = rows.copy(), {}
    for name, first, shape in parts:
        end = first + math.prod(shape)
        if not 0 <= first < end <= rows.shape[1]:
            raise ValueError(f"a row of {rows.shape[1]} numbers has no such part: {(name, first, shape)}")
        found[name] = copy[:, first:end].reshape(len(copy), *shape)
    return found


def _env_text(row: int, of: _Layout) -> str:
    return f";ENV={row // of.per_env};AGENT={row % of.per_env}" if of.agents else f";ENV={row}"


def _check_ids(env_ids: NDArray[np.int32], num_rows: int) -> None:
    if len(env_ids) and (env_ids.min() < 0 or env_ids.max() >= num_rows):
        raise IndexError("row out of range")
