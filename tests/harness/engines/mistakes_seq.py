"""Mistakes in the numbers of requests (FEATURES=SEQ)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.harness.engines.right import Answer, Ask, RightEngine
from tests.harness.engines.ways import Way, collector

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS: list[Way] = []
way = collector(WAYS)


def _other(engine: RightEngine, number: Callable[[int], int]) -> None:
    """Another number is echoed than the one that came."""
    echo = engine.echo
    engine.echo = lambda lines, came, call: echo(lines, b"%d" % number(int(came)) if came else b"", call)


@way("number-missing", "all", "SEQ is announced, and no number is echoed", numbers=True)
def _(engine: RightEngine) -> None:
    engine.echo = lambda lines, came, call: lines


@way("number-missing", "steps", "only answers to resets have one", numbers=True)
def _(engine: RightEngine) -> None:
    perform, echo, resets = engine.perform, engine.echo, [False]

    def seen(asks: list[Ask]) -> list[Answer]:
        resets[0] = all(ask.action is None for ask in asks)
        return perform(asks)

    engine.perform = seen
    engine.echo = lambda lines, came, call: echo(lines, came if call or resets[0] else b"", call)


@way("number-missing-in-calls", "all", "answers to calls have none", numbers=True, parameters=True)
def _(engine: RightEngine) -> None:
    echo = engine.echo
    engine.echo = lambda lines, came, call: echo(lines, b"" if call else came, call)


@way("number-missing-in-calls", "refused", "REFUSED has none", numbers=True, parameters=True)
def _(engine: RightEngine) -> None:
    echo = engine.echo
    engine.echo = lambda lines, came, call: echo(lines, b"" if lines.startswith(b"REFUSED") else came, call)


@way("number-wrong", "constant", "it is always 1", numbers=True)
def _(engine: RightEngine) -> None:
    _other(engine, lambda number: 1)


@way("number-wrong", "off-by-one", "it is one more", numbers=True)
def _(engine: RightEngine) -> None:
    _other(engine, lambda number: number + 1)


@way("number-wrong", "previous", "it is that of the request before", numbers=True)
def _(engine: RightEngine) -> None:
    before = [1]

    def late(number: int) -> int:
        before[0], last = number, before[0]
        return last

    _other(engine, late)


@way("number-wrong", "calls", "answers to calls have that of the request before", numbers=True, parameters=True)
def _(engine: RightEngine) -> None:
    echo = engine.echo
    engine.echo = lambda lines, came, call: echo(lines, b"%d" % (int(came) - 1) if call and came else came, call)


@way("number-not-last", "first-row", "it stands behind the first row", numbers=True, channel="SHARED")
def _(engine: RightEngine) -> None:
    def first(lines: bytes, came: bytes, call: bool) -> bytes:
        at = min((at for at in (lines.find(b"||"), lines.find(b"\n")) if at >= 0), default=0)
        return lines[:at] + (b";SEQ=" + came if came else b"") + lines[at:]

    engine.echo = first


@way("number-not-last", "in-front", "it stands in front of DONE", numbers=True)
def _(engine: RightEngine) -> None:
    engine.echo = lambda lines, came, call: lines.replace(b";DONE", b";SEQ=%b;DONE" % came, 1) if came else lines


@way("number-not-last", "twice", "it comes twice", numbers=True)
def _(engine: RightEngine) -> None:
    echo = engine.echo
    engine.echo = lambda lines, came, call: echo(echo(lines, came, call), came, call)
