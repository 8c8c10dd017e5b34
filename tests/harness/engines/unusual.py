"""Engines that are right, and unlike others: whoever checks engines must not complain about them."""

from __future__ import annotations

import re
import socket
from dataclasses import replace

from tests.harness.engines.right import Answer, Ask, RightEngine
from tests.harness.engines.ways import Way, line, made, number, row


def _same(engine: RightEngine) -> None:
    """Nothing is changed."""


def _pieces(engine: RightEngine) -> None:
    deliver = engine.deliver

    def in_pieces(sock: socket.socket, data: bytes) -> None:
        for start in range(0, len(data), 37):
            deliver(sock, data[start : start + 37])

    engine.deliver = in_pieces


def _backwards(engine: RightEngine) -> None:
    perform = engine.perform
    engine.perform = lambda asks: perform(asks)[::-1]


def _one_line_each(engine: RightEngine) -> None:
    engine.join = lambda rows: "".join(f"{row}\n" for row in rows).encode()


def _later(engine: RightEngine) -> None:
    """Env 1 answers 5 ms after the others."""
    perform, deliver = engine.perform, engine.deliver
    held: list[Answer] = []

    def without(asks: list[Ask]) -> list[Answer]:
        answers = perform(asks)
        held.extend(answer for answer in answers if answer.env == 1)
        return [answer for answer in answers if answer.env != 1]

    def answer_later(sock: socket.socket, data: bytes) -> None:
        deliver(sock, data)
        _flush(sock)

    def _flush(sock: socket.socket) -> None:
        rows, held[:] = [engine.write(answer) for answer in held], []
        if rows:
            engine.in_a_while(0.005, lambda: deliver(sock, engine.join(rows)))

    answer = engine._answer

    def answers(sock: socket.socket, line: bytes) -> None:
        answer(sock, line)
        _flush(sock)

    engine.perform, engine.deliver, engine.forget = without, answer_later, held.clear
    engine._answer = answers  # type: ignore[method-assign]


def _takes_the_next(engine: RightEngine) -> None:
    """The connection right behind a session is taken for one of it, whose end was not seen yet, and closed with it."""
    take, forget, ended = engine._take, engine.forget, [False]

    def taken(sock: socket.socket) -> None:
        if ended[0] and engine._admin is None:
            ended[0] = False
            engine._close(sock)
        else:
            take(sock)

    def ends() -> None:
        ended[0] = True
        forget()

    engine._take, engine.forget = taken, ends  # type: ignore[method-assign]


def _pairs_of_seeds(engine: RightEngine) -> None:
    begin = engine.begin
    engine.begin = lambda ask: begin(ask if ask.seed is None else replace(ask, seed=ask.seed // 2))


def _seeds_of_32_bits(engine: RightEngine) -> None:
    """As many games' generators take them."""
    begin = engine.begin
    engine.begin = lambda ask: begin(ask if ask.seed is None else replace(ask, seed=ask.seed % 2**32))


UNUSUAL: list[Way] = [
    made("", "plain", "nothing unusual")(_same),
    made("", "one-env", "one env", num_envs=1)(_same),
    made("", "single", "ENV_TYPE=SINGLE", num_envs=1, env_type="SINGLE")(_same),
    made("", "two-envs", "two envs", num_envs=2)(_same),
    made("", "many-envs", "sixteen envs", num_envs=16)(_same),
    made("", "shared", "the shared channel alone", channel="SHARED")(_same),
    made("", "per-env", "env sockets alone", channel="PER_ENV")(_same),
    made("", "choices", "a discrete action space, and masks", choices=True)(_same),
    made("", "parameters", "parameters and infos", parameters=True)(_same),
    made("", "numbers", "numbers of requests", numbers=True, parameters=True)(_same),
    made("", "numbered-lines", "numbers of requests, and a line for each row", numbers=True)(_one_line_each),
    made("", "autoreset", "resets asked ahead", autoreset=True, numbers=True)(_same),
    made("", "pieces", "messages in pieces")(_pieces),
    made("", "backwards", "rows in another order")(_backwards),
    made("", "one-line-each", "a line for each row")(_one_line_each),
    made("", "takes-the-next", "the connection right behind a session ends with it")(_takes_the_next),
    made("", "32-bit-seeds", "a generator with seeds of 32 bits")(_seeds_of_32_bits),
    made("", "pairs-of-seeds", "a game of few starts: two seeds that begin alike")(_pairs_of_seeds),
    made("", "later", "an env that answers later")(_later),
    line("", "crlf", "CR LF", lambda data: data.replace(b"\n", b"\r\n")),
    line("", "empty-lines", "an empty line behind each message", lambda data: data + b"\n"),
    row("", "spaces", "spaces around everything", lambda t, a: t.replace(";", " ; ").replace("=", " = ")),
    row("", "lower-case", "keys in lower case", lambda t, a: t.lower()),
    row(
        "",
        "semicolons",
        "semicolons between the numbers",
        lambda t, a: t[: t.index("REW")].replace(",", ";") + t[t.index("REW") :],
    ),
    row(
        "",
        "six-decimals",
        "numbers with nine decimals",
        lambda t, a: re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda n: f"{float(n[0]):.9f}", t),
    ),
    row(
        "",
        "exponents",
        "numbers with exponents",
        lambda t, a: re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda n: f"{float(n[0]):.8e}", t),
    ),
    row("", "trunc-0", "TRUNC=0 in every row", lambda t, a: t if a.truncated else f"{t};TRUNC=0"),
    row(
        "",
        "other-order",
        "ENV behind OBS",
        lambda t, a: t.replace(f";ENV={a.env}", "").replace(";REW", f";ENV={a.env};REW", 1),
    ),
    number(
        "",
        "done-after-reset",
        "DONE=1 and a reward in the answer to a reset, where they mean nothing",
        lambda a: {"done": True, "reward": 3.5} if a.reset else {},
    ),
    number("", "short-episodes", "episodes of two steps", lambda a: {"done": a.steps >= 2, "truncated": False}),
]
