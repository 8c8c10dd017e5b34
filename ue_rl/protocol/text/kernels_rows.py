"""One row of text -> its fields, for kernels_pure.py."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.text import kernel_forms as k

_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
ONE_NUMBER = re.compile(_NUMBER)
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
_FIELD_IDS = {name.encode(): i for i, name in enumerate(k.FIELDS[:-1])}
STATE_FIELDS = frozenset((k.F_OBS, k.F_REW, k.F_DONE, k.F_ENV, k.F_TRUNC, k.F_INFO))
REQUEST_FIELDS = frozenset((k.F_ACT, k.F_ENV, k.F_SEED, k.F_OPTIONS))
OBSERVATION_FIELDS = frozenset((k.F_OBS, k.F_ENV, k.F_RESET))
_CODE_BEHIND = dict.fromkeys((k.F_DONE, k.F_TRUNC, k.F_RESET, k.F_MASK), k.BAD_FLAG)
_CODE_BEHIND |= dict.fromkeys((k.F_ENV, k.F_SEED, k.F_AGENT), k.BAD_INTEGER) | {k.F_OTHER: k.NOT_A_FIELD}
_INTEGER_LIMIT = 2**63 - 1


class RowFields:
    """The fields of one row."""

    # In the class: a row sets only what it has.
    numbers: NDArray[np.float32] | None = None
    reward = np.float32(0)
    env = seed = agent = -1
    done = truncated = reset = False
    span: tuple[int, int] = (0, 0)
    set_span: tuple[int, int] = (0, 0)
    mask = b""
    mask_at: int
    numbers_at: int

    def __init__(self) -> None:
        self.seen: set[int] = set()


def skip(data: bytes, at: int, end: int) -> int:
    """Where the blanks at `at` end."""
    match = _SPACE.match(data, at, end)
    return match.end() if match else at


def bad_number(data: bytes, at: int, end: int, env: int, field: int, count: int) -> k.Refused:
    """The failure for the text at `at`, where a number should stand."""
    match = ONE_NUMBER.match(data, at, end)
    if _NON_FINITE.match(data, at, end) or (match and data[match.end() : match.end() + 1] == b"#"):
        return k.Refused(k.NON_FINITE, env, field, at, count)
    return k.Refused(k.BAD_NUMBER, env, field, at, count)


def _ahead(texts: list[bytes], index: int) -> int:
    """Bytes before the number `index` of a list."""
    return sum(len(text) + 1 for text in texts[:index]) + len(texts[index]) - len(texts[index].lstrip())


def to_float32(texts: list[bytes], starts: int, env: int, field: int, first: int = 0) -> NDArray[np.float32]:
    """The numbers as float32; the first of them is number `first` and stands at `starts`, for a refusal."""
    with np.errstate(over="ignore"):
        values = np.array([float(t) for t in texts], np.float64).astype(np.float32)
    finite = np.isfinite(values)
    if not finite.all():
        bad = int(finite.argmin())
        raise k.Refused(k.NON_FINITE, env, field, starts + _ahead(texts, bad), first + bad)
    return values


def read_numbers(
    data: bytes, at: int, end: int, size: int, semicolons: bool, env: int, field: int
) -> tuple[NDArray[np.float32], int]:
    """(the numbers of a list, where it ends); `size`: how many there must be, -1: any."""
    at = skip(data, at, end)
    match = (_MIXED if semicolons else _COMMAS).match(data, at, end)
    if match is None:
        raise bad_number(data, at, end, -1, field, 0)
    stop = match.end()
    texts = _SEPARATOR.split(match.group())
    values = to_float32(texts, at, -1, field)
    tail = data[stop : stop + 1] if stop < end else b""
    if tail == b"#" and data[stop - 1] not in b" \t\r":
        raise k.Refused(k.NON_FINITE, -1, field, at + _ahead(texts, len(texts) - 1), len(texts) - 1)
    if tail == b",":
        raise bad_number(data, skip(data, stop + 1, end), end, -1, field, len(texts))
    if tail == b";" and semicolons:
        after = skip(data, stop + 1, end)
        if after < end and not _KEY.match(data, after, end):
            raise bad_number(data, after, end, -1, field, len(texts))
    if tail and tail != b";" and not _KEY.match(data, stop, end):
        raise k.Refused(k.BAD_NUMBER, -1, field, stop, len(texts))
    if size >= 0 and len(texts) != size:
        raise k.Refused(k.WRONG_COUNT, env, field, at, len(texts))
    return values, stop


def read_row(data: bytes, at: int, end: int, size: int, main: int, known: frozenset[int]) -> RowFields:
    """`size`: numbers of a row; -1: whatever came, since AGENT says how many there should be."""
    row = RowFields()
    while True:
        at = skip(data, at, end)
        if at >= end:
            return row
        key = _KEY.match(data, at, end)
        if key is None:
            raise k.Refused(k.NOT_A_FIELD, row.env, k.F_OTHER, at)
        field = _FIELD_IDS.get(key.group(1).upper(), k.F_OTHER)
        if field not in known:
            field = k.F_OTHER
        if field != k.F_OTHER and field in row.seen:
            raise k.Refused(k.REPEATED_FIELD, row.env, field, at)
        row.seen.add(field)
        at, closed = _read_value(data, key.end(), end, size, main, field, row)
        at = skip(data, at, end)
        if at >= end:
            return row
        if data[at] == 0x3B:  # ";"
            at += 1
        elif closed or not data[at : at + 1].isalpha():
            raise k.Refused(_CODE_BEHIND.get(field, k.BAD_NUMBER), row.env, field, at)


def read_usual_row(data: bytes, at: int, end: int, size: int) -> RowFields | None:
    """A state row spelt as ue_rl writes it, in one match; None: leave it to `read_row`, which knows all spellings."""
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
    row = RowFields()
    row.numbers, row.reward = values[:size], values[size]
    row.done, row.truncated = done == b"1", truncated == b"1"
    row.seen = {k.F_OBS, k.F_REW, k.F_DONE}
    if env is not None:
        row.env = int(env)
        row.seen.add(k.F_ENV)
    return row


def _read_value(data: bytes, at: int, end: int, size: int, main: int, field: int, row: RowFields) -> tuple[int, bool]:
    """Reads one field's value into `row`; returns (where it ends, must a separator follow)."""
    if field == main:
        if field == k.F_ACT:
            reset = _RESET.match(data, at, end)
            if reset:
                row.reset = True
                return reset.end(), True
        row.numbers_at = skip(data, at, end)
        row.numbers, at = read_numbers(data, at, end, size, field == k.F_OBS, row.env, field)
        return at, False
    if field == k.F_MASK:
        row.mask_at = skip(data, at, end)
        flags = _FLAGS.match(data, row.mask_at, end)
        if flags is None:
            raise k.Refused(k.BAD_FLAG, row.env, field, row.mask_at)
        row.mask = flags.group()
        return flags.end(), True
    if field == k.F_REW:
        at = skip(data, at, end)
        match = ONE_NUMBER.match(data, at, end)
        if match is None or data[match.end() : match.end() + 1] == b"#":
            raise bad_number(data, at, end, row.env, field, 0)
        row.reward = to_float32([match.group()], at, row.env, field)[0]
        return match.end(), False
    if field in (k.F_DONE, k.F_TRUNC, k.F_RESET):
        at = skip(data, at, end)
        if at >= end or data[at] not in b"01":
            raise k.Refused(k.BAD_FLAG, row.env, field, at)
        setattr(row, {k.F_DONE: "done", k.F_TRUNC: "truncated", k.F_RESET: "reset"}[field], data[at] == 0x31)
        return at + 1, True
    if field in (k.F_ENV, k.F_SEED, k.F_AGENT):
        match = _INTEGER.match(data, skip(data, at, end), end)
        # Python's int() refuses a text of more than 4300 digits, however many of them are leading zeros.
        digits = match.group().lstrip(b"0") if match else b""
        if match is None or len(digits) > 19 or int(digits or b"0") > _INTEGER_LIMIT:
            raise k.Refused(k.BAD_INTEGER, -1, field, at)
        setattr(row, {k.F_ENV: "env", k.F_SEED: "seed", k.F_AGENT: "agent"}[field], int(digits or b"0"))
        return match.end(), True
    if field == k.F_SEQ:
        raise k.Refused(k.NUMBER_IN_ROW, row.env, field, at)
    stop = data.find(b";", at, end)
    stop = end if stop < 0 else stop
    if field == k.F_SET:
        row.set_span = (at, stop)
    elif field != k.F_OTHER:
        row.span = (at, stop)
    return stop, True


