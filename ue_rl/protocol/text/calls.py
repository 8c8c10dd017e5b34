"""Calls: requests beside the steps, as one line each way. Source: docs/protocol.md, section "Calls". No I/O.

GET=gravity,wind;ENV=3     VALUES=gravity:9.8,wind:0        parameters; GET alone: all of them
SET=gravity:3.7            VALUES=gravity:3.7               of all envs where ENV is missing
TIME_SCALE=4, PAUSE=1      OK
RENDER;ENV=0               PICTURE=240,320,3;DATA=<base64>  uint8, rows of pixels
GOALS=1,2/3,4||5,6/7,8     REW=-1,0                         achieved/desired -> rewards, for HER
                           REFUSED=<percent-encoded reason> to any of them

Lines are given and taken without their line ending. `write_*` of a call and `read_*` of an answer are the trainer's;
`read_call`, and `write_*` of an answer, the engine's. A writer raises ConfigurationError, a reader ProtocolError.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.text.kernel_forms import FORM_RLBASE
from ue_rl.protocol.text.notices import MAX_TEXT, ended_by
from ue_rl.protocol.text.settings import names_text, number_text, read_names, read_number, read_settings, settings_text
from ue_rl.system.compiled import load
from ue_rl.system.errors import (
    CommandFailed,
    ConfigurationError,
    LineTooLong,
    MalformedMessage,
    NonFiniteValue,
    UnexpectedMessage,
    WrongCount,
)

CALLS = ("GET", "SET", "TIME_SCALE", "PAUSE", "RENDER", "GOALS")
OK = "OK"
CALL_LIMIT = 1_048_576  # bytes of a call, and of every answer but a picture, with the line ending
NUMBER_ROOM = 32  # bytes within that for the number of FEATURES=SEQ and the line ending
PICTURE_LIMIT = 67_109_888  # bytes of a PICTURE line: 48 MiB of pixels
MAX_PIXELS = 50_331_648  # bytes of a picture

_CALL = re.compile(rb"[ \t\r]*(%b)[ \t\r]*(?:[=;]|$)" % "|".join(CALLS).encode(), re.IGNORECASE)
_PICTURE = re.compile(rb"[ \t\r]*PICTURE[ \t]*=", re.IGNORECASE)
_MOST_FIELDS = 1000  # of an answer
_SIZES = re.compile(r"[ \t]*([0-9]{1,5})[ \t]*,[ \t]*([0-9]{1,5})[ \t]*,[ \t]*([0-9]{1,2})[ \t]*")


@dataclass(frozen=True)
class Call:
    """What a call asks for.

    Args:
        name: one of CALLS.
        names: of GET; () for all parameters. settings: of SET. value: of TIME_SCALE (above 0) and PAUSE (0 or 1).
        env: of GET, SET and RENDER; None where the line names none.
        achieved, desired: of GOALS, float32 [pairs, numbers].
    """

    name: str
    names: tuple[str, ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)
    env: int | None = None
    value: float = 0.0
    achieved: NDArray[np.float32] | None = None
    desired: NDArray[np.float32] | None = None


# -- the trainer's side


def write_get(names: Sequence[str] = (), env: int | None = None) -> str:
    """Asks for the values of parameters; of all of them without names."""
    return _sent("GET", names_text(names) or None, env)


def write_set(settings: Mapping[str, float], env: int | None = None) -> str:
    """Sets parameters, of one env or of all."""
    return _sent("SET", settings_text(settings), env)


def write_time_scale(value: float) -> str:
    """Asks for simulated seconds per second; 1 is real time."""
    if not value > 0:
        raise ConfigurationError("a time scale is above 0", field="TIME_SCALE", got=value)
    return _sent("TIME_SCALE", number_text(value))


def write_pause(paused: bool) -> str:
    """Stops the simulation between two steps, or lets it go on."""
    return _sent("PAUSE", str(int(bool(paused))))


def write_render(env: int | None = None) -> str:
    """Asks for a picture."""
    return _sent("RENDER", None, env)


def write_goals(achieved: NDArray[np.float32], desired: NDArray[np.float32]) -> str:
    """Asks for the rewards of pairs of goals, float32 [pairs, numbers] each; for very many, ask several times."""
    texts = [_rows_text("GOALS", np.atleast_2d(np.asarray(goals, np.float32))) for goals in (achieved, desired)]
    if not texts[0] or len(texts[0]) != len(texts[1]):
        what = "there is one achieved goal for each desired one, and one pair at least"
        raise ConfigurationError(what, field="GOALS", expected=f"{len(texts[0])} desired goals", got=len(texts[1]))
    return _sent("GOALS", "||".join(f"{got}/{wanted}" for got, wanted in zip(*texts, strict=True)))


def check_call(line: str) -> bytes:
    """A call as it is sent, without its line ending.

    Raises:
        ConfigurationError: it is not one line of printable ASCII that fits.
    """
    if not line.isascii() or not line.replace("\t", " ").isprintable():
        raise ConfigurationError(
            "a request beside the steps is one line of printable ASCII",
            field=line.partition("=")[0][:20],
            got=line,
            cure="ue_rl.protocol.text.calls writes such lines: names are percent-encoded, such as SET=h%C3%B6he:1",
        )
    if len(line) + NUMBER_ROOM >= CALL_LIMIT:
        raise ConfigurationError(
            "a request beside the steps is too long",
            field=line.partition("=")[0][:20],
            expected=f"at most {CALL_LIMIT} bytes",
            got=len(line) + 1,
            cure="send it in several parts",
        )
    return line.encode("ascii")


def understood(line: str, answer: bytes) -> str:
    """The answer to `line` as text.

    Raises:
        CommandFailed: the engine refused. EngineDisconnected: it ended the session. MalformedMessage: not ASCII.
        LineTooLong: longer than an answer may be that is no picture.
    """
    name = line.partition("=")[0].partition(";")[0]
    if ended := ended_by(answer):
        raise ended
    if len(answer) >= CALL_LIMIT and not _PICTURE.match(answer):
        what = "the answer to a call is too long"
        raise LineTooLong(what, fault="engine", field=name, expected=f"at most {CALL_LIMIT} bytes", got=answer[:80])
    try:
        text = answer.decode("ascii").strip()
    except UnicodeDecodeError:
        raise MalformedMessage("an answer that is not ASCII", fault="engine", field=name, got=answer) from None
    if text[:8].upper() == "REFUSED=":
        raise CommandFailed("the engine refused a request", field=name, got=unquote(text[8:]))
    return text


def read_ok(text: str) -> None:
    """Checks the answer to TIME_SCALE and PAUSE."""
    if text.partition(";")[0].strip().upper() != OK:
        raise _other(OK, text)


def read_values(text: str, names: Sequence[str] | None = None) -> dict[str, float]:
    """The answer to GET and SET: parameter to value.

    Args:
        names: those that were asked for, or set: each must be there, and no other; None or none: any.
    """
    values = read_settings(_answer("VALUES", text)[0], "VALUES", "engine")
    if names and set(names) != set(values):
        what = "the engine answered with other parameters than it was asked for"
        raise WrongCount(what, field="VALUES", expected=", ".join(names), got=", ".join(values))
    return values


def read_picture(text: str) -> NDArray[np.uint8]:
    """The answer to RENDER: uint8 [height, width, channels], an array of its own."""
    sizes, fields = _answer("PICTURE", text)
    found = _SIZES.fullmatch(sizes)
    data = fields.get("DATA")
    if found:
        height, width, channels = map(int, found.groups())
    else:
        height = 0
        width = 0
        channels = 0
    count = height * width * channels
    if not 1 <= channels <= 4 or not 1 <= count <= MAX_PIXELS:
        raise MalformedMessage(
            "a picture has a wrong size",
            fault="engine",
            field="PICTURE",
            expected=f"height,width,channels with 1 to 4 channels and at most {MAX_PIXELS} bytes",
            got=sizes,
        )
    if data is None:
        raise MalformedMessage("a picture without its pixels", fault="engine", field="DATA", got=text)
    wanted = (count + 2) // 3 * 4
    if len(data) != wanted:
        what = "the pixels are not those of the picture's size"
        raise WrongCount(what, field="DATA", expected=f"{wanted} characters of base64 for {count} bytes", got=len(data))
    try:
        pixels = base64.b64decode(data, validate=True)
    except binascii.Error:
        pixels = b""
    if len(pixels) != count:
        raise MalformedMessage("the pixels are not base64", fault="engine", field="DATA", got=data)
    return np.frombuffer(bytearray(pixels), np.uint8).reshape(height, width, channels)


def read_rewards(text: str, count: int) -> NDArray[np.float32]:
    """The answer to GOALS: float32 [count]."""
    rewards = _read_numbers(_answer("REW", text)[0].split(","), "REW", "engine")
    if len(rewards) != count:
        raise WrongCount("there is one reward for each pair of goals", field="REW", expected=count, got=len(rewards))
    return rewards


# -- the engine's side


def is_call(line: bytes | bytearray | memoryview) -> bool:
    """Does a trainer's line ask for something beside the steps? Its first word says so."""
    return _CALL.match(bytes(line[:64])) is not None


