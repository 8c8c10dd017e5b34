"""Wire: one TCP connection to an engine, byte by byte, with what came and when; and the handshake on it."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ue_rl.devtools.check.diagnosing import foreign_bytes, of_handshake
from ue_rl.devtools.check.peer import Wrong
from ue_rl.protocol.access.client_access import ClientAccess, asks_for_token, port_speaks_tls, speaks_tls
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import MAX_HANDSHAKE, decode_handshake
from ue_rl.protocol.text.notices import notice_of
from ue_rl.system.errors import AccessRefused, UeRlError
from ue_rl.system.keepalive import reset_at_close
from ue_rl.system.readiness import ready_to_read

QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
_ALERT = b"\x15\x03"  # what TLS answers to text begins with
_SILENCE = 0.15  # seconds without a word from us, in which env sockets should stay open
_BUSY_GRACE = 1.5  # seconds that an engine may need to notice that the trainer before has gone


class NoLine(Exception):
    """No whole line comes. `unread`: what came behind the last one."""

    def __init__(self, unread: bytes) -> None:
        super().__init__(unread)
        self.unread = unread


class Silent(NoLine):
    """Not in time."""


class Ended(NoLine):
    """The engine closed the connection, or reset it."""


@dataclass(frozen=True)
class Line:
    """A line without its ending, and how it came.

    Args:
        began, ended: time.perf_counter() of its first and of its last piece.
    """

    data: bytes
    began: float
    ended: float


class Place(NamedTuple):
    """Where an engine listens; access: proves the token that it asks for, None: it asks for none."""

    host: str
    port: int
    access: ClientAccess | None = None


class Wire:
    """A connected socket.

    Args:
        address: of the engine. timeout: seconds for connecting, and for each send.

    Attributes:
        acknowledges_late: as a peer may; Nagle's algorithm shows itself then, and not without. Linux only; elsewhere
            it is as the system likes.

    Raises:
        OSError: nobody listens. AccessRefused: the engine does not let this side in, or is another one.
    """

    acknowledges_late = False

    def __init__(self, address: Place | tuple[str, int], timeout: float) -> None:
        if isinstance(address, Place):
            place = address
        else:
            place = Place(address[0], address[1])
        self.sock = socket.create_connection((place.host, place.port), timeout=timeout)
        if place.access is not None:
            self.sock = place.access(self.sock, place.host, place.port, time.monotonic() + timeout)
            self.sock.settimeout(timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""
        self._began = self._last = 0.0

    def send(self, *pieces: bytes, pause: float = 0.0) -> None:
        """Sends the pieces, each with a write of its own, `pause` seconds apart.

        Raises:
            Ended: the engine has closed the connection.
        """
        try:
            for n, piece in enumerate(pieces):
                if n:
                    time.sleep(pause)
                self.sock.sendall(piece)
        except OSError:
            self.drain()
            raise Ended(self.unread) from None

    def line(self, within: float, most: int = 2**29) -> Line:
        """The next line that is not empty.

        Raises:
            Silent: none came within so many seconds, or more than `most` bytes without a line feed. Ended.
        """
        deadline = time.perf_counter() + within
        while True:
            at = self.unread.find(b"\n")
            if at >= 0:
                data = self.unread[:at].rstrip(b"\r")
                self.unread = self.unread[at + 1 :]
                line = Line(data, self._began, self._last)
                self._began = self._last  # what is left came with the same read
                if data.strip():
                    return line
                continue
            if len(self.unread) > most:
                raise Silent(self.unread)
            self._read(deadline)

    def drain(self) -> bytes:
        """Reads what is there without waiting; all that is unread."""
        with suppress(NoLine):
            while True:
                self._read(0.0)
        return self.unread

    def quiet(self, seconds: float) -> bytes:
        """Waits so long for something that nobody asked for; what came, b"" for nothing.

        Raises:
            Ended: the engine closed the connection meanwhile.
        """
        deadline = time.perf_counter() + seconds
        while not self.unread.strip():
            try:
                self._read(deadline)
            except Silent:
                return b""
        with suppress(Silent):
            self._read(time.perf_counter() + 0.02)  # the rest of it
        return self.unread

    def close(self, reset: bool = False) -> None:
        """Closes it; `reset`: as a process that was killed may, with a RST."""
        if reset:
            reset_at_close(self.sock)
        self.sock.close()

    def _read(self, deadline: float) -> None:
        left = max(deadline - time.perf_counter(), 0.0)
        if not ready_to_read([self.sock], left):
            raise Silent(self.unread)
        try:
            piece = self.sock.recv(1 << 16)
        except OSError:
            raise Ended(self.unread) from None
        if QUICKACK is not None:  # the system forgets it again and again
            self.sock.setsockopt(socket.IPPROTO_TCP, QUICKACK, not self.acknowledges_late)
        if not piece:
            raise Ended(self.unread)
        self._last = time.perf_counter()
        if not self.unread:
            self._began = self._last
        self.unread += piece


class ClosedAtOnce(Wrong):
    """The engine closed the connection before its handshake."""


def greet(wire: Wire, within: float, ask_for_it: bool = True) -> tuple[EnvSpec, bytes, float]:
    """(spec, the line, seconds until it came) of an engine's handshake on a new connection.

    Args:
        ask_for_it: where none comes, look whether it comes after a request.

    Raises:
        Wrong: it does not come, or cannot be read. AccessRefused: the engine asks for a token, or for TLS.
    """
    began = time.perf_counter()
    grace = within
    busy = False
    while True:
        try:
            line = wire.line(grace, MAX_HANDSHAKE)
        except Ended as error:
            if busy:
                raise Wrong("busy", seen=b"BUSY") from None
            raise ClosedAtOnce("no-handshake", "the engine closed the connection", error.unread) from None
        except Silent as error:
            if busy:
                raise Wrong("busy", seen=b"BUSY") from None
            raise _without(wire, error.unread, within, ask_for_it) from None
        notice = notice_of(line.data)
        if notice is not None and notice[0] == "BUSY":
            busy = True
            grace = _BUSY_GRACE
            continue
        if line.data.startswith(b"AUTH="):
            raise asks_for_token(wire.sock)
        if said := foreign_bytes(line.data):
            raise Wrong("not-plain-text", said, line.data)
        try:
            return decode_handshake(line.data), line.data, line.ended - began
        except UeRlError as error:
            if notice is not None and speaks_tls(notice[1]):
                raise _plain_alone() from None
            raise of_handshake(error, line.data) from error


def _without(wire: Wire, unread: bytes, within: float, ask_for_it: bool) -> Wrong:
    """What is wrong with an engine that has sent no whole line."""
    if b"\r" in unread:
        return Wrong("carriage-return-only", seen=unread)
    if unread:
        return Wrong("no-newline", f"the handshake had not ended after {within:g} s", unread)
    heard = b""
    try:
        if ask_for_it:
            wire.send(b"ACT=RESET;ENV=0\n")
            line = wire.line(within)
            if line.data.lstrip()[:7].upper() == b"CONFIG:":
                return Wrong("late-handshake", seen=line.data)
            heard = line.data
    except NoLine as error:
        heard = error.unread
    notice = notice_of(heard)
    if heard.startswith(_ALERT) or (notice is not None and speaks_tls(notice[1])):
        raise _plain_alone()
    return Wrong("no-handshake", f"nothing came within {within:g} s", unread)


def _plain_alone() -> AccessRefused:
    return port_speaks_tls("what is checked is plain text: start the engine without TLS for the check")


def closes_in_silence(address: Place | tuple[str, int], timeout: float, num_envs: int) -> bool:
    """Does the engine close env sockets on which nothing is said?"""
    wires: list[Wire] = []
    try:
        wires.append(Wire(address, timeout))
        greet(wires[0], timeout, False)
        wires += [Wire(address, timeout) for _ in range(num_envs)]
        for wire in wires:
            wire.quiet(_SILENCE / len(wires))
    except (Wrong, OSError, Ended):
        return True
    finally:
        for wire in wires:
            wire.close()
    return False
