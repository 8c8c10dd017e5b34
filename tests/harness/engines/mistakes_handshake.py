"""Mistakes in the handshake, and in how messages end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.harness.engines.right import Answer, Ask, RightEngine
from tests.harness.engines.ways import (
    Change,
    Way,
    config,
    line,
    made,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


@made("no-handshake", "never", "nothing comes")
def _no_handshake(engine: RightEngine) -> None:
    engine.greet = lambda sock: None


@made("late-handshake", "after-request", "it comes after the first request, with its answer")
def _late_handshake(engine: RightEngine) -> None:
    greet, cut = engine.greet, engine.cut
    engine.greet = lambda sock: None
    greeted: set[socket.socket] = set()

    def cut_late(sock: socket.socket, data: bytes) -> list[bytes]:
        if sock not in greeted:
            greeted.add(sock)
            greet(sock)
        return cut(sock, data)

    engine.cut = cut_late


@made("unasked", "at-once", "a state comes right behind the handshake")
def _answer_before_asked(engine: RightEngine) -> None:
    greet = engine.greet

    def and_a_state(sock: socket.socket) -> None:
        greet(sock)
        asks = [Ask(env, None) for env in range(engine.num_envs)]
        engine.deliver(sock, engine.join([engine.write(engine.observe(ask)) for ask in asks]))

    engine.greet = and_a_state


def _only_greeting(edit: bytes) -> Change:
    def change(engine: RightEngine) -> None:
        engine.greet = lambda sock: engine.deliver(sock, engine.config.encode() + edit)

    return change


_no_newline_greeting = made("no-newline", "handshake", "the handshake alone")(_only_greeting(b""))
_return_greeting = made("carriage-return-only", "handshake", "the handshake alone")(_only_greeting(b"\r"))
_nul_greeting = made("no-newline", "nul", "a NUL ends each message")(_only_greeting(b"\0"))


@made("handshake-again", "behind", "right behind the first one")
def _again_at_once(engine: RightEngine) -> None:
    greet = engine.greet

    def twice(sock: socket.socket) -> None:
        greet(sock)
        greet(sock)

    engine.greet = twice


def _all_bytes(name: str, says: str, edit: Callable[[bytes], bytes]) -> Way:
    """Edits every message, the handshake among them."""

    @made("not-plain-text", name, says)
    def change(engine: RightEngine) -> None:
        deliver = engine.deliver
        engine.deliver = lambda sock, data: deliver(sock, edit(data))

    return change


@made("handshake-again", "each-reset", "before the answer to each reset")
def _again(engine: RightEngine) -> None:
    join = engine.join
    resets: list[bool] = []
    write = engine.write

    def noting(answer: Answer) -> str:
        resets.append(answer.reset)
        return write(answer)

    def joined(rows: list[str]) -> bytes:
        text = join(rows)
        if any(resets):
            text = f"{engine.config}\n".encode() + text
        resets.clear()
        return text

    engine.write, engine.join = noting, joined


WAYS: list[Way] = [
    _no_handshake,
    _late_handshake,
    _answer_before_asked,
    _again,
    _again_at_once,
    config("bad-handshake", "no-word", "without the word CONFIG", lambda c: c.replace("CONFIG:", "")),
    config("wrong-version", "2", "VERSION=2", lambda c: c.replace("VERSION=1", "VERSION=2")),
    config("not-version-1", "absent", "no VERSION", lambda c: c.replace("VERSION=1;", ""), certain=False),
    config("unknown-key", "actspace", "ACTSPACE=", lambda c: c.replace("ACT_SPACE=", "ACTSPACE="), certain=False),
    config("channel-not-said", "absent", "no CHANNEL", lambda c: c.replace("CHANNEL=ANY;", ""), certain=False),
    config(
        "no-demo-action", "never", "DEMO, and no action in INFO", lambda c: c.replace("FEATURES=", "FEATURES=DEMO,")
    ),
    config("env-refused", "one-more", "ENV_COUNT is one too many", lambda c: c.replace("COUNT=3", "COUNT=4")),
    # bytes
    _all_bytes("nul", "a NUL behind each line feed, as sizeof sends it", lambda data: data + b"\0"),
    _all_bytes("nul-inside", "a NUL before each line feed", lambda data: data.replace(b"\n", b"\0\n")),
    _all_bytes("byte-order-mark", "one before each message", lambda data: b"\xef\xbb\xbf" + data),
    _all_bytes("utf-16", "UTF-16", lambda data: data.decode().encode("utf-16-le")),
    _all_bytes("length", "the length before each message", lambda data: len(data).to_bytes(4, "little") + data),
    line("not-plain-text", "nul-rows", "a NUL behind each answer", lambda data: data + b"\0"),
    # how messages end
    _no_newline_greeting,
    _nul_greeting,
    _return_greeting,
]
