"""Mistakes in answering: too little, too much, or to a batch."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from tests.harness.engines.right import Answer, Ask, Refused, RightEngine
from tests.harness.engines.ways import Way, collector

if TYPE_CHECKING:
    from collections.abc import Callable


WAYS: list[Way] = []
way = collector(WAYS)


def _only(engine: RightEngine, cond: Callable[[Ask], bool]) -> None:
    """Rows for which `cond` does not hold are not answered."""
    perform = engine.perform
    engine.perform = lambda asks: perform([ask for ask in asks if cond(ask)])


@way("no-answer", "never", "nothing is ever answered")
def _(engine: RightEngine) -> None:
    _only(engine, lambda ask: False)


@way("env-never-answered", "env-1", "env 1")
def _(engine: RightEngine) -> None:
    _only(engine, lambda ask: ask.env != 1)


@way("two-answers", "sometimes", "every seventh line comes twice; a request too early ends the session")
def _(engine: RightEngine) -> None:
    deliver, answer, count, open_ones = engine.deliver, engine._answer, [0], [0]

    def twice(sock: socket.socket, data: bytes) -> None:
        count[0] += 1
        deliver(sock, data)
        if not count[0] % 7 and not data.startswith(b"CONFIG"):
            deliver(sock, data)

    def later(sock: socket.socket, line: bytes) -> None:
        def now() -> None:
            open_ones[0] = 0
            answer(sock, line)

        open_ones[0] += 1
        if open_ones[0] > engine.num_envs:
            engine.refuse(sock, "asked twice")
        else:
            engine.in_a_while(0.002, now)

    def forget() -> None:
        open_ones[0] = 0

    engine.deliver, engine.forget = twice, forget
    engine._answer = later  # type: ignore[method-assign]


@way("unasked-env", "all", "all envs answer, whichever are asked")
def _(engine: RightEngine) -> None:
    perform = engine.perform

    def everybody(asks: list[Ask]) -> list[Answer]:
        answers = perform(asks)
        asked = {ask.env for ask in asks}
        return answers + [engine.observe(Ask(env, [0.0])) for env in range(engine.num_envs) if env not in asked]

    engine.perform = everybody


@way("unasked-env", "neighbour", "the next env answers, too")
def _(engine: RightEngine) -> None:
    perform = engine.perform

    def and_next(asks: list[Ask]) -> list[Answer]:
        more = {(ask.env + 1) % engine.num_envs for ask in asks} - {ask.env for ask in asks}
        return perform(asks) + [engine.observe(Ask(env, [0.0])) for env in sorted(more)]

    engine.perform = and_next


@way("ends-session", "third-step", "at an env's third step")
def _(engine: RightEngine) -> None:
    _close_when(engine, lambda answer: answer.steps == 3)


def _close_when(engine: RightEngine, cond: Callable[[Answer], bool]) -> None:
    perform = engine.perform

    def performed(asks: list[Ask]) -> list[Answer]:
        answers = perform(asks)
        if any(cond(answer) for answer in answers):
            raise Refused("null pointer")
        return answers

    engine.perform = performed
    engine.refuse = lambda sock, sentence: engine._close_clients()


# -- batches


@way("partial-batch", "waits", "it waits until all envs have been asked", also=("no-answer", "env-never-answered"))
def _(engine: RightEngine) -> None:
    perform, asked = engine.perform, dict[int, Any]()
    engine.forget = asked.clear

    def together(asks: list[Ask]) -> list[Answer]:
        if engine._envs:
            return perform(asks)
        asked.update({ask.env: ask for ask in asks})
        if len(asked) < engine.num_envs:
            return []
        all_of_them = list(asked.values())
        asked.clear()
        return perform(all_of_them)

    engine.perform = together


@way("partial-batch", "refused", "it ends the session")
def _(engine: RightEngine) -> None:
    parse = engine.parse

    def strictly(data: bytes, own: int | None) -> list[Ask]:
        asks = parse(data, own)
        if own is None and len(asks) < engine.num_envs:
            raise Refused("not all envs")
        return asks

    engine.parse = strictly


@way(
    "partial-batch",
    "all-step",
    "the envs that are not named repeat their last action",
    also=("wrong-env-acted", "unasked-env"),
)
def _(engine: RightEngine) -> None:
    perform = engine.perform

    def stepping(asks: list[Ask]) -> list[Answer]:
        if any(ask.action is not None for ask in asks) and not engine._envs:
            for env in set(range(engine.num_envs)) - {ask.env for ask in asks}:
                engine.points[env].step([0.5, 0.5])
        return perform(asks)

    engine.perform = stepping


@way("one-request-at-a-time", "dropped", "a request beside another env's is dropped", also=("one-message-per-read",))
def _(engine: RightEngine) -> None:
    answer, busy = engine._answer, [False]

    def done() -> None:
        busy[0] = False

    engine.forget = done

    def later(sock: socket.socket, line: bytes) -> None:
        def now() -> None:
            busy[0] = False
            answer(sock, line)

        if not busy[0] or engine._envs:
            busy[0] = True
            engine.in_a_while(0.005, now)

    engine._answer = later  # type: ignore[method-assign]


@way("mixed-batch", "resets", "one reset makes all rows resets", also=("resets-all",))
def _(engine: RightEngine) -> None:
    parse = engine.parse

    def alike(data: bytes, own: int | None) -> list[Ask]:
        asks = parse(data, own)
        if any(ask.action is None for ask in asks):
            for ask in asks:
                ask.action = None
        return asks

    engine.parse = alike


@way("mixed-batch", "steps-ignored", "steps beside a reset do nothing", also=("action-ignored",))
def _(engine: RightEngine) -> None:
    perform = engine.perform

    def performed(asks: list[Ask]) -> list[Answer]:
        if any(ask.action is None for ask in asks):
            for ask in asks:
                if ask.action is None:
                    engine.begin(ask)
            return [engine.observe(ask) for ask in asks]
        return perform(asks)

    engine.perform = performed