def read_call(line: bytes | bytearray | memoryview) -> Call:
    """What a call asks for; unknown fields behind the first are skipped. Whether there is such an env is not looked at.

    Raises:
        ProtocolError: the subclass says what is wrong.
    """
    raw = bytes(line)
    found = _CALL.match(raw)
    if found is None or not raw.isascii():
        raise MalformedMessage("not a call", fault="trainer", expected=", ".join(CALLS), got=raw)
    name = found.group(1).decode().upper()
    first, *more = raw.decode().strip().split(";")
    if "=" not in first:
        value = None
    else:
        value = first.partition("=")[2].strip()
    fields = _fields(more, "trainer")
    if not ("ENV" in fields and name in ("GET", "SET", "RENDER")):
        env = None
    else:
        env = _env(fields["ENV"])
    if name == "RENDER" or (name == "GET" and not value):
        return Call(name, env=env)
    if not value:
        raise MalformedMessage("a call without a value", fault="trainer", field=name, got=raw)
    if name == "GET":
        return Call(name, read_names(value), env=env)
    if name == "SET":
        return Call(name, settings=read_settings(value), env=env)
    if name == "GOALS":
        achieved, desired = _read_goals(value)
        return Call(name, achieved=achieved, desired=desired)
    number = read_number(value, name, "trainer")
    if name == "TIME_SCALE":
        wrong = number <= 0
    else:
        wrong = number not in (0, 1)
    if wrong:
        wanted = "0 or 1"
        if name == "TIME_SCALE":
            wanted = "a number above 0"
        raise MalformedMessage("a value out of range", fault="trainer", field=name, expected=wanted, got=value)
    return Call(name, value=number)


