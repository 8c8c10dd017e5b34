"""Mistakes in answering: too little, too much, or to a batch."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from tests.harness.engines.right import Answer, Ask, Refused, RightEngine
from tests.harness.engines.ways import Way, collector, refuse_text

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


@way("no-answer", "steps", "resets alone are answered", also=("env-never-answered",))
def _(engine: RightEngine) -> None:
    _only(engine, lambda ask: ask.action is None)


@way("no-answer", "tenth", "from the tenth step of an episode on", also=("env-never-answered",))
def _(engine: RightEngine) -> None:
    _only(engine, lambda ask: ask.action is None or engine.points[ask.env].steps < 10)


@way("env-never-answered", "env-1", "env 1")
def _(engine: RightEngine) -> None:
    _only(engine, lambda ask: ask.env != 1)


@way("env-never-answered", "last-steps", "the last one, in steps")
def _(engine: RightEngine) -> None:
    _only(engine, lambda ask: ask.env != 2 or ask.action is None)


@way("env-never-answered", "done", "one whose episode has ended", also=("no-answer",))
def _(engine: RightEngine) -> None:
    perform = engine.perform
    engine.perform = lambda asks: [answer for answer in perform(asks) if not answer.done]


@way("env-never-answered", "second-episode", "env 0, once its first episode is over", also=("no-answer",))
def _(engine: RightEngine) -> None:
    resets = [0] * engine.num_envs

    def once(ask: Ask) -> bool:
        resets[ask.env] += ask.action is None and engine.points[ask.env].done
        return ask.env != 0 or not resets[0]

    _only(engine, once)


def _twice(engine: RightEngine, when: Callable[[Answer], bool]) -> None:
    perform = engine.perform
    engine.perform = lambda asks: [
        each for answer in perform(asks) for each in ([answer, answer] if when(answer) else [answer])
    ]


@way("two-answers", "rows", "each row comes twice in the line")
def _(engine: RightEngine) -> None:
    _twice(engine, lambda answer: True)


@way("two-answers", "lines", "the line comes twice")
def _(engine: RightEngine) -> None:
    join = engine.join
    engine.join = lambda rows: join(rows) * 2


@way("two-answers", "late", "the line comes again after 50 ms")
def _(engine: RightEngine) -> None:
    deliver = engine.deliver

    def twice(sock: socket.socket, data: bytes) -> None:
        deliver(sock, data)
        if not data.startswith(b"CONFIG"):
            engine.in_a_while(0.05, lambda: deliver(sock, data))

    engine.deliver = twice


@way("two-answers", "done", "at an episode's end")
def _(engine: RightEngine) -> None:
    _twice(engine, lambda answer: answer.done)


@way("two-answers", "done-line", "at an episode's end, in a line of its own")
def _(engine: RightEngine) -> None:
    _extra_line(engine, lambda answer: answer.done, again=True)


@way("two-answers", "reset", "after a reset")
def _(engine: RightEngine) -> None:
    _twice(engine, lambda answer: answer.reset)


@way("two-answers", "env-0", "env 0 alone")
def _(engine: RightEngine) -> None:
    _twice(engine, lambda answer: answer.env == 0)


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


def _extra_line(engine: RightEngine, when: Callable[[Answer], bool], again: bool) -> None:
    perform, deliver, join = engine.perform, engine.deliver, engine.join
    extra: list[str] = []

    def performed(asks: list[Ask]) -> list[Answer]:
        answers = perform(asks)
        for answer in answers:
            if when(answer):
                if not again:
                    engine.points[answer.env].reset()
                extra.append(engine.write(answer if again else engine.observe(answer.ask)))
        return answers

    def sent(sock: socket.socket, data: bytes) -> None:
        rows, extra[:] = extra[:], []
        deliver(sock, data + (join(rows) if rows else b""))

    engine.perform, engine.deliver = performed, sent


@way(
    "unasked",
    "next-episode",
    "the next episode's first state comes by itself behind the last one",
    also=("two-answers", "resets-itself"),
)
def _(engine: RightEngine) -> None:
    _extra_line(engine, lambda answer: answer.done, again=False)


@way("unasked", "free-running", "states come every 20 ms, asked or not", also=("two-answers",))
def _(engine: RightEngine) -> None:
    greet = engine.greet

    def ticking(sock: socket.socket) -> None:
        def tick() -> None:
            if engine.said_already or engine._envs:
                rows = [engine.write(engine.observe(Ask(env, None))) for env in range(engine.num_envs)]
                engine.deliver(engine._envs[0] if engine._envs else sock, engine.join(rows))
            engine.in_a_while(0.02, tick)

        greet(sock)
        engine.in_a_while(0.02, tick)

    engine.greet = ticking


@way("unasked", "debug", "a line of the game's log comes between them", also=("malformed-row", "missing-field"))
def _(engine: RightEngine) -> None:
    join = engine.join
    engine.join = lambda rows: join(rows) + b"LogTemp: stepped\n"


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


@way("ends-session", "done", "when an episode ends")
def _(engine: RightEngine) -> None:
    _close_when(engine, lambda answer: answer.done)


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


@way("mixed-batch", "steps-lost", "steps beside a reset are not answered", also=("env-never-answered",))
def _(engine: RightEngine) -> None:
    perform = engine.perform

    def performed(asks: list[Ask]) -> list[Answer]:
        resets = [ask for ask in asks if ask.action is None]
        return perform(resets or asks)

    engine.perform = performed


@way("mixed-batch", "refused", "it ends the session")
def _(engine: RightEngine) -> None:
    refuse_text(engine, rb"RESET.*\|\|ACT=[-\d]|ACT=[-\d].*RESET", "steps and resets at once")


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
