"""Mistakes in reading requests."""

from __future__ import annotations

import re
import socket

from tests.harness.engines.right import RightEngine
from tests.harness.engines.ways import Way, collector, refuse_text

WAYS: list[Way] = []
way = collector(WAYS)


def _skip_text(engine: RightEngine, pattern: bytes) -> None:
    """Lines in which `pattern` is found are not answered."""
    parse = engine.parse
    engine.parse = lambda data, own: [] if re.search(pattern, data) else parse(data, own)


@way("one-read-one-message", "whole", "what a read brings is the message")
def _(engine: RightEngine) -> None:
    engine.cut = lambda sock, data: [line for line in data.split(b"\n") if line.strip()]


@way("short-reads", "dropped", "1024 bytes are read, and what is behind them is dropped")
def _(engine: RightEngine) -> None:
    cut = engine.cut
    engine.cut = lambda sock, data: cut(sock, data[:1024] + (b"\n" if len(data) > 1024 else b""))


@way("one-message-per-read", "lost", "the others are lost")
def _(engine: RightEngine) -> None:
    cut = engine.cut
    engine.cut = lambda sock, data: cut(sock, data)[:1]


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
    @way(mistake, name, f"{says} ends the session")
    def _(engine: RightEngine) -> None:
        refuse_text(engine, pattern, "cannot be read")

    @way(mistake, f"{name}-silent", f"a line with {says} is not answered", also=("no-answer",))
    def _(engine: RightEngine) -> None:
        _skip_text(engine, pattern)


for _each in _SPELLINGS:
    _spelling(*_each)


@way("numbers-not-read", "as-zero", "a number with an exponent is read up to it")
def _(engine: RightEngine) -> None:
    number = engine.number
    engine.number = lambda text: number(re.split("[eE]", text)[0])  # type: ignore[method-assign]


@way("empty-line-refused", "session", "an empty line ends the session")
def _(engine: RightEngine) -> None:
    def strictly(sock: socket.socket, data: bytes) -> list[bytes]:
        lines = cut(sock, data)
        if any(not each.strip() for each in lines):
            engine.refuse(sock, "an empty line")
            return []
        return lines

    cut, engine.cut = engine.cut, strictly
