"""The parse and format loops behind ue_rl/wire/codec.py, in Python; the twin of ue_rl/wire/_kernels.c.

`ue_rl.compiled.load("kernels")` chooses between the two. Both have the functions below, with the same results and the
same failure codes (docs/protocol.md is the grammar); the tests run both over the same traffic and compare every bit.
Regular expressions do the scanning, Python's correctly rounded float() the reading, NumPy's shortest float32 text the
writing. About 8 to 15 times slower than the compiled loops (docs/performance.md). No I/O, no state.

The decoders return the number of rows, negated where a row carries INFO or OPTIONS; the encoders return the text. A
failure of the first bad row is the tuple (code, env, field, position in data, got): rows before it have been written,
the bad one and those behind it have not. TypeError, ValueError and IndexError are mistakes of the caller.

`form` is one of FORM_*. `only_env` is the env whose own socket the line came on, or -1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORM_MULTI, FORM_SINGLE, FORM_RLBASE = 0, 1, 2
OBSERVATIONS = 4  # added to the form of decode_states: see there
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
) = range(1, 14)
FIELDS = ("OBS", "REW", "DONE", "ENV", "TRUNC", "INFO", "ACT", "SEED", "OPTIONS", "RESET", "message")
F_OBS, F_REW, F_DONE, F_ENV, F_TRUNC, F_INFO, F_ACT, F_SEED, F_OPTIONS, F_RESET, F_OTHER = range(11)

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
_NON_FINITE = re.compile(rb"[+-]?(?:nan|inf)", re.IGNORECASE)
_RESET = re.compile(rb"[ \t\r]*reset", re.IGNORECASE)
_FIELD_IDS = {name.encode(): i for i, name in enumerate(FIELDS[:-1])}
_STATE_FIELDS = frozenset((F_OBS, F_REW, F_DONE, F_ENV, F_TRUNC, F_INFO))
_REQUEST_FIELDS = frozenset((F_ACT, F_ENV, F_SEED, F_OPTIONS))
_OBSERVATION_FIELDS = frozenset((F_OBS, F_ENV, F_RESET))
_CODE_BEHIND = {
    F_DONE: BAD_FLAG, F_TRUNC: BAD_FLAG, F_RESET: BAD_FLAG, F_ENV: BAD_INTEGER, F_SEED: BAD_INTEGER,
    F_OTHER: NOT_A_FIELD,
}  # fmt: skip
_INTEGER_LIMIT = 2**63 - 1


class _Refused(Exception):
    def __init__(self, code: int, env: int, field: int, at: int, got: int = 0) -> None:
        self.failure: Failure = (code, env, field, at, got)


class _Row:
    __slots__ = ("done", "env", "numbers", "reset", "reward", "seed", "seen", "span", "truncated")

    def __init__(self) -> None:
        self.numbers: NDArray[np.float32] | None = None
        self.reward = np.float32(0)
        self.env = self.seed = -1
        self.done = self.truncated = self.reset = False
        self.seen: set[int] = set()
        self.span: tuple[int, int] = (0, 0)


def _skip(data: bytes, at: int, end: int) -> int:
    match = _SPACE.match(data, at, end)
    return match.end() if match else at


def _bad_number(data: bytes, at: int, end: int, env: int, field: int, count: int) -> _Refused:
    """The failure for the text at `at`, where a number should stand."""
    match = _ONE.match(data, at, end)
    if _NON_FINITE.match(data, at, end) or (match and data[match.end() : match.end() + 1] == b"#"):
        return _Refused(NON_FINITE, env, field, at, count)
    return _Refused(BAD_NUMBER, env, field, at, count)


def _to_float32(texts: list[bytes], starts: int, env: int, field: int) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        values = np.array([float(t) for t in texts], np.float64).astype(np.float32)
    finite = np.isfinite(values)
    if not finite.all():
        raise _Refused(NON_FINITE, env, field, starts, int(finite.argmin()))
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
        raise _Refused(NON_FINITE, -1, field, stop, len(texts))
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
        row.numbers, at = _numbers(data, at, end, size, field == F_OBS, row.env, field)
        return at, False
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
    if field in (F_ENV, F_SEED):
        match = _INTEGER.match(data, _skip(data, at, end), end)
        # Python's int() refuses a text of more than 4300 digits, however many of them are leading zeros.
        digits = match.group().lstrip(b"0") if match else b""
        if match is None or len(digits) > 19 or int(digits or b"0") > _INTEGER_LIMIT:
            raise _Refused(BAD_INTEGER, -1, field, at)
        if field == F_ENV:
            row.env = int(digits or b"0")
        else:
            row.seed = int(digits or b"0")
        return match.end(), True
    stop = data.find(b";", at, end)
    stop = end if stop < 0 else stop
    if field != F_OTHER:
        row.span = (at, stop)
    return stop, True


def _row_env(row: _Row, at: int, form: int, only_env: int, strict: bool, num_envs: int, needed: Iterable[int]) -> int:
    for field in needed:
        if field not in row.seen:
            raise _Refused(MISSING_FIELD, row.env, field, at)
    if F_ENV not in row.seen:
        if only_env < 0 and form == FORM_MULTI:
            raise _Refused(MISSING_FIELD, -1, F_ENV, at)
        return max(only_env, 0)
    if row.env >= num_envs:
        raise _Refused(UNKNOWN_ENV, row.env, F_ENV, at, row.env)
    if strict and only_env >= 0 and row.env != only_env:
        raise _Refused(OTHER_ENV, only_env, F_ENV, at, row.env)
    return row.env


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


def decode_states(
    data: Any,
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    pending: NDArray[np.uint8],
    spans: NDArray[np.int32],
    start: int,
    end: int,
    form: int,
    only_env: int,
) -> int | Failure:
    """Reads one line of state rows, data[start:end] without its newline, into the arrays of StepBuffers.

    With `form + OBSERVATIONS` rows need OBS alone, and may have ENV and RESET (docs/policy-server.md): other fields are
    ignored, `dones` receives RESET, and `spans[env, 0]` the row's number in the line.

    Args:
        obs: float32 [num_envs, obs_size]. rewards: float32 [num_envs]. dones, truncated: uint8 [num_envs].
        pending: uint8 [num_envs]; a row is accepted where it is 1, and makes it 0.
        spans: int32 [num_envs, 2]; receives start and end of the text of INFO, (0, 0) where there is none.
    """
    data = bytes(data[:end])
    num_envs, size = obs.shape
    count = 0
    json = False
    alone, form = form >= OBSERVATIONS, form % OBSERVATIONS
    known, needed = (_OBSERVATION_FIELDS, (F_OBS,)) if alone else (_STATE_FIELDS, (F_OBS, F_REW, F_DONE))
    try:
        for first, last in [(start, end)] if form == FORM_RLBASE else _rows(data, start, end):
            if form == FORM_RLBASE:
                row, env = _read_rlbase(data, first, last, size), 0
            else:
                usual = None if alone else _read_usual_row(data, first, last, size)
                row = usual or _read_row(data, first, last, size, F_OBS, known)
                env = _row_env(row, first, form, only_env, True, num_envs, needed)
                if row.truncated and not row.done:
                    raise _Refused(TRUNC_WITHOUT_DONE, env, F_TRUNC, first)
            if not pending[env]:
                raise _Refused(REPEATED_ENV, env, F_ENV, first, env)
            assert row.numbers is not None
            obs[env] = row.numbers
            rewards[env] = row.reward
            dones[env] = row.done or row.reset
            truncated[env] = row.truncated
            pending[env] = 0
            spans[env] = (count, 0) if alone else row.span
            json |= row.span[1] != 0
            count += 1
    except _Refused as refused:
        return _with_env(refused.failure, only_env)
    return -count if json else count


def decode_requests(
    data: Any,
    actions: NDArray[np.float32],
    command: NDArray[np.uint8],
    seeds: NDArray[np.int64],
    spans: NDArray[np.int32],
    start: int,
    end: int,
    form: int,
    only_env: int,
) -> int | Failure:
    """Reads one line of asks into the arrays of ActionBatch.

    Args:
        actions: float32 [num_envs, act_size]. seeds: int64 [num_envs], -1 where none is given.
        command: uint8 [num_envs]; a row is accepted where it is 0, and makes it 1 (step) or 2 (reset).
        spans: int32 [num_envs, 2]; receives start and end of the text of OPTIONS, (0, 0) where there is none.
    """
    data = bytes(data[:end])
    num_envs, size = actions.shape
    count = 0
    json = False
    try:
        for first, last in [(start, end)] if form == FORM_RLBASE else _rows(data, start, end):
            if form == FORM_RLBASE:
                row, env = _rlbase_request(data, first, last, size), 0
            else:
                row = _read_row(data, first, last, size, F_ACT, _REQUEST_FIELDS)
                env = _row_env(row, first, form, only_env, False, num_envs, (F_ACT,))
            if command[env]:
                raise _Refused(REPEATED_ENV, env, F_ENV, first, env)
            if row.reset:
                command[env] = 2
            else:
                assert row.numbers is not None
                actions[env] = row.numbers
                command[env] = 1
            seeds[env] = row.seed
            spans[env] = row.span
            json |= row.span[1] != 0
            count += 1
    except _Refused as refused:
        return _with_env(refused.failure, only_env)
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
    env_ids: NDArray[np.int32], actions: NDArray[np.float32], form: int, separate: bool
) -> bytes | list[bytes] | Failure:
    """One line asking `env_ids` for a step; where `separate`, a list of one line per env, without ENV.

    Args:
        env_ids: int32 [n]. actions: float32 [num_envs, act_size].
    """
    _check_ids(env_ids, len(actions))
    key = "" if form == FORM_RLBASE else "ACT="
    try:
        rows = [key + _finite_row(actions[i], i, F_ACT) for i in env_ids.tolist()]
    except _Refused as refused:
        return refused.failure
    if separate:
        return [f"{row}\n".encode() for row in rows]
    if form == FORM_MULTI:
        rows = [f"{row};ENV={i}" for row, i in zip(rows, env_ids.tolist(), strict=True)]
    return ("||".join(rows) + "\n").encode()


def encode_states(
    env_ids: NDArray[np.int32],
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    form: int,
) -> bytes | Failure:
    """One line with the states of `env_ids`, int32 [n]; the arrays as for `decode_states`."""
    _check_ids(env_ids, len(rewards))
    rows = []
    try:
        for i in env_ids.tolist():
            numbers = _finite_row(obs[i], i, F_OBS)
            reward = _finite_row(rewards[i : i + 1], i, F_REW)
            done = int(bool(dones[i]))
            if form == FORM_RLBASE:
                rows.append(f"{numbers};{reward};{done}")
                continue
            env = f";ENV={i}" if form == FORM_MULTI else ""
            trunc = ";TRUNC=1" if truncated[i] and done else ""
            rows.append(f"OBS={numbers};REW={reward};DONE={done}{env}{trunc}")
    except _Refused as refused:
        return refused.failure
    return ("||".join(rows) + "\n").encode()


def _check_ids(env_ids: NDArray[np.int32], num_envs: int) -> None:
    if len(env_ids) and (env_ids.min() < 0 or env_ids.max() >= num_envs):
        raise IndexError("env id out of range")
