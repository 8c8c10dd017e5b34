"""Link: one TCP socket to the engine, read line by line, every wait with a deadline.

Every wait is cut into short slices, so that Ctrl-C gets through on every platform and the deadline is kept, and spins
(polls) for a few microseconds before it blocks (compiled kernels on POSIX). What the peer does wrong becomes a named
error here; the caller adds which env it concerns.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Sequence

from ue_rl.protocol.access.tls import why
from ue_rl.protocol.text.lines import LineBuffer
from ue_rl.protocol.text.notices import ended_by
from ue_rl.system.compiled import load
from ue_rl.system.errors import (
    EngineDisconnected,
    EngineTimeout,
    EngineUnreachable,
    LineTooLong,
    UnexpectedMessage,
    printable,
    shorten,
)
from ue_rl.system.forks import leave_to_parent
from ue_rl.system.keepalive import notice_dead_peer
from ue_rl.system.spin import TRAINER_SPIN_US
from ue_rl.system.timing import SYSTEM_TIMING, Timing

_log = logging.getLogger("ue_rl.connections")

_NO_WAY = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN)
UNFINISHED = "the line is not finished: end each message with a line feed"
MORE_TIME = "Raise timeout= (--timeout) for slow actions"
HINT_AFTER = 2.0  # seconds without another byte until the log says what may be wrong


class Link:
    """One connected socket.

    Args:
        sock: a connected TCP socket; owned from now on.
        max_line: the limit for received lines, in bytes.
        timing: its clock, of which all deadlines here are, and its slices.
        by_select: Python cuts its waits into slices, with a select before each call, and not the system.

    Attributes:
        greeting: the handshake as the engine sent it, where it came here.
        number: that of the last request sent here (FEATURES=SEQ); 0: none had one.
        layered: a protocol of Python's lies between it and its descriptor, TLS or a WebSocket: only the socket itself
            can say what has come, and read it.
        encrypted: that protocol is TLS.
    """

    def __init__(
        self,
        sock: socket.socket,
        max_line: int,
        timing: Timing = SYSTEM_TIMING,
        by_select: bool = sys.platform == "win32",
    ) -> None:
        self.sock = sock
        self.timing = timing
        self._now = timing.now
        self.lines = LineBuffer(max_line)
        self.greeting = ""
        self.number = 0
        self._hinted = False
        self._broken: OSError | None = None
        self._pid = os.getpid()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_dead_peer(sock)
        leave_to_parent(sock)
        self.layered = hasattr(sock, "pending")
        self.encrypted = isinstance(sock, ssl.SSLSocket)
        # How each wait is cut into slices. Python's own timeout selects before each call. A layer's read would begin
        # again after the system's options, and block for ever; on Windows these count as 500 ms at least, and after one
        # has passed nothing is promised about the bytes.
        if self.layered or by_select:
            sock.settimeout(timing.slice_ms / 1000)
        else:
            sock.setblocking(True)
            seconds = timing.slice_ms / 1000
            timeval = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                sock.setsockopt(socket.SOL_SOCKET, option, timeval)
        fast = getattr(load("kernels"), "receive", None) if os.name == "posix" and not self.layered else None
        if fast is None:
            self._receive: Callable[[memoryview], int] = sock.recv_into
        else:
            fd = sock.fileno()
            slice_ms = timing.slice_ms
            self._receive = lambda space: fast(fd, space, TRAINER_SPIN_US, slice_ms)

    @property
    def peer(self) -> tuple[str, int] | None:
        """Host and port of the other end; None where the connection is gone, though what came before can be read."""
        try:
            host, port = self.sock.getpeername()[:2]
        except OSError:
            return None
        return host, port

    @property
    def is_local(self) -> bool:
        """Do both ends have one address, as on one machine?"""
        try:
            return bool(self.sock.getsockname()[0] == self.sock.getpeername()[0])
        except OSError:  # it was closed
            return False

    def send(self, data: bytes | memoryview, deadline: float) -> None:
        """Sends all of `data`; raises EngineDisconnected: the peer has gone. EngineTimeout: it does not read."""
        while True:
            try:
                sent = self.sock.send(data)
            except OSError as error:
                if not _would_block(error):
                    raise self.gone(error) from error
                sent = 0
            if sent == len(data):
                return
            data = memoryview(data)[sent:]
            if self._now() > deadline:
                raise EngineTimeout(
                    "the engine does not read what is sent to it", cure="is the game paused, or stopped in a debugger?"
                )

    def next_span(self, deadline: float, silence: str = "") -> tuple[int, int]:
        """(start, end) in `lines.data` of the next line, received if need be.

        Args:
            deadline: seconds of `timing`.
            silence: a hint for the log, where nothing at all has come for HINT_AFTER seconds.

        Raises:
            EngineTimeout: no whole line by `deadline`.
            EngineDisconnected: the peer has gone. LineTooLong.
        """
        lines = self.lines
        span = lines.next_span() if len(lines) else None
        quiet_since = 0.0
        while span is None:
            try:
                count = self._receive(lines.space())
            except OSError as error:
                if not _would_block(error):
                    raise self.gone(error) from error
                count = -1
            if count > 0:
                lines.received(count)
                span = lines.next_span()
                if span is not None:
                    break
                quiet_since = 0.0
            elif count == 0:
                raise self.gone(None)
            now = self._now()
            if now > deadline:
                raise late_line(lines.unread())
            quiet_since = quiet_since or now
            if now - quiet_since > HINT_AFTER:
                self.hint(unfinished_hint(lines.unread()) if len(lines) else silence)
        return span

    def hint(self, text: str) -> None:
        """Into the log, once for each connection."""
        if text and not self._hinted:
            self._hinted = True
            _log.warning("%s", text)

    def has_stray_data(self) -> bool:
        """Has the peer sent more than was read? Looks without waiting."""
        if len(self.lines):
            return True
        before = self.sock.gettimeout()
        self.sock.setblocking(False)
        try:
            if self.layered:  # what is on the socket may be the layer's own: it is read
                self.lines.received(self.sock.recv_into(self.lines.space()))
                return bool(len(self.lines))
            return bool(self.sock.recv(1, socket.MSG_PEEK))
        except OSError as error:
            if not _would_block(error):  # the next send or receive fails, too
                self.failed(error.errno or 0)
            return False
        finally:
            self.sock.settimeout(before)

    def require_silence(self, env_id: int | None = None) -> None:
        """Raises UnexpectedMessage where the peer has sent more than was read, of env `env_id` where that is known.

        Raises:
            EngineDisconnected: what has come says why it ends the session.
        """
        if self.has_stray_data():
            came = self.lines.unread()
            ended = self.last_words()
            if ended is not None:
                raise ended
            raise UnexpectedMessage(
                "the engine sent a line that nobody asked for",
                fault="engine",
                env_id=env_id,
                expected="one answer per request",
                got=came or None,
                cure="the game must answer each ACT exactly once",
            )

    def failed(self, number: int) -> None:
        """Its socket failed so where others received from it: the system says it only once."""
        self._broken = OSError(number, os.strerror(number))

    def hung_up(self) -> bool:
        """Has the peer closed its end? Looks without waiting; False where the system cannot tell (only Linux can)."""
        if sys.platform != "linux" or self.sock.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLRDHUP)
        return bool(poll.poll(0))

    def last_words(self, wait: float = 0.0) -> EngineDisconnected | None:
        """The error that an ERROR line stands for, among all that has come and was not read; for a failed connection.

        Args:
            wait: seconds to wait for it.
        """
        lines = self.lines
        with contextlib.suppress(OSError):
            self.sock.settimeout(wait)
            while len(lines) < lines.max_line and (count := self.sock.recv_into(lines.space())):
                lines.received(count)
        with contextlib.suppress(LineTooLong):
            while (line := lines.next_line()) is not None:
                if (ended := ended_by(line)) is not None:
                    return ended
        return None

    def shut_down(self) -> None:
        """Ends the connection; its descriptor stays open. A forked child ends nothing: the session is its parent's."""
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket; never raises."""
        self.shut_down()
        self.sock.close()

    def gone(self, error: OSError | None) -> EngineDisconnected:
        """The error for a peer that closed (`error` None) or a socket that failed; with its reason if it gave one."""
        unfinished = len(self.lines)
        ended = self.last_words()
        if ended is not None:
            return ended
        error = self._broken or error
        if error is not None and self.encrypted and hasattr(error, "reason"):
            return EngineDisconnected(f"TLS ended: {why(error)}", got=str(error))
        if error is not None and error.errno in _NO_WAY:
            return EngineDisconnected(
                "the engine's machine does not answer any more",
                fault="network",
                got=str(error),
                cure="is it still on, and is the network between it and this one up?",
            )
        got = "the connection was closed" if error is None else str(error)
        if unfinished:
            got += f", {unfinished} bytes of an unfinished line before it"
        return engine_gone(got)


def engine_gone(got: str) -> EngineDisconnected:
    """The error for an engine that has gone."""
    return EngineDisconnected(
        "the engine went away", got=got, cure="look into the game's log: it crashed, was stopped, or closed its bridge"
    )


def unfinished_hint(unread: bytes) -> str:
    """For the log: bytes have come, and no line feed behind them."""
    return printable(f"{UNFINISHED}; got {shorten(unread)}")


def late_line(unread: bytes) -> EngineTimeout:
    """The error for a line of which only `unread` has come by the deadline."""
    if not unread:
        return EngineTimeout("the engine did not answer in time", got="nothing")
    return EngineTimeout(
        "the engine did not finish its line in time",
        expected="a line feed at its end",
        got=f"{len(unread)} bytes of an unfinished line: {shorten(unread)}",
        cure=UNFINISHED,
    )


def engine_late(waiting: list[int], total: int, timeout: float, got: str, why: str) -> EngineTimeout:
    """The error for an engine of whose `total` envs those in `waiting` have not answered."""
    return EngineTimeout(
        f"the engine answered {total - len(waiting)} of {total} envs within {timeout:g} s",
        env_id=waiting[0] if len(waiting) == 1 else None,
        expected=f"answers of envs {waiting}",
        got=got,
        cure=f"{why} {MORE_TIME}",
    )


def readable(links: Sequence[Link]) -> Callable[[], bool]:
    """A function that says, without waiting and in one system call, whether any of `links` has something to read."""
    if any(link.layered for link in links):
        return lambda: any([link.has_stray_data() for link in links])
    fds = [link.sock.fileno() for link in links]
    if sys.platform != "win32":
        poller = select.poll()
        for fd in fds:
            poller.register(fd, select.POLLIN)
        return lambda: bool(poller.poll(0))
    # Windows has no poll; its select takes descriptors of any number, 512 at once.
    batches = [fds[i : i + 500] for i in range(0, len(fds), 500)]
    return lambda: any(select.select(batch, [], [], 0)[0] for batch in batches)  # noqa: TID251


def _would_block(error: OSError) -> bool:
    """Nothing came, or went, within a slice. ETIMEDOUT is another matter: the peer was given up."""
    if isinstance(error, TimeoutError):
        return error.errno != errno.ETIMEDOUT
    return isinstance(error, BlockingIOError) or type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


def dial(host: str, port: int, deadline: float, *, wait: float = 0.0, timing: Timing = SYSTEM_TIMING) -> socket.socket:
    """A connected socket.

    Args:
        host: a name or an IPv4 or IPv6 address. port: 1 to 65535.
        deadline: seconds of `timing` by which one attempt must succeed.
        wait: keep trying this many seconds while nobody listens, or nobody answers.
        timing: its clock.

    Raises:
        EngineUnreachable: nobody listens, the name is unknown, or the network refuses.
        EngineTimeout: no answer by the deadline.
    """
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    give_up = timing.now() + wait
    while True:
        now = timing.now()
        try:
            sock = socket.create_connection((host, port), timeout=max(0.05, deadline - now))
            if not _to_itself(sock):
                return sock
            sock.close()
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        except (socket.gaierror, UnicodeError) as unknown:  # UnicodeError: it cannot be any host's name
            what, cure = f"the host name {host!r} is unknown", "is it spelt right? An address in numbers always works"
            raise EngineUnreachable(what, fault="caller", got=str(unknown), cure=cure) from unknown
        except TimeoutError as late:
            if timing.now() < give_up:  # a machine that starts answers nobody
                deadline = timing.now() + max(deadline - now, 1.0)
                continue
            raise EngineTimeout(
                f"connecting to {where} took too long",
                fault="network",
                cure="is the machine up, and does a firewall drop the packets?",
            ) from late
        except OSError as refused:
            # Kept in no other variable: an error and the frame that holds it would keep each other, and all that the
            # callers' frames hold later, such as the memory of an engine that is lost.
            if timing.now() >= give_up:
                raise EngineUnreachable(
                    f"nothing listens on {where}",
                    got=str(refused),
                    cure="is Play pressed, and is the game's bridge set to this port?",
                ) from refused
        timing.sleep(min(0.2, max(0.01, give_up - timing.now())))
        deadline = max(deadline, timing.now() + 1.0)


def _to_itself(sock: socket.socket) -> bool:
    """TCP can connect a socket to itself when dialling a free ephemeral port on loopback."""
    try:
        return bool(sock.getsockname() == sock.getpeername())
    except OSError:  # the other end has gone already: reading says so
        return False
