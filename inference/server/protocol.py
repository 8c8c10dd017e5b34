"""The lines of the policy server, without I/O: hello, ask, answer, refusal. The grammar is docs/policy-server.md.

Numbers are read and written as in docs/protocol.md (nearest double, then float32; shortest text back), answers by the
same loops as everywhere (ue_rl/wire/kernels_pure.py). Nothing is repaired: a line is exactly right or it raises.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.compiled import load
from ue_rl.errors import (
    HandshakeError,
    MalformedMessage,
    ModelMismatch,
    ModelOutputError,
    NonFiniteValue,
    RepeatedEnv,
    UeRlError,
    UnknownEnv,
    WrongCount,
)
from ue_rl.inference.runtime.onnx import OnnxInference
from ue_rl.spec import ActionKind, EnvSpec
from ue_rl.wire.handshake import decode_handshake
from ue_rl.wire.kernels_pure import FORM_SINGLE

_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBERS = re.compile(rb"[ \t]*%b[ \t]*(?:,[ \t]*%b[ \t]*)*" % (_NUMBER, _NUMBER))
_NON_FINITE = re.compile(rb"[ \t]*[+-]?(?:nan|inf)", re.IGNORECASE)
_INTEGER = re.compile(rb"[0-9]{1,9}")
_SIZE = re.compile(rb"[:;]\s*(OBS|ACT)\s*=\s*([0-9]{1,18})\s*(?=;|$)", re.IGNORECASE)
_KEY = re.compile(rb"[A-Za-z][A-Za-z0-9_]*")
# What nearly every row is; anything else takes the long way.
_USUAL = re.compile(rb"OBS=([^;|=]+)(?:;ENV=([0-9]{1,9}))?(?:;RESET=([01]))?")
_BEYOND = 2.0**128 - 2.0**103  # from here on a double rounds to an infinite float32


class Row(NamedTuple):
    """One env's part of an ask: `values` are obs_size finite numbers, `starts` says that an episode begins."""

    env: int
    values: list[float]
    starts: bool


def line_limit(spec: EnvSpec) -> int:
    """The longest ask in bytes that an engine of these sizes may send."""
    return 1024 + 64 * spec.num_envs * (spec.obs_size + 1)


def read_hello(line: bytes, model: OnnxInference, max_rows: int) -> EnvSpec:
    """The engine's sizes, which are known to be the model's.

    Raises:
        HandshakeError: not a CONFIG line; other sizes than the model's; an ACT_SPACE of other choices; more than
            `max_rows` envs.
    """
    sizes = {"OBS": model.obs_size, "ACT": model.act_size}
    for key, number in _SIZE.findall(line):  # before decoding, which spreads BOX(0:1) over OBS numbers, however many
        if sizes[key.decode("ascii").upper()] not in (None, int(number)):
            raise _other_sizes(f"OBS={sizes['OBS']};ACT={sizes['ACT']}", line)
    spec = decode_handshake(line)
    try:
        model.require(spec.obs_size, spec.act_size)
    except ModelMismatch as error:
        raise _other_sizes(error.got, line) from error
    if spec.num_envs > max_rows:
        raise HandshakeError(
            "more envs than the server answers at once", fault="engine", field="ENV_COUNT",
            expected=f"at most {max_rows}", got=spec.num_envs, cure="use several connections, or raise --max-batch",
        )  # fmt: skip
    if model.metadata is not None and b"ACT_SPACE" in line.upper():
        theirs, mine = (spec.action_spec.kind, spec.action_spec.counts), _choices(model.metadata.action_space)
        if theirs != mine:
            raise HandshakeError(
                "the engine's action space is not the model's", fault="engine", field="ACT_SPACE",
                expected=f"{mine[0].value} {mine[1] or ''}".strip(), got=line,
            )  # fmt: skip
    return spec


def read_ask(line: bytes, spec: EnvSpec) -> list[Row]:
    """The rows of one ask, `OBS=..[;ENV=..][;RESET=1]` joined by `||`.

    Raises:
        MalformedMessage, WrongCount, NonFiniteValue, UnknownEnv, RepeatedEnv.
    """
    rows = [_read_row(part, spec) for part in line.split(b"||")]
    if len(rows) > 1 and len({row.env for row in rows}) < len(rows):
        seen: set[int] = set()
        twice = next(row.env for row in rows if row.env in seen or seen.add(row.env))  # type: ignore[func-returns-value]
        raise RepeatedEnv("an env asks twice in one line", fault="engine", env_id=twice, field="ENV", got=line)
    return rows


def write_answers(actions: NDArray[np.float32], model: str = "model") -> list[bytes]:
    """`ACT=..` of each row of float32 [n, act_size], without ENV and line ending.

    Raises:
        ModelOutputError: a number that is not finite.
    """
    lines = load("kernels").encode_actions(np.arange(len(actions), dtype=np.int32), actions, FORM_SINGLE, True)
    if isinstance(lines, list):
        return [line.rstrip(b"\n") for line in lines]
    raise ModelOutputError(f"the {model} gave NaN or infinity", fault="model", got=actions[lines[1]])


