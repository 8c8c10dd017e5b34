"""Mistakes in answering: too little, too much, or to a batch."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from tests.harness.engines.right import Answer, Ask, Refused, RightEngine
from tests.harness.engines.ways import instead, way

Perform = Callable[[list[Ask]], list[Answer]]
Parse = Callable[[bytes, "int | None"], list[Ask]]


instead("perform", "no-answer", "never", "nothing is ever answered")(lambda engine, perform, asks: [])
instead("perform", "env-never-answered", "env-1", "env 1")(
    lambda engine, perform, asks: perform([ask for ask in asks if ask.env != 1])
)


@way("two-answers", "sometimes", "every seventh line comes twice; a request too early ends the session")
def _(engine: RightEngine) -> None:
    deliver, answer, count, open_ones = engine.deliver, engine._answer, [0], [0]

    def twice(sock: socket.socket, data: bytes) -> None:
        count[0] += 1
        deliver(sock, data)
        if not count[0] % 7 and not data.startswith(b"CONFIG"):
            deliver(sock, data)

    def forget() -> None:
        open_ones[0] = 0

    def later(sock: socket.socket, line: bytes) -> None:
        def now() -> None:
            forget()
            answer(sock, line)

        open_ones[0] += 1
        if open_ones[0] > engine.num_envs:
            engine.refuse(sock, "asked twice")
        else:
            engine.in_a_while(0.002, now)

    engine.deliver, engine.forget = twice, forget
    engine._answer = later  # type: ignore[method-assign]


@instead("perform", "unasked-env", "all", "all envs answer, whichever are asked")
def _(engine: RightEngine, perform: Perform, asks: list[Ask]) -> list[Answer]:
    return perform(asks) + _unasked(engine, asks, set(range(engine.num_envs)))


@instead("perform", "unasked-env", "neighbour", "the next env answers, too")
def _(engine: RightEngine, perform: Perform, asks: list[Ask]) -> list[Answer]:
    return perform(asks) + _unasked(engine, asks, {(ask.env + 1) % engine.num_envs for ask in asks})


def _unasked(engine: RightEngine, asks: list[Ask], envs: set[int]) -> list[Answer]:
    return [engine.observe(Ask(env, [0.0])) for env in sorted(envs - {ask.env for ask in asks})]


@way("ends-session", "third-step", "at an env's third step")
def _(engine: RightEngine) -> None:
    perform = engine.perform

    def performed(asks: list[Ask]) -> list[Answer]:
        answers = perform(asks)
        if any(answer.steps == 3 for answer in answers):
            raise Refused("null pointer")
        return answers

    engine.perform = performed
    engine.refuse = lambda sock, sentence: engine.close_clients()


# -- batches


@way("partial-batch", "waits", "it waits until all envs have been asked", also=("no-answer", "env-never-answered"))
def _(engine: RightEngine) -> None:
    perform, asked = engine.perform, dict[int, Any]()
    engine.forget = asked.clear

    def together(asks: list[Ask]) -> list[Answer]:
        if engine.env_socks:
            return perform(asks)
        asked.update({ask.env: ask for ask in asks})
        if len(asked) < engine.num_envs:
            return []
        all_of_them = list(asked.values())
        asked.clear()
        return perform(all_of_them)

    engine.perform = together


@instead("parse", "partial-batch", "refused", "it ends the session")
def _(engine: RightEngine, parse: Parse, data: bytes, own: int | None) -> list[Ask]:
    asks = parse(data, own)
    if own is None and len(asks) < engine.num_envs:
        raise Refused("not all envs")
    return asks


_LATER = ("wrong-env-acted", "unasked-env")


@instead("perform", "partial-batch", "all-step", "the envs that are not named repeat their last action", also=_LATER)
def _(engine: RightEngine, perform: Perform, asks: list[Ask]) -> list[Answer]:
    if any(ask.action is not None for ask in asks) and not engine.env_socks:
        for env in set(range(engine.num_envs)) - {ask.env for ask in asks}:
            engine.points[env].step([0.5, 0.5])
    return perform(asks)


@way("one-request-at-a-time", "dropped", "a request beside another env's is dropped", also=("one-message-per-read",))
def _(engine: RightEngine) -> None:
    answer, busy = engine._answer, [False]

    def done() -> None:
        busy[0] = False

    def later(sock: socket.socket, line: bytes) -> None:
        def now() -> None:
            done()
            answer(sock, line)

        if not busy[0] or engine.env_socks:
            busy[0] = True
            engine.in_a_while(0.005, now)

    engine.forget = done
    engine._answer = later  # type: ignore[method-assign]


@instead("parse", "mixed-batch", "resets", "one reset makes all rows resets", also=("resets-all",))
def _(engine: RightEngine, parse: Parse, data: bytes, own: int | None) -> list[Ask]:
    asks = parse(data, own)
    if any(ask.action is None for ask in asks):
        for ask in asks:
            ask.action = None
    return asks


@instead("perform", "mixed-batch", "steps-ignored", "steps beside a reset do nothing", also=("action-ignored",))
def _(engine: RightEngine, perform: Perform, asks: list[Ask]) -> list[Answer]:
    if not any(ask.action is None for ask in asks):
        return perform(asks)
    for ask in asks:
        if ask.action is None:
            engine.begin(ask)
    return [engine.observe(ask) for ask in asks]
