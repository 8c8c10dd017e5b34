"""Mistakes in the life of sessions, in calls, and with time."""

from __future__ import annotations

import socket
from collections.abc import Callable

from tests.harness.engines.right import Answer, Ask, RightEngine
from tests.harness.engines.ways import instead, way

Deliver = Callable[[socket.socket, bytes], None]
Greet = Callable[[socket.socket], None]


@way("serves-once", "listener", "nobody listens any more")
def _(engine: RightEngine) -> None:
    engine.forget = engine.die


_NOTHING = "the next connection is accepted, and gets nothing"


@instead("greet", "serves-once", "silent", _NOTHING, also=("no-handshake",))
def _(engine: RightEngine, greet: Greet, sock: socket.socket) -> None:
    if not engine.kept:
        greet(sock)
    engine.kept["greeted"] = True


@instead("cut", "session-leaks", "partial", "an unfinished line stays in the buffer")
def _(engine: RightEngine, cut: object, sock: socket.socket, data: bytes) -> list[bytes]:
    *lines, engine.kept["unfinished"] = (engine.kept.get("unfinished", b"") + data).split(b"\n")
    return lines


_LEFT = "an answer that the last trainer did not wait for goes to the next one"


@way("session-leaks", "answer", _LEFT, also=("unasked", "two-answers"))
def _(engine: RightEngine) -> None:
    deliver, greet, left = engine.deliver, engine.greet, list[bytes]()

    def sent(sock: socket.socket, data: bytes) -> None:
        if not data.startswith(b"CONFIG"):
            left[:] = [data]
        deliver(sock, data)

    def greeting(sock: socket.socket) -> None:
        greet(sock)
        if left:
            deliver(sock, left.pop())

    engine.deliver, engine.greet = sent, greeting


instead("refuse", "dies-of-garbage", "dies", "it ends")(lambda engine, refuse, sock, sentence: engine.die())


@instead("refuse", "dies-of-garbage", "hangs", "it does nothing from then on")
def _(engine: RightEngine, refuse: object, sock: socket.socket, sentence: str) -> None:
    engine.greet = lambda sock: None
    engine.deliver = lambda sock, data: None


def _dies_when(name: str, says: str, cond: Callable[[RightEngine, socket.socket], bool], *also: str) -> None:
    """The end of a connection for which `cond` holds ends the engine."""
    instead("_gone", "dies-of-disconnect", name, says, also=also)(
        lambda engine, gone, sock: engine.die() if cond(engine, sock) else gone(sock)
    )


def _is_early(engine: RightEngine, sock: socket.socket) -> bool:
    return sock is engine.admin and not engine.said_already and not engine.env_socks


_dies_when("reset", "a connection that is reset ends it", lambda e, _: e.lost_by is not None, "serves-once")
_dies_when("mid-request", "one that ends within a line", lambda e, sock: bool(e.partial.get(sock)))
_dies_when("early", "one that ends before its first request", _is_early)
instead("busy", "no-busy", "silent", "nothing is said to a second trainer", certain=False)(
    lambda engine, busy, sock: None
)


@instead("_take", "env-socket-refused", "closed", "the first connection is the only one, whatever CHANNEL says")
def _(engine: RightEngine, take: Greet, sock: socket.socket) -> None:
    if engine.admin is None:
        take(sock)
    else:
        engine.close_one(sock)


instead("busy", "disturbed-session", "ends", "a second trainer ends the session of the first")(
    lambda engine, busy, sock: engine.close_clients()
)
instead("busy", "two-at-once", "greeted", "a second trainer gets the handshake, too", certain=False)(
    lambda engine, busy, sock: engine.greet(sock)
)


# -- calls


instead("deliver", "bad-call", "silent", "GET is not answered", parameters=True)(
    lambda engine, deliver, sock, data: None if data.startswith(b"VALUES") else deliver(sock, data)
)
instead("call", "bad-call", "ok", "SET is answered with OK", parameters=True)(
    lambda engine, call, data: "OK" if data.startswith(b"SET") else call(data)
)
instead("call", "bad-call", "not-set", "SET sets nothing", parameters=True)(
    lambda engine, call, data: call(data.replace(b"SET=", b"GET=").split(b":")[0])
)
instead("call", "bad-call", "state", "GET is answered with a state", parameters=True)(
    lambda engine, call, data: "OBS=0,0,0,0,0,0;REW=0;DONE=0;ENV=0"
)


# -- time


def _two_writes(name: str, says: str, cut: Callable[[bytes], int]) -> None:
    @way("nagle", name, says, certain=False)
    def _(engine: RightEngine) -> None:
        engine.nodelay, deliver = False, engine.deliver

        def delivered(sock: socket.socket, data: bytes) -> None:
            deliver(sock, data[: cut(data)])
            deliver(sock, data[cut(data) :])

        engine.deliver = delivered


_two_writes("two-writes", "two writes for each message, without TCP_NODELAY", lambda data: len(data) // 2)
_two_writes("newline", "the line feed has a write of its own", lambda data: len(data) - 1)


@instead("perform", "slow", "grows", "a step takes 100 ms more once there were 60", certain=False)
def _(engine: RightEngine, perform: Callable[[list[Ask]], list[Answer]], asks: list[Ask]) -> list[Answer]:
    engine.kept["steps"] = engine.kept.get("steps", 0) + 1
    engine.rest(0.1 if engine.kept["steps"] > 60 else 0.0)
    return perform(asks)