def write_values(values: Mapping[str, float]) -> str:
    """The answer to GET and SET."""
    return _sent("VALUES", settings_text(values, "VALUES"))


def write_picture(pixels: NDArray[np.uint8]) -> str:
    """The answer to RENDER: uint8 [height, width, channels] or, of one channel, [height, width]."""
    picture = np.ascontiguousarray(pixels)
    if picture.ndim == 2:
        picture = picture[..., None]
    if picture.dtype != np.uint8 or picture.ndim != 3 or not 1 <= picture.shape[2] <= 4 or not picture.size:
        raise ConfigurationError(
            "not a picture",
            fault="engine",
            field="PICTURE",
            expected="uint8 [height, width, 1 to 4 channels]",
            got=f"{picture.dtype} {picture.shape}",
        )
    if picture.size > MAX_PIXELS or max(picture.shape) > 65_535:
        raise ConfigurationError(
            "a picture is too large",
            fault="engine",
            field="PICTURE",
            expected=f"at most {MAX_PIXELS} bytes",
            got=picture.shape,
        )
    return f"PICTURE={','.join(map(str, picture.shape))};DATA={base64.b64encode(picture.data).decode()}"


def write_rewards(rewards: NDArray[np.float32]) -> str:
    """The answer to GOALS: float32 [pairs]."""
    (text,) = _rows_text("REW", np.asarray(rewards, np.float32).reshape(1, -1))
    return _sent("REW", text)


