"""The rows of requests, and every spelling of a line that the grammar allows. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text.agent_rows import live_rows
from ue_rl.system.json_text import json_text

Spelling = Callable[[str], Sequence[bytes]]  # how a request's text becomes the pieces that are sent

_SEQ = re.compile(r"(;SEQ=\d+)?$")  # stands last, whatever else is spelt otherwise
_NUMBER = re.compile(r"(?<=[=,])[+-]?[0-9][^,;|]*")
_BYTEWISE = 2000  # bytes that are sent one by one; the rest of a longer line in one piece


def reset_row(spec: EnvSpec, env: int, seed: int | None = None, options: Mapping[str, Any] | None = None) -> str:
    """What asks for a reset of `env`."""
    if spec.env_type is EnvType.RLBASE:
        return "RESET"
    text = f"ACT=RESET;ENV={env}"
    if seed is not None:
        text += f";SEED={seed}"
    if options is not None:
        text += f";OPTIONS={quote(json_text(options, 'OPTIONS', env), safe='')}"
    return text


def action_rows(spec: EnvSpec, buffers: StepBuffers, env: int, actions: NDArray[np.float32]) -> list[str]:
    """What asks for a step of `env`: a row, or one for each agent that `buffers` says is there."""
    if spec.env_type is EnvType.RLBASE:
        return [numbers(actions[env])]
    if not spec.groups:
        return [f"ACT={numbers(actions[env])};ENV={env}"]
    per_env = spec.agents_per_env
    rows = live_rows(buffers, spec)
    if rows is None:
        live = range(spec.num_rows)
    else:
        live = rows.tolist()
    sizes = [group.spec.act_size for group in spec.groups for _ in range(group.count)]
    return [
        f"ACT={numbers(actions[row][: sizes[row % per_env]])};ENV={env};AGENT={row % per_env}"
        for row in live
        if row // per_env == env
    ]


def numbers(row: NDArray[np.float32]) -> str:
    """`0.5,-1,0.00001`: the shortest text that reads back to the same float32, without an exponent."""
    return ",".join(np.format_float_positional(x, trim="-") for x in row)


def plain(line: str) -> Sequence[bytes]:
    """A request as everybody writes it: one piece, with a line feed."""
    return (line.encode() + b"\n",)


def two_pieces(line: str) -> Sequence[bytes]:
    """The first third, and the rest."""
    raw = line.encode() + b"\n"
    return raw[: len(raw) // 3], raw[len(raw) // 3 :]


def byte_by_byte(line: str) -> Sequence[bytes]:
    """Each byte with a write of its own."""
    raw = line.encode() + b"\n"
    return [*(raw[at : at + 1] for at in range(min(len(raw) - 1, _BYTEWISE))), raw[min(len(raw) - 1, _BYTEWISE) :]]


def crlf(line: str) -> Sequence[bytes]:
    """With a carriage return before each line feed."""
    return (line.replace("\n", "\r\n").encode() + b"\r\n",)


def spaces(line: str) -> Sequence[bytes]:
    """With spaces and tabs around each field and each equals sign."""
    asks, number = _apart(line)
    rows = [" ;\t".join(part.replace("=", " =\t") for part in row.split(";")) for row in asks.split("||")]
    return (f" {' || '.join(rows)}\t{number}\n".encode(),)


def lower_case(line: str) -> Sequence[bytes]:
    """Keys and the word RESET in lower case."""
    return (line.lower().encode() + b"\n",)


def unknown_keys(line: str) -> Sequence[bytes]:
    """With a field that nobody knows before ENV, and one at the end of each row."""
    asks, number = _apart(line)
    rows = [f"{row.replace(';ENV=', ';X_HINT=turn left;ENV=', 1)};X_NOTE=a=b" for row in asks.split("||")]
    return (f"{'||'.join(rows)}{number}\n".encode(),)


def empty_lines(line: str) -> Sequence[bytes]:
    """With empty lines before, and one behind."""
    return (b"\n\n" + line.encode() + b"\n\n",)


def _apart(line: str) -> tuple[str, str]:
    """(the asks of a request, `;SEQ=n` or nothing)."""
    found = _SEQ.search(line)
    assert found is not None
    return line[: found.start()], found[0]


def longer(line: str, size: int) -> str:
    """With zeros at the ends of its numbers, so that it has `size` bytes, its line feed included."""
    numbers = [found for found in _NUMBER.finditer(line) if "e" not in found[0] and _is_action(line, found.start())]
    if not numbers or len(line) >= size:
        return line
    extra = size - 1 - len(line) - sum("." not in found[0] for found in numbers)
    parts = []
    at = 0
    if extra <= 0:
        return line
    for n, found in enumerate(numbers):
        zeros = extra // len(numbers) + (n < extra % len(numbers))
        parts += [line[at : found.end()], "" if "." in found[0] else ".", "0" * zeros]
        at = found.end()
    return "".join([*parts, line[at:]])


def numbers_otherwise(way: str, line: str) -> Sequence[bytes]:
    """The same actions, each number in another spelling of the grammar; `way` is a key of WAYS."""

    def spelled(found: re.Match[str]) -> str:
        if _is_action(line, found.start()):
            return WAYS[way](found[0])
        return found[0]

    return (_NUMBER.sub(spelled, line).encode() + b"\n",)


def _is_action(line: str, at: int) -> bool:
    """Does a number stand in ACT, and not in ENV, AGENT or SEED? RLBASE has no keys."""
    key = line.rfind("=", 0, at)
    return key < 0 or line[:key].rstrip().upper().endswith("ACT")


def _with_exponent(text: str) -> str:
    if text[0] == "-":
        sign = "-"
        digits = text[1:]
    else:
        sign = ""
        digits = text
    whole, _, decimals = digits.partition(".")
    if "e" in digits:
        return text.replace("e", "E")
    if len(decimals) == 1:  # 5e-1: whoever reads up to the e finds another number
        return f"{sign}{(whole + decimals).lstrip('0') or '0'}e-1"
    return f"{text}e0"


def _with_plus(text: str) -> str:
    if text[0] == "-":
        return text
    return f"+{text}"


def _without_zero(text: str) -> str:
    return re.sub(r"^(-?)0\.(?=\d)", r"\1.", text)


def _with_point(text: str) -> str:
    if "." in text or "e" in text:
        return text
    return f"{text}."


def _with_zeros(text: str) -> str:
    if "e" in text:
        return text
    if "." in text:
        return f"{text}00"
    return f"{text}.00"


# An example -> how to spell a number like it. Each gives a number of the same value.
WAYS = {"+1": _with_plus, ".5": _without_zero, "1.": _with_point, "0.500": _with_zeros, "5e-1": _with_exponent}
