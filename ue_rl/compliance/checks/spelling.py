"""Other spellings of a request that the grammar allows. No I/O; see ue_rl.compliance.text_peer.Spelling."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"(?<=[=,])[+-]?[0-9][^,;|]*")
_BYTEWISE = 2000  # bytes that are sent one by one; the rest of a longer line in one piece


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
    rows = [" ;\t".join(part.replace("=", " =\t") for part in row.split(";")) for row in line.split("||")]
    return (f" {' || '.join(rows)}\t\n".encode(),)


def lower_case(line: str) -> Sequence[bytes]:
    """Keys and the word RESET in lower case."""
    return (line.lower().encode() + b"\n",)


def unknown_keys(line: str) -> Sequence[bytes]:
    """With a field that nobody knows before ENV, and one at the end of each row."""
    rows = [f"{row.replace(';ENV=', ';X_HINT=turn left;ENV=', 1)};X_NOTE=a=b" for row in line.split("||")]
    return ("||".join(rows).encode() + b"\n",)


def empty_lines(line: str) -> Sequence[bytes]:
    """With empty lines before, and one behind."""
    return (b"\n\n" + line.encode() + b"\n\n",)


def longer(line: str, size: int) -> str:
    """With zeros at the ends of its numbers, so that it has `size` bytes, its line feed included."""
    numbers = [found for found in _NUMBER.finditer(line) if "e" not in found[0] and _is_action(line, found.start())]
    if not numbers or len(line) >= size:
        return line
    extra, parts, at = size - 1 - len(line) - sum("." not in found[0] for found in numbers), [], 0
    if extra <= 0:
        return line
    for n, found in enumerate(numbers):
        zeros = extra // len(numbers) + (n < extra % len(numbers))
        parts += [line[at : found.end()], "" if "." in found[0] else ".", "0" * zeros]
        at = found.end()
    return "".join([*parts, line[at:]])


def numbers_otherwise(line: str) -> Sequence[bytes]:
    """The same actions, each number in another spelling of the grammar."""
    count = -1

    def spelled(found: re.Match[str]) -> str:
        nonlocal count
        if not _is_action(line, found.start()):
            return found[0]
        count += 1
        return _otherwise(found[0], count)

    return (_NUMBER.sub(spelled, line).encode() + b"\n",)


def _is_action(line: str, at: int) -> bool:
    """Does a number stand in ACT, and not in ENV, AGENT or SEED? RLBASE has no keys."""
    key = line.rfind("=", 0, at)
    return key < 0 or line[:key].rstrip().upper().endswith("ACT")


def _otherwise(text: str, n: int) -> str:
    """A number of the same value; the n-th way of it."""
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text.lstrip("+"))
    if "e" in digits.lower():
        return ("-" if sign else "+") + digits.replace("e", "E")
    way = n % 4
    if way == 0:
        return ("-" if sign else "+") + digits
    if way == 1:
        return f"{sign}{digits}e0"
    if way == 2:
        return f"{sign}{digits}0" if "." in digits else f"{sign}{digits}."
    return f"{sign}{digits[1:]}" if digits.startswith("0.") else f"{sign}0{digits}"
