"""FaultyEngine: an engine that follows docs/protocol.md on both wirings, and then fails as its Script says.

It serves whichever way the client comes: a line on the first connection means the shared channel, a second
connection per-env sockets. Every row is answered with `good_row`. Each env counts its requests: number 0
is its first one (as a rule the reset), and a `Fault` strikes at one env's request number `step`. After a
client has gone the next one is served, with a new handshake and counts from 0.

It does not judge what the trainer sends, and it does not simulate anything.
"""

from __future__ import annotations

import random
import re
import socket
from dataclasses import dataclass
from enum import Enum

from ue_rl.devtools.testing.engines.loop import LineEngine

__all__ = ["AUTO", "Fault", "FaultKind", "FaultyEngine", "Script"]

AUTO = "auto"
_ENV = re.compile(rb"ENV\s*=\s*(\d+)", re.IGNORECASE)


class FaultKind(Enum):
    """What goes wrong. The first group changes one row, the second what happens on the sockets."""

    MALFORMED = "the row is `text`, or has an observation that is not a number"
    NAN = "one number of the observation is nan"
    INF = "the reward is inf"
    TOO_FEW = "the observation lacks a number"
    TOO_MANY = "the observation has a number too many"
    WRONG_ENV = "the row names an env that does not exist"
    OTHER_ENV = "the row names the next env"
    NO_ENV = "the row carries no ENV"
    TWICE = "the row comes twice"
    MISSING = "the row never comes"

    SILENCE = "nothing is ever sent again"
    DROP = "the engine closes all its sockets"
    CRASH = "the engine resets all its connections"
    HALF_LINE = "half of the line is sent, then the engine closes all its sockets"
    OVERSIZE = "a line without an end"
    GARBAGE = "256 random bytes and a newline, instead of the line"


_ROW_KINDS = frozenset(list(FaultKind)[: list(FaultKind).index(FaultKind.SILENCE)])


@dataclass(frozen=True)
class Fault:
    """One failure: what, at which env, at which of its requests (0 is the first), and the row's text for
    MALFORMED."""

    kind: FaultKind
    env: int = 0
    step: int = 1
    text: str | None = None


@dataclass(frozen=True)
class Script:
    """How the engine behaves.

    Args:
        handshake: the CONFIG line without its newline; AUTO: a right one; None: it never comes.
        extra: keys behind those of the AUTO handshake, such as "FEATURES=MASK".
        after_handshake: sent right behind the handshake (an unasked line, for instance).
        close_after_handshake: the engine closes all its sockets then, the listener too.
        accepts: how many connections are taken before the listener closes; None: any number.
        channel: CHANNEL in the AUTO handshake, None to leave the extension keys out.
        latency: seconds before each answer.
        fragment: send that many bytes at a time; 0: whole messages.
        fragment_delay: seconds between two fragments.
        faults: what goes wrong, and when.
    """

    handshake: str | None = AUTO
    extra: str = ""
    after_handshake: str = ""
    close_after_handshake: bool = False
    accepts: int | None = None
    channel: str | None = None
    latency: float = 0.0
    fragment: int = 0
    fragment_delay: float = 0.0
    faults: tuple[Fault, ...] = ()


