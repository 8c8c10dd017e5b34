"""Mistakes in the life of sessions, in calls, and with time."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tests.harness.engines.right import Answer, Ask, RightEngine
from tests.harness.engines.ways import Way, collector

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS: list[Way] = []
way = collector(WAYS)


@way("serves-once", "listener", "nobody listens any more")
def _(engine: RightEngine) -> None:
    engine.forget = engine.die


@way("serves-once", "silent", "the next connection is accepted, and gets nothing", also=("no-handshake",))
def _(engine: RightEngine) -> None:
    greet, greeted = engine.greet, list[int]()

    def once(sock: socket.socket) -> None:
        if not greeted:
            greet(sock)
        greeted.append(1)

    engine.greet = once


@way("session-leaks", "partial", "an unfinished line stays in the buffer")
def _(engine: RightEngine) -> None:
    buffer = [b""]

    def one_buffer(sock: socket.socket, data: bytes) -> list[bytes]:
        *lines, buffer[0] = (buffer[0] + data).split(b"\n")
        return lines

    engine.cut = one_buffer


@way(
    "session-leaks",
    "answer",
    "an answer that the last trainer did not wait for goes to the next one",
    also=("unasked", "two-answers"),
)
def _(engine: RightEngine) -> None:
    deliver, left = engine.deliver, list[bytes]()
    greet = engine.greet

    def sent(sock: socket.socket, data: bytes) -> None:
        if not data.startswith(b"CONFIG"):
            left[:] = [data]
        deliver(sock, data)

    def greeting(sock: socket.socket) -> None:
        greet(sock)
        if left:
            deliver(sock, left.pop())

    engine.deliver, engine.greet = sent, greeting


@way("dies-of-garbage", "dies", "it ends")
def _(engine: RightEngine) -> None:
    engine.refuse = lambda sock, sentence: engine.die()


@way("dies-of-garbage", "hangs", "it does nothing from then on")
def _(engine: RightEngine) -> None:
    def hang(sock: socket.socket, sentence: str) -> None:
        engine.greet = lambda sock: None
        engine.deliver = lambda sock, data: None

    engine.refuse = hang


def _dies_when(engine: RightEngine, cond: Callable[[socket.socket], bool]) -> None:
    """The end of a connection for which `cond` holds ends the engine."""
    gone = engine._gone

    def ends(sock: socket.socket) -> None:
        if cond(sock):
            engine.die()
        else:
            gone(sock)

    engine._gone = ends  # type: ignore[method-assign]


@way("dies-of-disconnect", "reset", "a connection that is reset ends it", also=("serves-once",))
def _(engine: RightEngine) -> None:
    _dies_when(engine, lambda _: engine._lost_by is not None)


@way("dies-of-disconnect", "mid-request", "one that ends within a line")
def _(engine: RightEngine) -> None:
    _dies_when(engine, lambda sock: bool(engine._partial.get(sock)))


@way("dies-of-disconnect", "early", "one that ends before its first request")
def _(engine: RightEngine) -> None:
    _dies_when(engine, lambda sock: sock is engine._admin and not engine.said_already and not engine._envs)


@way("no-busy", "silent", "nothing is said to a second trainer", certain=False)
def _(engine: RightEngine) -> None:
    engine.busy = lambda sock: None


@way("env-socket-refused", "closed", "the first connection is the only one, whatever CHANNEL says")
def _(engine: RightEngine) -> None:
    take = engine._take

    def only_one(sock: socket.socket) -> None:
        if engine._admin is None:
            take(sock)
        else:
            engine._close(sock)

    engine._take = only_one  # type: ignore[method-assign]


@way("disturbed-session", "ends", "a second trainer ends the session of the first")
def _(engine: RightEngine) -> None:
    engine.busy = lambda sock: engine._close_clients()


@way("two-at-once", "greeted", "a second trainer gets the handshake, too", certain=False)
def _(engine: RightEngine) -> None:
    engine.busy = engine.greet


@way("bad-call", "silent", "GET is not answered", parameters=True)
def _(engine: RightEngine) -> None:
    deliver = engine.deliver
    engine.deliver = lambda sock, data: None if data.startswith(b"VALUES") else deliver(sock, data)


@way("bad-call", "ok", "SET is answered with OK", parameters=True)
def _(engine: RightEngine) -> None:
    call = engine.call
    engine.call = lambda data: "OK" if data.startswith(b"SET") else call(data)


@way("bad-call", "not-set", "SET sets nothing", parameters=True)
def _(engine: RightEngine) -> None:
    call = engine.call
    engine.call = lambda data: call(data.replace(b"SET=", b"GET=").split(b":")[0])


@way("bad-call", "state", "GET is answered with a state", parameters=True)
def _(engine: RightEngine) -> None:
    engine.call = lambda data: "OBS=0,0,0,0,0,0;REW=0;DONE=0;ENV=0"


# -- time


@way("nagle", "two-writes", "two writes for each message, without TCP_NODELAY", certain=False)
def _(engine: RightEngine) -> None:
    engine.nodelay = False
    deliver = engine.deliver

    def halves(sock: socket.socket, data: bytes) -> None:
        deliver(sock, data[: len(data) // 2])
        deliver(sock, data[len(data) // 2 :])

    engine.deliver = halves


@way("nagle", "newline", "the line feed has a write of its own", certain=False)
def _(engine: RightEngine) -> None:
    engine.nodelay = False
    deliver = engine.deliver

    def ending(sock: socket.socket, data: bytes) -> None:
        deliver(sock, data.rstrip(b"\n"))
        deliver(sock, b"\n")

    engine.deliver = ending


@way("slow", "grows", "a step takes 60 ms more once there were 250", certain=False)
def _(engine: RightEngine) -> None:
    perform, count = engine.perform, [0]

    def slowly(asks: list[Ask]) -> list[Answer]:
        count[0] += 1
        engine._wait(0.06 if count[0] > 250 else 0.0)
        return perform(asks)

    engine.perform = slowly
