"""Engines that are right, and unlike others: whoever checks engines must not complain about them."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.harness.engines.right import Answer, Ask, RightEngine
from tests.harness.engines.ways import instead, line, number, row, way

_REAL = re.compile(r"-?\d+\.\d+(e-?\d+)?")


def _with(name: str, says: str, **options: Any) -> None:
    """Nothing is changed but the engine's options."""
    way("", name, says, **options)(lambda engine: None)


_with("plain", "nothing unusual")
_with("one-env", "one env", num_envs=1)
_with("single", "ENV_TYPE=SINGLE", num_envs=1, env_type="SINGLE")
_with("two-envs", "two envs", num_envs=2)
_with("many-envs", "sixteen envs", num_envs=16)
_with("shared", "the shared channel alone", channel="SHARED")
_with("per-env", "env sockets alone", channel="PER_ENV")
_with("choices", "a discrete action space, and masks", choices=True)
_with("parameters", "parameters and infos", parameters=True)
_with("numbers", "numbers of requests", numbers=True, parameters=True)
_with("autoreset", "resets asked ahead", autoreset=True, numbers=True)


@instead("deliver", "", "pieces", "messages in pieces")
def _(engine: RightEngine, deliver: Callable[[socket.socket, bytes], None], sock: socket.socket, data: bytes) -> None:
    for start in range(0, len(data), 37):
        deliver(sock, data[start : start + 37])


def _a_line_each(engine: RightEngine, join: object, rows: list[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


instead("join", "", "numbered-lines", "numbers of requests, and a line for each row", numbers=True)(_a_line_each)
instead("join", "", "one-line-each", "a line for each row")(_a_line_each)
instead("perform", "", "backwards", "rows in another order")(lambda engine, perform, asks: perform(asks)[::-1])


@way("", "later", "an env that answers later")
def _(engine: RightEngine) -> None:
    """Env 1 answers 5 ms after the others."""
    perform, deliver, answer = engine.perform, engine.deliver, engine._answer
    held: list[Answer] = []

    def without(asks: list[Ask]) -> list[Answer]:
        answers = perform(asks)
        held.extend(answer for answer in answers if answer.env == 1)
        return [answer for answer in answers if answer.env != 1]

    def flush(sock: socket.socket) -> None:
        rows, held[:] = [engine.write(answer) for answer in held], []
        if rows:
            engine.in_a_while(0.005, lambda: deliver(sock, engine.join(rows)))

    def answer_later(sock: socket.socket, data: bytes) -> None:
        deliver(sock, data)
        flush(sock)

    def answers(sock: socket.socket, line: bytes) -> None:
        answer(sock, line)
        flush(sock)

    engine.perform, engine.deliver, engine.forget = without, answer_later, held.clear
    engine._answer = answers  # type: ignore[method-assign]


@way("", "takes-the-next", "the connection right behind a session ends with it")
def _(engine: RightEngine) -> None:
    """It is taken for one of it, whose end was not seen yet."""
    take, forget, ended = engine._take, engine.forget, [False]

    def taken(sock: socket.socket) -> None:
        if ended[0] and engine.admin is None:
            ended[0] = False
            engine.close_one(sock)
        else:
            take(sock)

    def ends() -> None:
        ended[0] = True
        forget()

    engine._take, engine.forget = taken, ends  # type: ignore[method-assign]


def _seeds(name: str, says: str, change: Callable[[int], int]) -> None:
    instead("begin", "", name, says)(
        lambda engine, begin, ask: begin(ask if ask.seed is None else replace(ask, seed=change(ask.seed)))
    )


_seeds("32-bit-seeds", "a generator with seeds of 32 bits, as many games have it", lambda seed: seed % 2**32)
_seeds("pairs-of-seeds", "a game of few starts: two seeds that begin alike", lambda seed: seed // 2)
line("", "crlf", "CR LF", lambda data: data.replace(b"\n", b"\r\n"))
line("", "empty-lines", "an empty line behind each message", lambda data: data + b"\n")
row("", "spaces", "spaces around everything", lambda t, a: t.replace(";", " ; ").replace("=", " = "))
row("", "lower-case", "keys in lower case", lambda t, a: t.lower())
row(
    "", "semicolons", "semicolons between the numbers",
    lambda t, a: t[: t.index("REW")].replace(",", ";") + t[t.index("REW") :],
)  # fmt: skip
row("", "six-decimals", "numbers with nine decimals", lambda t, a: _REAL.sub(lambda n: f"{float(n[0]):.9f}", t))
row("", "exponents", "numbers with exponents", lambda t, a: _REAL.sub(lambda n: f"{float(n[0]):.8e}", t))
row("", "trunc-0", "TRUNC=0 in every row", lambda t, a: t if a.truncated else f"{t};TRUNC=0")
row(
    "", "other-order", "ENV behind OBS",
    lambda t, a: t.replace(f";ENV={a.env}", "").replace(";REW", f";ENV={a.env};REW", 1),
)  # fmt: skip
number(
    "", "done-after-reset", "DONE=1 and a reward in the answer to a reset, where they mean nothing",
    lambda a: {"done": True, "reward": 3.5} if a.reset else {},
)  # fmt: skip
number("", "short-episodes", "episodes of two steps", lambda a: {"done": a.steps >= 2, "truncated": False})