def write_refused(reason: str) -> str:
    """The answer to a call that the engine cannot follow; a reason of more than MAX_TEXT bytes is cut."""
    return f"REFUSED={quote(reason.encode('utf-8', 'replace')[:MAX_TEXT].decode('utf-8', 'ignore'), safe='')}"


# -- helpers


def _sent(name: str, value: str | None, env: int | None = None) -> str:
    assigned = ""
    if value is not None:
        assigned = f"={value}"
    place = ""
    if env is not None:
        place = f";ENV={int(env)}"
    line = name + assigned + place
    check_call(line)
    return line


def _rows_text(field: str, rows: NDArray[np.float32]) -> list[str]:
    """Each row's numbers, joined by commas."""
    if rows.ndim != 2 or not rows.shape[1]:
        raise ConfigurationError("numbers in rows were expected", field=field, got=rows.shape)
    ids = np.arange(len(rows), dtype=np.int32)
    lines = load("kernels").encode_actions(ids, np.ascontiguousarray(rows), None, FORM_RLBASE, True)
    if isinstance(lines, tuple):
        raise ConfigurationError("a number is not finite", field=field, got=f"{rows[lines[1], lines[4]]}")
    return [line[:-1].decode() for line in lines]


def _read_numbers(parts: Sequence[str], field: str, fault: str) -> NDArray[np.float32]:
    values = [read_number(part, field, fault) for part in parts]
    with np.errstate(over="ignore"):
        numbers = np.array(values, np.float64).astype(np.float32)
    finite = np.isfinite(numbers)
    if not finite.all():
        got = parts[int(finite.argmin())]
        raise NonFiniteValue("a value is beyond float32", fault=fault, field=field, got=got)
    return numbers


def _read_goals(text: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    pairs = [pair.partition("/") for pair in text.split("||")]
    for pair in pairs:
        if not pair[1]:
            raise MalformedMessage("a pair of goals was expected", fault="trainer", field="GOALS", got=pair[0])
    sides = [[pair[side].split(",") for pair in pairs] for side in (0, 2)]
    achieved, desired = (_read_numbers([*chain.from_iterable(side)], "GOALS", "trainer") for side in sides)
    sizes = sorted({(len(got), len(wanted)) for got, wanted in zip(*sides, strict=True)})
    if len(sizes) != 1:
        raise WrongCount("goals of one call have different sizes", fault="trainer", field="GOALS", got=sizes[:10])
    return achieved.reshape(len(pairs), -1), desired.reshape(len(pairs), -1)


def _answer(name: str, text: str) -> tuple[str, dict[str, str]]:
    """The value of an answer's first field, and the fields behind it."""
    first, *more = text.split(";", _MOST_FIELDS)
    key, equals, value = first.partition("=")
    if not equals or key.strip().upper() != name:
        raise _other(name, text)
    if len(more) >= _MOST_FIELDS:
        raise MalformedMessage("an answer has too many fields", fault="engine", field=name, got=text)
    return value.strip(), _fields(more, "engine")


def _fields(parts: Sequence[str], fault: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        key = key.strip().upper()
        if not equals and key:
            raise MalformedMessage("a field has no value", fault=fault, field=key[:40], got=part)
        if key in fields and key in ("ENV", "DATA"):
            raise MalformedMessage("a field comes twice", fault=fault, field=key, got=part)
        if key:
            fields[key] = value.strip()
    return fields


def _env(text: str) -> int:
    if not text.isdigit() or len(text) > 9:
        raise MalformedMessage("a non-negative integer was expected", fault="trainer", field="ENV", got=text)
    return int(text)


def _other(expected: str, text: str) -> UnexpectedMessage:
    return UnexpectedMessage(
        "the engine answered something else than it was asked",
        fault="engine",
        field=expected,
        expected=expected,
        got=text,
    )
