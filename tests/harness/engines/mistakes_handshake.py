"""Mistakes in the handshake, and in how messages end."""

from __future__ import annotations

import socket
from collections.abc import Callable

from tests.harness.engines.right import Answer, Ask, RightEngine
from tests.harness.engines.ways import config, instead, line, way

Greet = Callable[[socket.socket], None]


instead("greet", "no-handshake", "never", "nothing comes")(lambda engine, greet, sock: None)


@way("late-handshake", "after-request", "it comes after the first request, with its answer")
def _(engine: RightEngine) -> None:
    greet, cut = engine.greet, engine.cut
    engine.greet = lambda sock: None
    greeted: set[socket.socket] = set()

    def cut_late(sock: socket.socket, data: bytes) -> list[bytes]:
        if sock not in greeted:
            greeted.add(sock)
            greet(sock)
        return cut(sock, data)

    engine.cut = cut_late


@instead("greet", "unasked", "at-once", "a state comes right behind the handshake")
def _(engine: RightEngine, greet: Greet, sock: socket.socket) -> None:
    greet(sock)
    asks = [Ask(env, None) for env in range(engine.num_envs)]
    engine.deliver(sock, engine.join([engine.write(engine.observe(ask)) for ask in asks]))


@way("handshake-again", "each-reset", "before the answer to each reset")
def _(engine: RightEngine) -> None:
    join, perform, resets = engine.join, engine.perform, [False]

    def performed(asks: list[Ask]) -> list[Answer]:
        resets[0] = any(ask.action is None for ask in asks)
        return perform(asks)

    engine.perform = performed
    engine.join = lambda rows: (f"{engine.config}\n".encode() if resets[0] else b"") + join(rows)


@instead("greet", "handshake-again", "behind", "right behind the first one")
def _(engine: RightEngine, greet: Greet, sock: socket.socket) -> None:
    greet(sock)
    greet(sock)


config("bad-handshake", "no-word", "without the word CONFIG", lambda c: c.replace("CONFIG:", ""))
config("wrong-version", "2", "VERSION=2", lambda c: c.replace("VERSION=1", "VERSION=2"))
config("not-version-1", "absent", "no VERSION", lambda c: c.replace("VERSION=1;", ""), certain=False)
config("unknown-key", "actspace", "ACTSPACE=", lambda c: c.replace("ACT_SPACE=", "ACTSPACE="), certain=False)
config("channel-not-said", "absent", "no CHANNEL", lambda c: c.replace("CHANNEL=ANY;", ""), certain=False)
config("no-demo-action", "never", "DEMO, and no action in INFO", lambda c: c.replace("FEATURES=", "FEATURES=DEMO,"))
config("env-refused", "one-more", "ENV_COUNT is one too many", lambda c: c.replace("COUNT=3", "COUNT=4"))


# -- bytes


def _all_bytes(name: str, says: str, edit: Callable[[bytes], bytes]) -> None:
    """Edits every message, the handshake among them."""
    instead("deliver", "not-plain-text", name, says)(lambda engine, deliver, sock, data: deliver(sock, edit(data)))


_all_bytes("nul", "a NUL behind each line feed, as sizeof sends it", lambda data: data + b"\0")
_all_bytes("nul-inside", "a NUL before each line feed", lambda data: data.replace(b"\n", b"\0\n"))
_all_bytes("byte-order-mark", "one before each message", lambda data: b"\xef\xbb\xbf" + data)
_all_bytes("utf-16", "UTF-16", lambda data: data.decode().encode("utf-16-le"))
_all_bytes("length", "the length before each message", lambda data: len(data).to_bytes(4, "little") + data)
line("not-plain-text", "nul-rows", "a NUL behind each answer", lambda data: data + b"\0")


# -- how the handshake ends


def _ends_with(end: bytes, mistake: str, name: str, says: str) -> None:
    instead("greet", mistake, name, says)(
        lambda engine, greet, sock: engine.deliver(sock, engine.config.encode() + end)
    )


_ends_with(b"", "no-newline", "handshake", "the handshake alone")
_ends_with(b"\0", "no-newline", "nul", "a NUL ends each message")
_ends_with(b"\r", "carriage-return-only", "handshake", "the handshake alone")