def join_answer(rows: list[Row], texts: list[bytes], spec: EnvSpec) -> bytes:
    """The line that answers one ask: its rows in its order, with ENV where the engine has several envs."""
    if spec.num_envs == 1:
        return texts[0] + b"\n"
    return b"||".join([b"%b;ENV=%d" % (text, row.env) for row, text in zip(rows, texts, strict=True)]) + b"\n"


def write_refusal(error: UeRlError) -> bytes:
    """The last line that a dropped engine gets: `ERROR=` and a sentence in printable ASCII."""
    text = f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace")[:600]
    return b"ERROR=" + bytes(b if 0x20 <= b < 0x7F and b not in b";|" else 0x20 for b in text) + b"\n"


def _read_row(part: bytes, spec: EnvSpec) -> Row:
    usual = _USUAL.fullmatch(part)
    if usual is not None:
        body, env_text, reset = usual.groups()
    else:
        fields = _fields(part)
        if b"OBS" not in fields:
            raise MalformedMessage("a required field is missing", fault="engine", field="OBS", got=part)
        body, env_text, reset = fields[b"OBS"], fields.get(b"ENV"), fields.get(b"RESET", b"0")
        if env_text is not None and not _INTEGER.fullmatch(env_text):
            raise MalformedMessage("a non-negative integer was expected", fault="engine", field="ENV", got=part)
        if reset not in (b"0", b"1"):
            raise MalformedMessage("a flag is neither 0 nor 1", fault="engine", field="RESET", got=part)
    if env_text is None and spec.num_envs > 1:
        raise UnknownEnv(
            "the row does not say its env", fault="engine", field="ENV", expected=f"0 to {spec.num_envs - 1}", got=part
        )
    env = int(env_text or 0)
    if env >= spec.num_envs:
        raise UnknownEnv(
            "the env id does not exist", fault="engine", field="ENV", expected=f"0 to {spec.num_envs - 1}", got=part
        )
    texts = body.split(b",")
    if not _NUMBERS.fullmatch(body):
        if any(_NON_FINITE.match(text) for text in texts):
            raise _not_finite(env, part)
        raise MalformedMessage(
            "numbers were expected", fault="engine", env_id=env, field="OBS", expected="OBS=0.5,-1,..", got=part
        )
    if len(texts) != spec.obs_size:
        raise WrongCount(
            "the observation has the wrong number of numbers", fault="engine", env_id=env, field="OBS",
            expected=spec.obs_size, got=len(texts), cure="it must be the OBS of the hello",
        )  # fmt: skip
    values = [float(text) for text in texts]
    if max(values) >= _BEYOND or min(values) <= -_BEYOND:
        raise _not_finite(env, part)
    return Row(env, values, reset == b"1")


def _other_sizes(expected: object, line: bytes) -> HandshakeError:
    return HandshakeError(
        "the engine's sizes are not the model's", fault="engine", expected=expected, got=line,
        cure="serve the model that was trained for this game",
    )  # fmt: skip


def _not_finite(env: int, part: bytes) -> NonFiniteValue:
    return NonFiniteValue(
        "a value is NaN, infinite or beyond float32", fault="engine", env_id=env, field="OBS", got=part,
        cure="look for a division by zero or an unset value in the game's state",
    )  # fmt: skip


def _fields(part: bytes) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for text in part.split(b";"):
        key, equals, value = text.partition(b"=")
        key = key.strip(b" \t").upper()
        if not key and not equals:
            continue  # a semicolon at the end
        if not equals or not _KEY.fullmatch(key):
            raise MalformedMessage("not a field", fault="engine", expected="OBS=..;ENV=..", got=part)
        if key in fields:
            raise MalformedMessage(
                "a field comes twice in one row", fault="engine", field=key.decode("ascii"), got=part
            )
        fields[key] = value.strip(b" \t")
    return fields


def _choices(space: dict[str, object]) -> tuple[ActionKind, tuple[int, ...]]:
    """Kind and counts of a policy file's action space, as ActionSpec has them."""
    numbers: dict[str, list[int]] = {key: np.ravel(space.get(key, ())).astype(int).tolist() for key in ("n", "nvec")}  # type: ignore[call-overload]
    if space["type"] == "Discrete":
        return ActionKind.DISCRETE, tuple(numbers["n"])
    if space["type"] == "MultiDiscrete":
        return ActionKind.MULTI_DISCRETE, tuple(numbers["nvec"])
    if space["type"] == "MultiBinary":
        return ActionKind.MULTI_BINARY, (2,) * math.prod(space["shape"])  # type: ignore[call-overload]
    return ActionKind.BOX, ()
