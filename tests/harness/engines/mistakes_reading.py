"""Mistakes in reading requests."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

from tests.harness.engines.right import Ask, Refused, RightEngine
from tests.harness.engines.ways import instead

Cut = Callable[[socket.socket, bytes], list[bytes]]


instead("cut", "one-read-one-message", "whole", "what a read brings is the message")(
    lambda engine, cut, sock, data: [line for line in data.split(b"\n") if line.strip()]
)
instead("cut", "short-reads", "dropped", "1024 bytes are read, and what is behind them is dropped")(
    lambda engine, cut, sock, data: cut(sock, data[:1024] + (b"\n" if len(data) > 1024 else b""))
)
instead("cut", "one-message-per-read", "lost", "the others are lost")(
    lambda engine, cut, sock, data: cut(sock, data)[:1]
)

_UNKNOWN = rb"(?i)(?<![A-Z_])(?!ACT|ENV|SEED|OPTIONS|SET|AGENT)[A-Z_]+\s*="
_SPELLINGS: list[tuple[str, str, bytes, str]] = [
    ("no-crlf", "return", rb"\r", "a carriage return"),
    ("no-spaces", "blank", rb" ", "a blank"),
    ("no-spaces", "tab", rb"\t", "a tab"),
    ("no-lower-case", "keys", rb"act|env", "keys in lower case"),
    ("unknown-key-refused", "any", _UNKNOWN, "a key that it does not know"),
    ("numbers-not-read", "exponent", rb"[\d.][eE]", "an exponent"),
    ("numbers-not-read", "plus", rb"[=,]\s*\+", "a plus"),
    ("numbers-not-read", "leading", rb"[=,+-]\.\d", ".5"),
    ("numbers-not-read", "trailing", rb"\d\.(?!\d)", "5."),
    ("numbers-not-read", "fraction", rb"\d\.\d", "a fraction"),
]  # fmt: skip


def _spelling(mistake: str, name: str, pattern: bytes, says: str) -> None:
    @instead("parse", mistake, name, f"{says} ends the session")
    def _(engine: RightEngine, parse: Callable[..., list[Ask]], data: bytes, own: int | None) -> list[Ask]:
        if re.search(pattern, data):
            raise Refused("cannot be read")
        return parse(data, own)

    instead("parse", mistake, f"{name}-silent", f"a line with {says} is not answered", also=("no-answer",))(
        lambda engine, parse, data, own: [] if re.search(pattern, data) else parse(data, own)
    )


for _each in _SPELLINGS:
    _spelling(*_each)
instead("number", "numbers-not-read", "as-zero", "a number with an exponent is read up to it")(
    lambda engine, number, text: number(re.split("[eE]", text)[0])
)


@instead("cut", "empty-line-refused", "session", "an empty line ends the session")
def _(engine: RightEngine, cut: Cut, sock: socket.socket, data: bytes) -> list[bytes]:
    lines = cut(sock, data)
    if all(each.strip() for each in lines):
        return lines
    engine.refuse(sock, "an empty line")
    return []
