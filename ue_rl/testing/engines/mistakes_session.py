"""Mistakes in answering, reading, and in the life of sessions."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Any

from ue_rl.testing.engines.ways import Way, collector

if TYPE_CHECKING:
    from collections.abc import Callable

    from ue_rl.testing.engines.mistaken import Answer, Ask, MistakenEngine

WAYS: list[Way] = []


way = collector(WAYS)


def _refuse_text(engine: MistakenEngine, pattern: bytes, says: str) -> None:
    """Lines in which `pattern` is found end the session."""
    from ue_rl.testing.engines.mistaken import Refused

    parse = engine.parse

    def strictly(data: bytes, own: int | None) -> list[Ask]:
        if re.search(pattern, data):
            raise Refused(says)
        return parse(data, own)

    engine.parse = strictly


def _skip_text(engine: MistakenEngine, pattern: bytes) -> None:
    """Lines in which `pattern` is found are not answered."""
    parse = engine.parse
    engine.parse = lambda data, own: [] if re.search(pattern, data) else parse(data, own)


def _only(engine: MistakenEngine, cond: Callable[[Ask], bool]) -> None:
    """Rows for which `cond` does not hold are not answered."""
    perform = engine.perform
    engine.perform = lambda asks: perform([ask for ask in asks if cond(ask)])


# -- answers


@way("no-answer", "never", "nothing is ever answered")
def _(engine: MistakenEngine) -> None:
    _only(engine, lambda ask: False)


@way("no-answer", "steps", "resets alone are answered", also=("env-never-answered",))
def _(engine: MistakenEngine) -> None:
    _only(engine, lambda ask: ask.action is None)


@way("no-answer", "tenth", "from the tenth step of an episode on", also=("env-never-answered",))
def _(engine: MistakenEngine) -> None:
    _only(engine, lambda ask: ask.action is None or engine.points[ask.env].steps < 10)


@way("env-never-answered", "env-1", "env 1")
def _(engine: MistakenEngine) -> None:
    _only(engine, lambda ask: ask.env != 1)


@way("env-never-answered", "last-steps", "the last one, in steps")
def _(engine: MistakenEngine) -> None:
    _only(engine, lambda ask: ask.env != 2 or ask.action is None)


@way("env-never-answered", "done", "one whose episode has ended", also=("no-answer",))
def _(engine: MistakenEngine) -> None:
    perform = engine.perform
    engine.perform = lambda asks: [answer for answer in perform(asks) if not answer.done]


@way("env-never-answered", "second-episode", "env 0, once its first episode is over", also=("no-answer",))
def _(engine: MistakenEngine) -> None:
    resets = [0] * engine.num_envs

    def once(ask: Ask) -> bool:
        resets[ask.env] += ask.action is None and engine.points[ask.env].done
        return ask.env != 0 or not resets[0]

    _only(engine, once)


def _twice(engine: MistakenEngine, when: Callable[[Answer], bool]) -> None:
    perform = engine.perform
    engine.perform = lambda asks: [
        each for answer in perform(asks) for each in ([answer, answer] if when(answer) else [answer])
    ]


@way("two-answers", "rows", "each row comes twice in the line")
def _(engine: MistakenEngine) -> None:
    _twice(engine, lambda answer: True)


@way("two-answers", "lines", "the line comes twice")
def _(engine: MistakenEngine) -> None:
    join = engine.join
    engine.join = lambda rows: join(rows) * 2


@way("two-answers", "late", "the line comes again after 50 ms")
def _(engine: MistakenEngine) -> None:
    deliver = engine.deliver

    def twice(sock: socket.socket, data: bytes) -> None:
        deliver(sock, data)
        if not data.startswith(b"CONFIG"):
            engine.in_a_while(0.05, lambda: deliver(sock, data))

    engine.deliver = twice


@way("two-answers", "done", "at an episode's end")
def _(engine: MistakenEngine) -> None:
    _twice(engine, lambda answer: answer.done)


@way("two-answers", "done-line", "at an episode's end, in a line of its own")
def _(engine: MistakenEngine) -> None:
    _extra_line(engine, lambda answer: answer.done, again=True)


@way("two-answers", "reset", "after a reset")
def _(engine: MistakenEngine) -> None:
    _twice(engine, lambda answer: answer.reset)


@way("two-answers", "env-0", "env 0 alone")
def _(engine: MistakenEngine) -> None:
    _twice(engine, lambda answer: answer.env == 0)


def _extra_line(engine: MistakenEngine, when: Callable[[Answer], bool], again: bool) -> None:
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
def _(engine: MistakenEngine) -> None:
    _extra_line(engine, lambda answer: answer.done, again=False)


@way("unasked", "free-running", "states come every 20 ms, asked or not", also=("two-answers",))
def _(engine: MistakenEngine) -> None:
    from ue_rl.testing.engines.mistaken import Ask

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
def _(engine: MistakenEngine) -> None:
    join = engine.join
    engine.join = lambda rows: join(rows) + b"LogTemp: stepped\n"


@way("unasked-env", "all", "all envs answer, whichever are asked")
def _(engine: MistakenEngine) -> None:
    from ue_rl.testing.engines.mistaken import Ask

    perform = engine.perform

    def everybody(asks: list[Ask]) -> list[Answer]:
        answers = perform(asks)
        asked = {ask.env for ask in asks}
        return answers + [engine.observe(Ask(env, [0.0])) for env in range(engine.num_envs) if env not in asked]

    engine.perform = everybody


@way("unasked-env", "neighbour", "the next env answers, too")
def _(engine: MistakenEngine) -> None:
    from ue_rl.testing.engines.mistaken import Ask

    perform = engine.perform

    def and_next(asks: list[Ask]) -> list[Answer]:
        more = {(ask.env + 1) % engine.num_envs for ask in asks} - {ask.env for ask in asks}
        return perform(asks) + [engine.observe(Ask(env, [0.0])) for env in sorted(more)]

    engine.perform = and_next


@way("ends-session", "third-step", "at an env's third step")
def _(engine: MistakenEngine) -> None:
    _close_when(engine, lambda answer: answer.steps == 3)


@way("ends-session", "done", "when an episode ends")
def _(engine: MistakenEngine) -> None:
    _close_when(engine, lambda answer: answer.done)


def _close_when(engine: MistakenEngine, cond: Callable[[Answer], bool]) -> None:
    from ue_rl.testing.engines.mistaken import Refused

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
def _(engine: MistakenEngine) -> None:
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
def _(engine: MistakenEngine) -> None:
    from ue_rl.testing.engines.mistaken import Refused

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
def _(engine: MistakenEngine) -> None:
    perform = engine.perform

    def stepping(asks: list[Ask]) -> list[Answer]:
        if any(ask.action is not None for ask in asks) and not engine._envs:
            for env in set(range(engine.num_envs)) - {ask.env for ask in asks}:
                engine.points[env].step([0.5, 0.5])
        return perform(asks)

    engine.perform = stepping


@way("mixed-batch", "resets", "one reset makes all rows resets", also=("resets-all",))
def _(engine: MistakenEngine) -> None:
    parse = engine.parse

    def alike(data: bytes, own: int | None) -> list[Ask]:
        asks = parse(data, own)
        if any(ask.action is None for ask in asks):
            for ask in asks:
                ask.action = None
        return asks

    engine.parse = alike


@way("mixed-batch", "steps-lost", "steps beside a reset are not answered", also=("env-never-answered",))
def _(engine: MistakenEngine) -> None:
    perform = engine.perform

    def performed(asks: list[Ask]) -> list[Answer]:
        resets = [ask for ask in asks if ask.action is None]
        return perform(resets or asks)

    engine.perform = performed


@way("mixed-batch", "refused", "it ends the session")
def _(engine: MistakenEngine) -> None:
    _refuse_text(engine, rb"RESET.*\|\|ACT=[-\d]|ACT=[-\d].*RESET", "steps and resets at once")


@way("mixed-batch", "steps-ignored", "steps beside a reset do nothing", also=("action-ignored",))
def _(engine: MistakenEngine) -> None:
    perform = engine.perform

    def performed(asks: list[Ask]) -> list[Answer]:
        if any(ask.action is None for ask in asks):
            for ask in asks:
                if ask.action is None:
                    engine.begin(ask)
            return [engine.observe(ask) for ask in asks]
        return perform(asks)

    engine.perform = performed


# -- bytes


@way("one-read-one-message", "whole", "what a read brings is the message")
def _(engine: MistakenEngine) -> None:
    engine.cut = lambda sock, data: [line for line in data.split(b"\n") if line.strip()]


@way("one-read-one-message", "unfinished", "the beginning of a message is dropped", also=("no-answer",))
def _(engine: MistakenEngine) -> None:
    engine.cut = lambda sock, data: data.split(b"\n")[:-1]


@way("short-reads", "dropped", "1024 bytes are read, and what is behind them is dropped")
def _(engine: MistakenEngine) -> None:
    cut = engine.cut
    engine.cut = lambda sock, data: cut(sock, data[:1024] + (b"\n" if len(data) > 1024 else b""))


@way("short-reads", "buffer", "a buffer of 1024 bytes is full", also=("no-answer",))
def _(engine: MistakenEngine) -> None:
    def small(sock: socket.socket, data: bytes) -> list[bytes]:
        if len(engine._partial[sock] + data) > 1024 and b"\n" not in (engine._partial[sock] + data)[:1024]:
            engine._partial[sock] = b""
            return []
        return cut(sock, data)

    cut, engine.cut = engine.cut, small


@way("one-message-per-read", "lost", "the others are lost")
def _(engine: MistakenEngine) -> None:
    cut = engine.cut
    engine.cut = lambda sock, data: cut(sock, data)[:1]


@way("one-message-per-read", "later", "the others wait for the next read")
def _(engine: MistakenEngine) -> None:
    cut, rest = engine.cut, dict[socket.socket, list[bytes]]()

    def first(sock: socket.socket, data: bytes) -> list[bytes]:
        lines = [*rest.get(sock, []), *(each for each in cut(sock, data) if each.strip())]
        rest[sock] = lines[1:]
        return lines[:1]

    engine.cut = first


@way("one-message-per-read", "last", "only the last one counts")
def _(engine: MistakenEngine) -> None:
    cut = engine.cut
    engine.cut = lambda sock, data: cut(sock, data)[-1:]


_SPELLINGS: list[tuple[str, str, bytes, str]] = [
    ("no-crlf", "return", rb"\r", "a carriage return"),
    ("no-spaces", "blank", rb" ", "a blank"),
    ("no-spaces", "tab", rb"\t", "a tab"),
    ("no-lower-case", "keys", rb"act|env", "keys in lower case"),
    ("unknown-key-refused", "any", rb"(?<![A-Za-z_])(?!ACT|ENV|SEED|OPTIONS|SET|AGENT|act|env|seed)[A-Za-z_]+\s*=", "a key that it does not know"),
    ("numbers-not-read", "exponent", rb"[\d.][eE]", "an exponent"),
    ("numbers-not-read", "plus", rb"[=,]\s*\+", "a plus"),
    ("numbers-not-read", "leading", rb"[=,+-]\.\d", ".5"),
    ("numbers-not-read", "trailing", rb"\d\.(?!\d)", "5."),
]  # fmt: skip


def _spelling(mistake: str, name: str, pattern: bytes, says: str) -> None:
    @way(mistake, name, f"{says} ends the session")
    def _(engine: MistakenEngine) -> None:
        _refuse_text(engine, pattern, "cannot be read")

    @way(mistake, f"{name}-silent", f"a line with {says} is not answered", also=("no-answer",))
    def _(engine: MistakenEngine) -> None:
        _skip_text(engine, pattern)


for _each in _SPELLINGS:
    _spelling(*_each)


@way("numbers-not-read", "as-zero", "a number with an exponent is read up to it")
def _(engine: MistakenEngine) -> None:
    number = engine.number
    engine.number = lambda text: number(re.split("[eE]", text)[0])  # type: ignore[method-assign]


@way("empty-line-refused", "session", "an empty line ends the session")
def _(engine: MistakenEngine) -> None:
    def strictly(sock: socket.socket, data: bytes) -> list[bytes]:
        lines = cut(sock, data)
        if any(not each.strip() for each in lines):
            engine.refuse(sock, "an empty line")
            return []
        return lines

    cut, engine.cut = engine.cut, strictly


# -- sessions


@way("serves-once", "listener", "nobody listens any more")
def _(engine: MistakenEngine) -> None:
    engine.forget = engine.die


@way("serves-once", "silent", "the next connection is accepted, and gets nothing", also=("no-handshake",))
def _(engine: MistakenEngine) -> None:
    greet, greeted = engine.greet, list[int]()

    def once(sock: socket.socket) -> None:
        if not greeted:
            greet(sock)
        greeted.append(1)

    engine.greet = once


@way("serves-once", "busy", "the next one is told BUSY for ever", also=("busy",))
def _(engine: MistakenEngine) -> None:
    greet, greeted = engine.greet, list[int]()

    def once(sock: socket.socket) -> None:
        if greeted:
            engine._send(sock, b"BUSY\n")
        else:
            greet(sock)
        greeted.append(1)

    engine.greet = once


@way("session-leaks", "partial", "an unfinished line stays in the buffer")
def _(engine: MistakenEngine) -> None:
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
def _(engine: MistakenEngine) -> None:
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


@way(
    "session-leaks",
    "asked",
    "an env that was asked and not answered counts as asked",
    also=("no-answer", "ends-session", "env-never-answered", "serves-once"),
)
def _(engine: MistakenEngine) -> None:
    asked: set[int] = set()
    cut = engine.cut

    def noting(sock: socket.socket, data: bytes) -> list[bytes]:
        if not data.rstrip(b" ").endswith(b"\n"):  # an unfinished request counts
            asked.update(int(env) for env in re.findall(rb"ENV=(\d)", data))
        return cut(sock, data)

    perform = engine.perform
    engine.cut = noting
    engine.perform = lambda asks: perform([ask for ask in asks if ask.env not in asked])


@way("dies-of-garbage", "dies", "it ends")
def _(engine: MistakenEngine) -> None:
    engine.refuse = lambda sock, sentence: engine.die()


@way("dies-of-garbage", "hangs", "it does nothing from then on")
def _(engine: MistakenEngine) -> None:
    def hang(sock: socket.socket, sentence: str) -> None:
        engine.greet = lambda sock: None
        engine.deliver = lambda sock, data: None

    engine.refuse = hang


@way("dies-of-disconnect", "reset", "a connection that is reset ends it", also=("serves-once",))
def _(engine: MistakenEngine) -> None:
    gone = engine._gone

    def ends(sock: socket.socket) -> None:
        if engine._lost_by is not None:
            engine.die()
        else:
            gone(sock)

    engine._gone = ends  # type: ignore[method-assign]


@way("dies-of-disconnect", "mid-request", "one that ends within a line")
def _(engine: MistakenEngine) -> None:
    gone = engine._gone

    def ends(sock: socket.socket) -> None:
        if engine._partial.get(sock):
            engine.die()
        else:
            gone(sock)

    engine._gone = ends  # type: ignore[method-assign]


@way("dies-of-disconnect", "early", "one that ends before its first request")
def _(engine: MistakenEngine) -> None:
    gone = engine._gone

    def ends(sock: socket.socket) -> None:
        if sock is engine._admin and not engine.said_already and not engine._envs:
            engine.die()
        else:
            gone(sock)

    engine._gone = ends  # type: ignore[method-assign]


@way("no-busy", "silent", "nothing is said to a second trainer", certain=False)
def _(engine: MistakenEngine) -> None:
    engine.busy = lambda sock: None


@way("bad-call", "silent", "GET is not answered", parameters=True)
def _(engine: MistakenEngine) -> None:
    deliver = engine.deliver
    engine.deliver = lambda sock, data: None if data.startswith(b"VALUES") else deliver(sock, data)


@way("bad-call", "ok", "SET is answered with OK", parameters=True)
def _(engine: MistakenEngine) -> None:
    call = engine.call
    engine.call = lambda data: "OK" if data.startswith(b"SET") else call(data)


@way("bad-call", "not-set", "SET sets nothing", parameters=True)
def _(engine: MistakenEngine) -> None:
    call = engine.call
    engine.call = lambda data: call(data.replace(b"SET=", b"GET=").split(b":")[0])


@way("bad-call", "state", "GET is answered with a state", parameters=True)
def _(engine: MistakenEngine) -> None:
    engine.call = lambda data: "OBS=0,0,0,0,0,0;REW=0;DONE=0;ENV=0"


# -- time


@way("nagle", "two-writes", "two writes for each message, without TCP_NODELAY")
def _(engine: MistakenEngine) -> None:
    engine.nodelay = False
    deliver = engine.deliver

    def halves(sock: socket.socket, data: bytes) -> None:
        deliver(sock, data[: len(data) // 2])
        deliver(sock, data[len(data) // 2 :])

    engine.deliver = halves


@way("nagle", "newline", "the line feed has a write of its own")
def _(engine: MistakenEngine) -> None:
    engine.nodelay = False
    deliver = engine.deliver

    def ending(sock: socket.socket, data: bytes) -> None:
        deliver(sock, data.rstrip(b"\n"))
        deliver(sock, b"\n")

    engine.deliver = ending


@way("slow", "50-ms", "a step takes 50 ms", certain=False)
def _(engine: MistakenEngine) -> None:
    perform = engine.perform

    def slowly(asks: list[Ask]) -> list[Answer]:
        engine._wait(0.05)
        return perform(asks)

    engine.perform = slowly
