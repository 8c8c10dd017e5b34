"""From a line that cannot be read to the mistake behind it. No I/O."""

from __future__ import annotations

import re
from collections.abc import Collection

from ue_rl.devtools.check.peer import Wrong
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.refusals import NUMBER_FIELD
from ue_rl.system.errors import (
    EngineDisconnected,
    HandshakeError,
    LineTooLong,
    MalformedMessage,
    NonFiniteValue,
    RepeatedEnv,
    UeRlError,
    UnknownEnv,
    WrongCount,
    shorten,
)

_IDS = re.compile(rb"[;|]\s*ENV\s*=\s*(\d{1,9})\s*(?=[;|]|$)", re.IGNORECASE)
_AGENTS = re.compile(rb";\s*AGENT\s*=\s*(\d{1,9})", re.IGNORECASE)
_FIELD = re.compile(rb"[A-Za-z_]\s*=")
_COMMA_REWARD = re.compile(rb"REW\s*=\s*[+-]?\d+,\d", re.IGNORECASE)
_JOINED = re.compile(rb"[0-9.](REW|DONE|TRUNC|ENV|OBS|AGENT|INFO|MASK)\s*=", re.IGNORECASE)
_BLANK = re.compile(rb"[0-9.][ \t]+(REW|DONE|TRUNC|ENV|AGENT|INFO|MASK)\s*=", re.IGNORECASE)
_REWARD = re.compile(rb"REW\s*=\s*([^;|]*)", re.IGNORECASE)
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)
_BEFORE_TEXT = re.compile(rb"(.{2,8}?)(CONFIG:|OBS[ \t]*=)", re.DOTALL)
_COMMA_FIELD = re.compile(rb",[ \t]*(REW|DONE|TRUNC|ENV|AGENT|INFO|MASK)[ \t]*=", re.IGNORECASE)
_SINGLE_BAR = re.compile(rb"(?<!\|)\|(?!\|)")
_OF_FIELD = {"INFO": "bad-info", "MASK": "bad-mask", "AGENT": "bad-agent", "TRUNC": "bad-flag", "DONE": "bad-flag"}


def joined_fields(line: bytes) -> bool:
    """Does a field begin right behind a number, without a separator?"""
    return _JOINED.search(line) is not None


def foreign_bytes(line: bytes) -> str:
    """What stands in a message that is no text, as a sentence; "" where all of it may be text."""
    if line.startswith(b"\xef\xbb\xbf"):
        return "a byte order mark (EF BB BF) stands in front"
    if line[:2] in (b"\xff\xfe", b"\xfe\xff") or 3 * line.count(0) > len(line) > 8:
        return "every other byte is zero: that is UTF-16"
    before = _BEFORE_TEXT.match(line)
    if before is not None and b"\0" in before[1] and before[1].strip(b"\0"):
        return f"{len(before[1])} bytes that are no text stand in front: {before[1]!r}, as of a length"
    if b"\0" in line:
        return "a NUL byte stands in it"
    return ""


def of_stray(early: bytes, last: Collection[bytes] = (), repeated: bool = False) -> tuple[str, str]:
    """(mistake, sentence) of something that came where nothing may come.

    Args:
        last: the lines of the last answer. repeated: an answer of this session was that of the request before, once
            more: where it came late it was taken for the next one, and all those behind it are one request late.
    """
    first = early.strip(b"\r\n \t").split(b"\n")[0].strip()
    if not first.strip(b"\0"):
        return "not-plain-text", "NUL bytes came, as behind the end of a message"
    if first.upper().startswith(b"CONFIG:"):
        return "handshake-again", "a handshake came"
    agents = _pairs([first])
    before = _pairs(last)
    if agents and not agents & before and {env for env, _ in agents} <= {env for env, _ in before}:
        return "bad-agent", "further agents of an env came in a line of their own"
    if first in last:
        return "two-answers", "the last answer came again"
    if repeated:
        return "two-answers", "another answer came; an earlier one was that of the request before, once more"
    return "unasked", "something else came"


def _pairs(lines: Collection[bytes]) -> set[tuple[int, int]]:
    """(env, agent) of each row that names both."""
    rows = [(_IDS.search(row), _AGENTS.search(row)) for line in lines for row in line.split(b"||")]
    return {(int(env[1]), int(agent[1])) for env, agent in rows if env is not None and agent is not None}


def of_number(
    line: bytes, number: int, expected: Collection[int], seen: str, *, call: bool = False, again: bool = False
) -> Wrong:
    """For an answer that does not end with the number of its request.

    Args:
        number: that it ends with; 0: none, -1: none that can be read. expected: those of the open requests.
        call: it answers a call. again: the line has come before, with this number.
    """
    wanted = " or ".join(map(str, sorted(expected)))
    if number > 0:
        if again:
            return Wrong("two-answers", f"an answer came again instead of that to request {wanted}", seen)
        return Wrong("number-wrong", f"request {wanted} was answered with the number {number}", seen)
    if number == 0 and NUMBER_FIELD.search(line):
        return Wrong("number-not-last", f"number {wanted} was asked for", seen)
    if number == 0:
        mistake = "number-missing"
        if call:
            mistake = "number-missing-in-calls"
        return Wrong(mistake, f"SEQ={wanted} was asked for", seen)
    return Wrong("number-wrong", f"SEQ is no number; {wanted} was asked for", seen)


