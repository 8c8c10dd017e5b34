"""RightEngine: a small engine in text that follows docs/protocol.md, with hooks to make it do otherwise.

Both wirings, seeds, truncation, options, parameters, masks, numbers of requests, BUSY and ERROR, every spelling of a
request, and the next trainer when one has gone. Its task is that of point.py.

The hooks are attributes, in the order in which a request meets them: cut, parse, perform with one, begin, act and
observe, write, join, echo, deliver; and greet, busy, refuse, call and forget around them.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.harness.engines.point import DIRECTIONS, FAR, OBS, Point
from ue_rl.devtools.testing.engines.loop import EngineStopped, LineEngine
from ue_rl.devtools.testing.task import to_float32

__all__ = ["Answer", "Ask", "Refused", "RightEngine", "shortest"]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LIMIT = 65_536  # bytes of a line
_SEQ = re.compile(rb";[ \t]*SEQ[ \t]*=[ \t]*(\d{1,18})[ \t\r]*$", re.IGNORECASE)
_CALLS = re.compile(rb"\s*(GET|SET|TIME_SCALE|PAUSE|RENDER|GOALS)\s*([=;]|$)", re.IGNORECASE)


class Refused(Exception):
    """A request that cannot be read; its argument is the sentence for the trainer."""


@dataclass
class Ask:
    """One row of a request: a step (`action`) or a reset (None); `fields`: as they came, keys in upper case."""

    env: int
    action: list[float] | None
    seed: int | None = None
    fields: dict[str, str] = field(default_factory=dict)


@dataclass
class Answer:
    """One row of an answer."""

    ask: Ask
    env: int
    obs: list[float]
    reward: float
    done: bool
    truncated: bool
    steps: int

    @property
    def reset(self) -> bool:
        return self.ask.action is None


def shortest(value: float) -> str:
    """The shortest text that reads back to the same float32: `0.1`, `1`, `-2.5e-08`."""
    wanted = to_float32(value)
    for digits in range(6, 10):
        text = f"{wanted:.{digits}g}"
        if to_float32(float(text)) == wanted:
            return text
    return repr(wanted)


class RightEngine(LineEngine):
    """The engine, in a thread. Use as a context manager, or `start()` and `close()`.

    Args:
        num_envs, channel, env_type: of the handshake; channel "": it does not say.
        choices: DISCRETE(4) actions, with masks, instead of two numbers. parameters: PARAMS, their calls, and INFO.
        numbers: FEATURES=SEQ. autoreset: FEATURES=AUTORESET.
        seed: of the first episodes.

    Attributes:
        config: the handshake's line, for a way to change. nodelay: whether sockets get TCP_NODELAY.
        points: the envs. alive: it has not crashed. later: (time.monotonic(), what to do then), for a way to add to.
        kept: what a way remembers.
    """

    def __init__(
        self,
        *,
        num_envs: int = 3,
        channel: str = "ANY",
        env_type: str = "MULTI",
        choices: bool = False,
        parameters: bool = False,
        numbers: bool = False,
        autoreset: bool = False,
        seed: int = 0,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.num_envs, self.channel, self.env_type = num_envs, channel, env_type
        self.choices, self.parameters, self.numbers = choices, parameters, numbers
        self.autoreset = autoreset
        self.config = self._config()
        self.nodelay, self.said_already, self.alive = True, False, True
        self.points = [Point(seed + 7919 * env) for env in range(self.num_envs)]
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.kept: dict[Any, Any] = {}
        self.waiting: list[socket.socket] = []
        self.asked_ahead: dict[int, Ask] = {}
        self.greet: Callable[[socket.socket], None] = self._greet
        self.busy: Callable[[socket.socket], None] = lambda sock: self._send(sock, b"BUSY\n")
        self.refuse: Callable[[socket.socket, str], None] = self._refuse
        self.forget: Callable[[], None] = lambda: None
        self.cut: Callable[[socket.socket, bytes], list[bytes]] = super()._cut
        self.parse: Callable[[bytes, int | None], list[Ask]] = self._parse
        self.perform: Callable[[list[Ask]], list[Answer]] = lambda asks: [self.one(ask) for ask in asks]
        self.one: Callable[[Ask], Answer] = self._one
        self.begin: Callable[[Ask], None] = lambda ask: self.points[ask.env].reset(ask.seed)
        self.act: Callable[[Ask], None] = self._act
        self.observe: Callable[[Ask], Answer] = self._observe
        self.follow: Callable[[list[Answer]], list[Ask]] = self._follow
        self.call: Callable[[bytes], str] = self._call
        self.write: Callable[[Answer], str] = self._write
        self.join: Callable[[list[str]], bytes] = lambda rows: "||".join(rows).encode() + b"\n"
        self.echo: Callable[[bytes, bytes, bool], bytes] = self._echo
        self.deliver: Callable[[socket.socket, bytes], None] = self._send
        super().__init__("right-engine", host, self.num_envs + 4, port)

    def _config(self) -> str:
        said = [f"CONFIG:OBS={OBS}", f"ACT={1 if self.choices else 2}", f"ENV_TYPE={self.env_type}"]
        if self.env_type == "MULTI":
            said.append(f"ENV_COUNT={self.num_envs}")
        said += ["VERSION=1", *([f"CHANNEL={self.channel}"] if self.channel else []), "OBS_SPACE=BOX(-5:5)"]
        said.append("ACT_SPACE=DISCRETE(4)" if self.choices else "ACT_SPACE=BOX(-1:1,-2:2)")
        features = (
            ("AUTORESET," if self.autoreset else "")
            + "ERROR,"
            + ("INFO," if self.parameters else "")
            + ("MASK," if self.choices else "")
        )
        said.append(f"FEATURES={features}OPTIONS,SEED,{'SEQ,' if self.numbers else ''}TRUNC")
        return ";".join([*said, *(["PARAMS=push:1:0:2"] if self.parameters else [])])

    # -- connections

    def _take(self, sock: socket.socket) -> None:
        if not self.nodelay:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        if self.admin is None:
            self._begin(sock)
        elif self.channel != "SHARED" and not self.said_already and len(self.env_socks) < self.num_envs:
            self.env_socks.append(sock)
        else:
            self.waiting.append(sock)
            self.busy(sock)

    def _begin(self, sock: socket.socket) -> None:
        self.admin, self.said_already = sock, False
        self.greet(sock)

    def _greet(self, sock: socket.socket) -> None:
        self.deliver(sock, f"{self.config}\n".encode())

    def _gone(self, sock: socket.socket) -> None:
        if sock in self.waiting:
            self.waiting.remove(sock)
            self.close_one(sock)
        else:
            self.close_clients()

    def close_clients(self, reset: bool = False) -> None:
        """Ends the session; the next trainer's begins."""
        for sock in [sock for sock in self.partial if sock not in self.waiting]:
            self.close_one(sock, reset)
        self.env_socks.clear()
        self.admin = None
        self.later.clear()
        self.asked_ahead.clear()
        self.forget()
        if self.ending.is_set() or self.listener is None:
            for sock in self.waiting:
                self.close_one(sock)
            self.waiting.clear()
        elif self.waiting:
            with contextlib.suppress(EngineStopped):
                self._begin(self.waiting.pop(0))

    def die(self) -> None:
        """Ends as a process does that has crashed."""
        self.alive = False
        self.close_listener()
        self.forget = lambda: None
        self.close_clients(reset=True)

    def _turn(self) -> float | None:
        while self.later and self.later[0][0] <= time.monotonic():
            with contextlib.suppress(EngineStopped):
                self.later.pop(0)[1]()
        return max(self.later[0][0] - time.monotonic(), 0.0) if self.later else None

    def in_a_while(self, seconds: float, what: Callable[[], None]) -> None:
        """Does something later, unless the session ends before."""
        self.later.append((time.monotonic() + seconds, what))
        self.later.sort(key=lambda each: each[0])

    # -- a request

    def _cut(self, sock: socket.socket, data: bytes) -> list[bytes]:
        if sock in self.waiting:
            super()._cut(sock, data)
            return []
        self.said_already = self.said_already or sock is self.admin
        lines = self.cut(sock, data)
        if len(self.partial.get(sock, b"")) > _LIMIT:
            self.refuse(sock, "the line is too long")
            return []
        return lines

    def _answer(self, sock: socket.socket, line: bytes) -> None:
        own, number = self.env_socks.index(sock) if sock in self.env_socks else None, b""
        if self.numbers and (found := _SEQ.search(line)):
            line, number = line[: found.start()], found[1]
        try:
            if self.parameters and _CALLS.match(line):
                self.deliver(sock, self.echo(f"{self.call(line)}\n".encode(), number, True))
                return
            if self.env_socks and own is None:
                return  # the first connection carries no requests then
            if self.autoreset and own is None and line[:5] == b"NEXT=":
                self.asked_ahead.update((ask.env, ask) for ask in self._parse(line.replace(b"NEXT=", b"ACT="), own))
                return
            answers = self.perform(self.parse(line, own))
        except Refused as refused:
            self.refuse(sock, str(refused))
            return
        rows = [self.write(answer) for answer in answers]
        lines = self.join(rows) if rows else b""
        if following := self.follow(answers):
            lines += self.join([self.write(answer) for answer in self.perform(following)])
        if lines:
            self.deliver(sock, self.echo(lines, number, False))

    def _follow(self, answers: list[Answer]) -> list[Ask]:
        """The resets that were asked ahead of the ends in these answers; a reset voids the one that was asked."""
        following = [self.asked_ahead[a.env] for a in answers if a.done and not a.reset and a.env in self.asked_ahead]
        for ask in [*following, *(answer.ask for answer in answers if answer.reset)]:
            held = self.asked_ahead.get(ask.env)
            if ask is not held or ask.seed is not None or "SET" in ask.fields:
                self.asked_ahead.pop(ask.env, None)
        return following

    def _echo(self, lines: bytes, number: bytes, call: bool) -> bytes:
        """Answers with the number of their request, where it has one; `call`: they answer a call."""
        return lines.replace(b"\n", b";SEQ=%b\n" % number) if number else lines

    def _refuse(self, sock: socket.socket, sentence: str) -> None:
        text = "".join(c if c.isalnum() and c.isascii() else f"%{ord(c):02X}" for c in sentence if ord(c) < 128)
        if self.admin is not None:
            self._send(self.admin, f"ERROR={text}\n".encode())
        self.close_clients()

    def _parse(self, line: bytes, own: int | None) -> list[Ask]:
        asks = [self.read_row(row, own) for row in line.decode("utf-8", "replace").split("||")]
        if len({ask.env for ask in asks}) < len(asks):
            raise Refused("an env is asked twice")
        return asks

    def read_row(self, row: str, own: int | None) -> Ask:
        """One row of a request.

        Raises:
            Refused.
        """
        fields: dict[str, str] = {}
        for part in row.split(";"):
            key, equals, value = part.partition("=")
            key = key.strip().upper()
            if not equals or not key or key in fields:
                raise Refused(f"not a field: {part[:40]}")
            fields[key] = value.strip()
        env = self._whole(fields.get("ENV", str(own if own is not None else 0 if self.num_envs == 1 else "")), "ENV")
        if not 0 <= env < self.num_envs or (own is not None and env != own):
            raise Refused(f"there is no env {env} here")
        text = fields.get("ACT", "")
        if text.upper() == "RESET":
            seed = self._whole(fields["SEED"], "SEED") if "SEED" in fields else None
            if self.parameters and "SET" in fields:
                self._call(f"SET={fields['SET']};ENV={env}".encode())
            if not unquote(fields.get("OPTIONS", "{}")).startswith("{"):
                raise Refused("OPTIONS is no object")
            return Ask(env, None, seed, fields)
        numbers = [self.number(part) for part in text.split(",")]
        if len(numbers) != (1 if self.choices else 2):
            raise Refused(f"{len(numbers)} numbers of action")
        if self.choices and numbers[0] not in (0, 1, 2, 3):
            raise Refused(f"there is no choice {numbers[0]:g}")
        return Ask(env, numbers, None, fields)

    def number(self, text: str) -> float:
        """Raises: Refused."""
        value = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
        if not math.isfinite(to_float32(value)):
            raise Refused(f"not a number: {text[:40]}")
        return value

    def _whole(self, text: str, key: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) >= 2**63:
            raise Refused(f"{key} is no number: {text[:40]}")
        return int(text)

    # -- the game

    def _one(self, ask: Ask) -> Answer:
        (self.begin if ask.action is None else self.act)(ask)
        return self.observe(ask)

    def _act(self, ask: Ask) -> None:
        assert ask.action is not None
        self.points[ask.env].step(DIRECTIONS[int(ask.action[0])] if self.choices else ask.action)

    def _observe(self, ask: Ask) -> Answer:
        point = self.points[ask.env]
        return Answer(ask, ask.env, point.observation, point.reward, point.done, point.truncated, point.steps)

    def _call(self, line: bytes) -> str:
        """PARAMS: one number, `push`, of env 0 or of that which the call names."""
        name, *more = (part.strip() for part in line.decode("ascii", "replace").split(";"))
        word, _, value = (part.strip() for part in name.partition("="))
        named = next((part.partition("=")[2].strip() for part in more if part.upper().startswith("ENV")), None)
        env = None if named is None else self._whole(named, "ENV")
        if env is not None and env >= self.num_envs:
            raise Refused(f"there is no env {env} here")
        if word.upper() == "SET":
            key, _, number = value.partition(":")
            if key.strip() != "push" or not _NUMBER.fullmatch(number.strip()) or not 0 <= float(number) <= 2:
                return "REFUSED=no%20such%20value"
            for point in self.points if env is None else [self.points[env]]:
                point.push = float(number)
        elif word.upper() != "GET" or value not in ("", "push"):
            return "REFUSED=not%20here"
        return f"VALUES=push:{self.points[env or 0].push!r}"

    # -- its text

    def _write(self, answer: Answer) -> str:
        text = f"OBS={','.join(map(shortest, answer.obs))};REW={shortest(answer.reward)};DONE={int(answer.done)}"
        if self.env_type == "MULTI":
            text += f";ENV={answer.env}"
        if answer.truncated:
            text += ";TRUNC=1"
        if self.choices:
            text += ";MASK=" + "".join(map(str, self.mask(answer.env)))
        if self.parameters:
            text += f";INFO=%7B%22steps%22%3A{answer.steps}%7D"
        return text

    def mask(self, env: int) -> list[int]:
        """Which directions do not lead over the rim."""
        x, y = self.points[env].position
        flags = [int(max(abs(x + a), abs(y + b)) < FAR) for a, b in DIRECTIONS]
        return flags if any(flags) else [1, 1, 1, 1]