class FaultyEngine(LineEngine):
    """The engine, on a free port in a thread of its own. Use as a context manager, or `start()` and
    `close()`.

    Args:
        script: how it behaves; a single Fault stands for a Script of it alone.
        num_envs, obs_size, act_size: the handshake's.
        env_type: "MULTI", "SINGLE" or "RLBASE".
        host: the address to listen on; the port is always a free one.
        threaded: False: there is no thread, the test calls `turn`.

    Attributes:
        sessions: how many clients got their first connection.
        requests: the lines received, of all clients.
    """

    def __init__(
        self,
        script: Script | Fault | None = None,
        *,
        num_envs: int = 2,
        obs_size: int = 4,
        act_size: int = 2,
        env_type: str = "MULTI",
        host: str = "127.0.0.1",
        threaded: bool = True,
    ) -> None:
        if isinstance(script, Fault):
            self.script = Script(faults=(script,))
        else:
            if not script:
                script = Script()
            self.script = script
        self.num_envs = num_envs
        self.obs_size = obs_size
        self.act_size = act_size
        self.env_type = env_type
        self.sessions = 0
        self.requests: list[bytes] = []
        self._silent = False
        self._accepted = 0
        self._counts = [0] * num_envs
        super().__init__("faulty-engine", host, num_envs + 1, threaded=threaded)

    @property
    def handshake(self) -> str | None:
        """The CONFIG line that is sent."""
        if self.script.handshake != AUTO:
            return self.script.handshake
        text = f"CONFIG:OBS={self.obs_size};ACT={self.act_size};ENV_TYPE={self.env_type}"
        if self.env_type == "MULTI":
            text += f";ENV_COUNT={self.num_envs}"
        if self.script.channel is not None:
            text += f";VERSION=1;CHANNEL={self.script.channel}"
        if self.script.extra:
            return f"{text};{self.script.extra}"
        return text

    def good_row(self, env: int, step: int) -> str:
        """The right answer of `env` to its request number `step`: each observed number is env + step / 4.

        Where the handshake has AGENTS, the first one alone is there.
        """
        numbers = [str(env + step / 4)] * self.obs_size
        if self.env_type == "RLBASE":
            return f"{','.join(numbers)};{step};0"
        row = f"OBS={','.join(numbers)};REW={step};DONE=0"
        agent = ""
        text = self.handshake or ""
        if "AGENTS=" in text:
            agent = ";AGENT=0"
        if self.env_type == "MULTI":
            return f"{row};ENV={env}{agent}"
        return row

    # -- connections

    def _take(self, sock: socket.socket) -> None:
        self._accepted += 1
        # The listener goes before the handshake: a client that reads it must find the door closed.
        if self._accepted == self.script.accepts or self.script.close_after_handshake:
            self.close_listener()
        if self.admin is not None:
            self.env_socks.append(sock)
            return
        self.admin = sock
        self.sessions += 1
        self._counts = [0] * self.num_envs
        self._silent = False
        if self.handshake is not None:
            self._send(sock, self.handshake.encode() + b"\n" + self.script.after_handshake.encode())
        if self.env_type == "RLBASE" and self.script.handshake == AUTO:
            self._send(sock, f"{self.good_row(0, 0)}\n".encode())
        if self.script.close_after_handshake:
            self.close_clients()

    # -- answers and their faults

    def _cut(self, sock: socket.socket, data: bytes) -> list[bytes]:
        lines = super()._cut(sock, data)
        self.requests += [line for line in lines if line.strip()]
        return lines

    def _answer(self, sock: socket.socket, line: bytes) -> None:
        if self._silent:
            return
        default = 0
        if sock in self.env_socks:
            default = self.env_socks.index(sock)
        rows: list[str] = []
        struck: Fault | None = None
        for ask in line.split(b"||"):
            match = _ENV.search(ask)
            if match:
                env = int(match.group(1))
            else:
                env = default
            step, fault = self._count(env)
            if fault is not None and fault.kind not in _ROW_KINDS:
                struck = fault
            rows += self._rows(env, step, fault)
        between = "||"
        if sock in self.env_socks:
            between = "\n"
        reply = b""
        if rows:
            reply = f"{between.join(rows)}\n".encode()
        if self.script.latency:
            self.rest(self.script.latency)
        if struck is None:
            self._send(sock, reply)
        else:
            self._strike(struck, sock, reply)

    def _count(self, env: int) -> tuple[int, Fault | None]:
        """The number of this request of `env`, and the fault that strikes there."""
        step = self._counts[env]
        self._counts[env] += 1
        return step, next((fault for fault in self.script.faults if (fault.env, fault.step) == (env, step)), None)

    def _rows(self, env: int, step: int, fault: Fault | None) -> list[str]:
        row = self.good_row(env, step)
        if fault is None or fault.kind not in _ROW_KINDS:
            return [row]
        if fault.kind is FaultKind.MISSING:
            return []
        if fault.kind is FaultKind.TWICE:
            return [row, row]
        if fault.kind is FaultKind.MALFORMED and fault.text is not None:
            return [fault.text]
        number = str(env + step / 4)
        if self.env_type == "RLBASE":
            reward = f";{step};"
        else:
            reward = f"REW={step}"
        old, new = {
            FaultKind.MALFORMED: (number, "1.2.3"),
            FaultKind.NAN: (number, "nan"),
            FaultKind.INF: (reward, reward.replace(str(step), "inf")),
            FaultKind.TOO_FEW: (f"{number},", ""),
            FaultKind.TOO_MANY: (number, f"{number},{number}"),
            FaultKind.WRONG_ENV: (f"ENV={env}", f"ENV={self.num_envs}"),
            FaultKind.OTHER_ENV: (f"ENV={env}", f"ENV={(env + 1) % self.num_envs}"),
            FaultKind.NO_ENV: (f";ENV={env}", ""),
        }[fault.kind]
        return [row.replace(old, new, 1)]

    def _strike(self, fault: Fault, sock: socket.socket, reply: bytes) -> None:
        if fault.kind is FaultKind.SILENCE:
            self._silent = True
        elif fault.kind in (FaultKind.DROP, FaultKind.CRASH, FaultKind.HALF_LINE):
            self.close_listener()  # first: whoever sees the close must find the door closed too
            if fault.kind is FaultKind.HALF_LINE:
                self._send(sock, reply[: len(reply) // 2])
            self.close_clients(reset=fault.kind is FaultKind.CRASH)
        elif fault.kind is FaultKind.GARBAGE:
            noise = random.Random(0).randbytes(256).replace(b"\n", b"\0")
            self._send(sock, noise + b"\n")
        elif fault.kind is FaultKind.OVERSIZE:
            self._send(sock, b"OBS=")
            while True:  # until the client has had enough, which ends the session
                self._send(sock, b"0.25," * 2048)

    # -- sockets

    def _send(self, sock: socket.socket, data: bytes) -> None:
        size = self.script.fragment or max(1, len(data))
        for start in range(0, len(data), size):
            super()._send(sock, data[start : start + size])
            if self.script.fragment_delay and start + size < len(data):
                self.rest(self.script.fragment_delay)