def of_handshake(error: UeRlError, line: bytes) -> Wrong:
    """For a first line that is no handshake."""
    if isinstance(error, EngineDisconnected):
        return Wrong("ends-session", error.plain(), line)
    if line.lstrip()[:7].upper() != b"CONFIG:" and re.match(rb"\s*OBS\s*=.*REW", line, re.IGNORECASE):
        return Wrong("no-handshake", "the first line is a state", line)
    name = "bad-handshake"
    if isinstance(error, HandshakeError) and error.field == "VERSION":
        name = "wrong-version"
    return Wrong(name, error.plain(), line)


def of_row(error: UeRlError, line: bytes, spec: EnvSpec, asked: set[int], answered: set[int]) -> Wrong:
    """For a line of states that cannot be read.

    Args:
        error: what the codec says about it.
        asked: the envs of the request. answered: those of them whose answer had come before this line.
    """
    if said := foreign_bytes(line):
        return Wrong("not-plain-text", said, shorten(repr(line)[2:-1], 400), error.env_id)
    name = _name(error, line, spec, asked, answered)
    return Wrong(name, error.plain(), shorten(line, 400), error.env_id)


def _name(error: UeRlError, line: bytes, spec: EnvSpec, asked: set[int], answered: set[int]) -> str:
    ids = [int(found) for found in _IDS.findall(line)]
    if isinstance(error, EngineDisconnected):
        return "ends-session"
    if line.lstrip()[:7].upper() == b"CONFIG:":
        return "handshake-again"
    if error.field == "SEQ":
        return "number-not-last"
    if isinstance(error, LineTooLong):
        return "no-newline"
    if isinstance(error, NonFiniteValue):
        return "nan"
    if _COMMA_REWARD.search(line) or (isinstance(error, WrongCount) and _is_doubled(error, line, spec)):
        return "decimal-comma"
    if spec.groups and (error.field == "AGENT" or _agents_from_one(error, line)):
        return "bad-agent"
    if isinstance(error, (UnknownEnv, RepeatedEnv)) and ids:
        if max(ids) == spec.num_envs or (min(ids) == 1 and set(ids) == {env + 1 for env in asked - answered}):
            return "env-off-by-one"
        if isinstance(error, UnknownEnv):
            if max(ids) > spec.num_envs:
                return "unknown-env"
            return "wrong-socket"
    if isinstance(error, RepeatedEnv):
        if set(ids) - asked:
            return "unasked-env"
        return "two-answers"
    if joined_fields(line) or _BLANK.search(line) or _COMMA_FIELD.search(line):
        return "missing-separator"
    if isinstance(error, MalformedMessage) and line.rstrip().endswith(b"||"):
        return "wrong-separator"
    if isinstance(error, MalformedMessage) and _SINGLE_BAR.search(line):
        return "wrong-separator"
    if isinstance(error, WrongCount):
        if error.field == "MASK":
            return "bad-mask"
        return "wrong-count"
    return of_malformed(error, line)


def _agents_from_one(error: UeRlError, line: bytes) -> bool:
    """Another group's numbers, where no row has AGENT=0."""
    ids = [int(found) for found in _AGENTS.findall(line)]
    return isinstance(error, WrongCount) and error.field == "OBS" and bool(ids) and min(ids) == 1


def of_malformed(error: UeRlError, line: bytes = b"") -> str:
    """The mistake behind an error that names a field; `line`: where it is in text."""
    if "TRUNC=1 came" in error.message:
        return "trunc-without-done"
    if "required field" in error.message:
        if error.field == "ENV":
            return "missing-env"
        return "missing-field"
    if "twice" in error.message:
        return "repeated-field"
    if error.field in _OF_FIELD:
        return _OF_FIELD[error.field]
    if error.field == "REW":
        return "reward-not-a-number"
    if error.field == "OBS" and _FIELD.search(line):
        return "not-a-number"
    if any(not _NUMBER.fullmatch(found) for found in _REWARD.findall(line)):
        return "reward-not-a-number"
    return "malformed-row"


def _is_doubled(error: UeRlError, line: bytes, spec: EnvSpec) -> bool:
    """Twice as many numbers as there should be, and no point in them (some may be whole: then there are fewer)."""
    row = next((part for part in line.split(b"||") if b"=" in part), b"OBS=" + line.partition(b";")[0])
    numbers = row.upper().partition(b"OBS")[2].partition(b"REW")[0]
    count = len(re.findall(rb"[0-9]+", numbers))
    return b"." not in numbers and error.field == "OBS" and spec.obs_size < count <= 2 * spec.obs_size
