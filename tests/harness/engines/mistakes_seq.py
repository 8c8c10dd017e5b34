"""Mistakes in the numbers of requests (FEATURES=SEQ)."""

from __future__ import annotations

from collections.abc import Callable

from tests.harness.engines.right import Answer, Ask, RightEngine
from tests.harness.engines.ways import instead, way

Echo = Callable[[bytes, bytes, bool], bytes]


def _echoed(
    mistake: str, name: str, says: str, number: Callable[[RightEngine, bytes, bytes, bool], bytes], **needs: bool
) -> None:
    """Another number is echoed than the one that came; b"": none."""
    instead("echo", mistake, name, says, numbers=True, **needs)(
        lambda engine, echo, lines, came, call: echo(lines, number(engine, lines, came, call) if came else b"", call)
    )


_echoed("number-missing", "all", "SEQ is announced, and no number is echoed", lambda *_: b"")


@way("number-missing", "steps", "only answers to resets have one", numbers=True)
def _(engine: RightEngine) -> None:
    perform, echo, resets = engine.perform, engine.echo, [False]

    def seen(asks: list[Ask]) -> list[Answer]:
        resets[0] = all(ask.action is None for ask in asks)
        return perform(asks)

    engine.perform = seen
    engine.echo = lambda lines, came, call: echo(lines, came if call or resets[0] else b"", call)


def _previous(engine: RightEngine, lines: bytes, came: bytes, call: bool) -> bytes:
    last, engine.kept["number"] = engine.kept.get("number", b"1"), came
    return bytes(last)


_CALLS = "number-missing-in-calls"
_echoed(
    _CALLS, "all", "answers to calls have none", lambda e, lines, came, call: b"" if call else came, parameters=True
)
_echoed(
    _CALLS, "refused", "REFUSED has none",
    lambda e, lines, came, call: b"" if lines.startswith(b"REFUSED") else came, parameters=True,
)  # fmt: skip
_echoed("number-wrong", "constant", "it is always 1", lambda *_: b"1")
_echoed("number-wrong", "off-by-one", "it is one more", lambda e, lines, came, call: b"%d" % (int(came) + 1))
_echoed("number-wrong", "previous", "it is that of the request before", _previous)
_echoed(
    "number-wrong", "calls", "answers to calls have that of the request before",
    lambda e, lines, came, call: b"%d" % (int(came) - call), parameters=True,
)  # fmt: skip


@instead("echo", "number-not-last", "first-row", "it stands behind the first row", numbers=True, channel="SHARED")
def _(engine: RightEngine, echo: Echo, lines: bytes, came: bytes, call: bool) -> bytes:
    at = min((at for at in (lines.find(b"||"), lines.find(b"\n")) if at >= 0), default=0)
    return lines[:at] + (b";SEQ=" + came if came else b"") + lines[at:]


instead("echo", "number-not-last", "in-front", "it stands in front of DONE", numbers=True)(
    lambda engine, echo, lines, came, call: lines.replace(b";DONE", b";SEQ=%b;DONE" % came, 1) if came else lines
)
instead("echo", "number-not-last", "twice", "it comes twice", numbers=True)(
    lambda engine, echo, lines, came, call: echo(echo(lines, came, call), came, call)
)