def row_env(
    row: RowFields, at: int, form: int, only_env: int, strict: bool, of: k.Layout, needed: Iterable[int]
) -> int:
    """The env of a keyed row, which is checked but for its agent. `strict`: on another env's socket it is refused."""
    for field in needed:
        if field not in row.seen:
            raise k.Refused(k.MISSING_FIELD, row.env, field, at)
    if k.F_ENV not in row.seen:
        if only_env < 0 and form == k.FORM_MULTI:
            raise k.Refused(k.MISSING_FIELD, -1, k.F_ENV, at)
        return max(only_env, 0)
    if row.env >= of.envs:
        raise k.Refused(k.UNKNOWN_ENV, row.env, k.F_ENV, at, row.env)
    if strict and only_env >= 0 and row.env != only_env:
        raise k.Refused(k.OTHER_ENV, only_env, k.F_ENV, at, row.env)
    return row.env


def check_agent(row: RowFields, env: int, at: int, main: int, of: k.Layout) -> None:
    """Checks AGENT, and how many numbers and flags this agent has."""
    if of.agents:
        if row.reset and main == k.F_ACT:
            if k.F_AGENT in row.seen:
                raise k.Refused(k.RESET_OF_AGENT, env, k.F_AGENT, at, row.agent)
        elif k.F_AGENT not in row.seen:
            raise k.Refused(k.MISSING_FIELD, env, k.F_AGENT, at)
        elif row.agent >= of.per_env:
            raise k.Refused(k.UNKNOWN_AGENT, env, k.F_AGENT, at, row.agent)
        elif row.numbers is not None and len(row.numbers) != of.numbers(row.agent):
            raise k.Refused(k.WRONG_COUNT, env, main, row.numbers_at, len(row.numbers))
    if row.mask and len(row.mask) != of.flags(max(row.agent, 0)):
        raise k.Refused(k.WRONG_COUNT, env, k.F_MASK, row.mask_at, len(row.mask))


def rows_of(data: bytes, start: int, end: int) -> Iterable[tuple[int, int]]:
    """(start, end) of each row of a line."""
    while True:
        bar = data.find(b"|", start, end)
        if bar < 0 or data[bar + 1 : min(bar + 2, end)] != b"|":
            yield start, end
            return
        yield start, bar
        start = bar + 2
