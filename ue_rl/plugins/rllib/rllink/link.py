"""RLlinkConnection: the one file of RLlink that does I/O: a connection to RLlib's server, each wait with a deadline."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable

from ue_rl.plugins.rllib.rllink.frames import FrameReader, frame
from ue_rl.plugins.rllib.rllink.json_dialect import JsonDialect
from ue_rl.plugins.rllib.rllink.messages import EPISODES_AND_GET_STATE, PING, Answer, Chunk, Dialect, Pong
from ue_rl.plugins.rllib.rllink.msgpack_dialect import MsgpackDialect
from ue_rl.system.errors import (
    ConfigurationError,
    LearnerDisconnected,
    LearnerTimeout,
    LearnerUnreachable,
    MalformedMessage,
    ProtocolError,
    UeRlError,
)
from ue_rl.system.forks import leave_to_parent
from ue_rl.system.keepalive import ask_for_life

DIALECTS: dict[str, Callable[[], Dialect]] = {"msgpack": MsgpackDialect, "json": JsonDialect}
DEFAULT_PORT = 5555
PAUSE = 5.2  # seconds: a server that was spoken to in the wrong dialect listens again after 5
_BLOCK = 1 << 20


class RLlinkConnection:
    """A connection to an RLlink server, that answers requests one after the other.

    Args:
        host, port: of the server; RLlib's own listens on localhost, and on 5555 + the number of its env runner.
        timeout: seconds for each answer. dialect: see `open_link`.

    Raises:
        LearnerUnreachable: nobody listens.
    """

    def __init__(self, host: str, port: int, timeout: float, dialect: Dialect) -> None:
        self.dialect = dialect
        self.timeout = timeout
        if ":" in host:
            self.where = f"[{host}]:{port}"
        else:
            self.where = f"{host}:{port}"
        self._frames = FrameReader()
        try:
            self._sock = socket.create_connection((host, port), timeout=timeout)
        except (OSError, UnicodeError) as error:  # a host's name may be none
            raise LearnerUnreachable(
                f"no RLlink server listens on {self.where}",
                fault="caller",
                got=str(error),
                cure="start RLlib first; its env runner listens on env_config's port (5555) + its worker index: 5555 "
                "with num_env_runners=0, 5556 and up with 1 and more; it listens on localhost only",
            ) from error
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        leave_to_parent(self._sock)
        ask_for_life(self._sock)  # no more: a server that learns may leave episodes unread for minutes

    def ask(self, what: str) -> Answer:
        """The answer to PING, GET_CONFIG or GET_STATE.

        Raises:
            LearnerTimeout, LearnerDisconnected. MalformedMessage: an answer that cannot be read.
        """
        return self._asked(self.dialect.ask(what), what)

    def send_episodes(self, chunks: list[Chunk]) -> Answer:
        """Sends them and waits for the answer: RLlib gives it after its next update.

        Raises:
            As `ask`. ConfigurationError: the message is too long.
        """
        return self._asked(self.dialect.episodes(chunks), EPISODES_AND_GET_STATE)

    def close(self) -> None:
        """Idempotent, never raises."""
        self._sock.close()

    def _send(self, body: bytes, what: str) -> None:
        self._refuse_more(what)
        self._sock.settimeout(self.timeout)
        try:
            self._sock.sendall(frame(body))
        except TimeoutError as error:
            raise self._late(what) from error
        except OSError as error:
            raise self._gone(what, str(error)) from error

    def _refuse_more(self, what: str) -> None:
        """A second answer to what was asked before would be taken for that to what is asked next, from then on."""
        self._sock.settimeout(0)
        with contextlib.suppress(OSError):  # nothing is there; or the connection broke, which sending tells
            self._frames.feed(self._sock.recv(_BLOCK))
        if len(self._frames):
            raise MalformedMessage(
                f"RLlib sent more than one answer, before {what} was asked",
                fault="server",
                field="type",
                expected="one answer to each message",
                got=self._frames.said(),
            )

    def _asked(self, message: bytes, what: str) -> Answer:
        self._send(message, what)
        deadline = time.monotonic() + self.timeout
        while (body := self._frames.next_body()) is None:
            left = deadline - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                self._sock.settimeout(left)
                data = self._sock.recv(_BLOCK)
            except TimeoutError as error:
                if error.errno == errno.ETIMEDOUT:  # the system's: nobody has answered it either
                    raise self._gone(what, "its machine does not answer any more") from error
                raise self._late(what) from error
            except OSError as error:
                raise self._gone(what, str(error)) from error
            if not data:
                raise self._gone(what, f"a closed socket after {self._frames.said()}")
            self._frames.feed(data)
        return self.dialect.answer(body)

    def _late(self, what: str) -> LearnerTimeout:
        cures = {
            PING: "RLlib serves one client for each env runner: is another one connected to this port?",
            "GET_CONFIG": "does RLlib still build its algorithm? Or is there a lambda in its config, which it cannot "
            "send? Its log says so then",
            "GET_STATE": "does RLlib still build its algorithm?",
        }
        return LearnerTimeout(
            f"RLlib did not answer {what} within {self.timeout:g} s",
            got=self._frames.said(),
            cure=cures.get(
                what,
                "its update takes longer (--timeout), it waits for more steps than were sent "
                "(--steps-per-sample), for another env runner's client, or its listener died of what it was sent: see "
                "its log",
            ),
        )

    def _gone(self, what: str, got: str) -> LearnerDisconnected:
        return LearnerDisconnected(
            f"RLlib closed the connection instead of answering {what}",
            got=got,
            cure="its log says why; another dialect is another reason (--dialect msgpack for Ray 2.49 and later, json "
            "for 2.41 to 2.48)",
        )


def open_link(
    host: str, port: int, *, timeout: float = 60.0, dialect: str = "auto", wait: float = 0.0, pause: float = PAUSE
) -> RLlinkConnection:
    """A link whose server has answered a PING.

    Args:
        dialect: "msgpack" (Ray 2.49 and later), "json" (Ray 2.41 to 2.48) or "auto": msgpack first, then JSON, after
            the `pause`: for 5 seconds a server does not listen that was spoken to in the wrong one.
        wait: keep trying this many seconds while nobody listens.

    Raises:
        ConfigurationError: no such dialect, or its package is missing. LearnerUnreachable, LearnerTimeout,
        LearnerDisconnected. MalformedMessage: whoever listens there does not speak RLlink.
    """
    if dialect not in ("auto", *DIALECTS):
        raise ConfigurationError(
            "no such dialect", field="dialect", expected=f"auto, {', '.join(DIALECTS)}", got=dialect
        )
    if dialect != "auto":
        return _greeted(host, port, timeout, dialect, wait)
    try:
        return _greeted(host, port, timeout, "msgpack", wait)
    except (LearnerDisconnected, MalformedMessage) as error:
        first: UeRlError = error
    time.sleep(pause)
    try:
        return _greeted(host, port, timeout, "json", max(wait, 2.0))
    except (LearnerDisconnected, ProtocolError) as error:
        raise MalformedMessage(
            "whoever listens there speaks neither dialect of RLlink",
            fault="server",
            field="dialect",
            expected="an answer to PING",
            got=f"msgpack: {first.plain()}; JSON: {error.plain()}",
            cure="is this the port of RLlib's external env runner?",
        ) from error


def _greeted(host: str, port: int, timeout: float, dialect: str, wait: float) -> RLlinkConnection:
    give_up = time.monotonic() + wait
    speaks = DIALECTS[dialect]()
    while True:
        try:
            link = RLlinkConnection(host, port, timeout, speaks)
            break
        except LearnerUnreachable:
            if time.monotonic() >= give_up:
                raise
            time.sleep(0.1)
    with contextlib.ExitStack() as stack:
        stack.callback(link.close)
        answer = link.ask(PING)
        if not isinstance(answer, Pong):
            what = "RLlib did not answer PING with PONG"
            raise MalformedMessage(what, fault="server", field="type", expected="PONG", got=type(answer).__name__)
        stack.pop_all()
    return link
