"""Connection: one socket that a server accepted, as asyncio sees it. What is said on it is the server's business."""

from __future__ import annotations

import asyncio
import errno
import logging
import select
import socket
import sys
import time
from typing import TYPE_CHECKING

from ue_rl.system.forks import leave_to_parent
from ue_rl.system.keepalive import notice_dead_peer

if TYPE_CHECKING:
    from ue_rl.bridges.tcp.server import BridgeServer

_log = logging.getLogger("ue_rl.bridges.tcp.server")
MAX_EARLY = 1 << 20
_OPENINGS = tuple(word.encode() for word in ("ACT", "RESET", "TRAINING_COMPLETE"))


def gives_sockets_away(loop: asyncio.AbstractEventLoop) -> bool:
    """Does Connection.detach work on `loop`? Not on Windows' default one, which reads ahead: bytes could get lost."""
    proactor = getattr(asyncio, "ProactorEventLoop", None)
    return proactor is None or not isinstance(loop, proactor)


class Connection(asyncio.Protocol):
    """One accepted socket.

    Args:
        server: told that it was accepted, that bytes came, that it is gone, and that `clogged` has changed.

    Attributes:
        place: in its session: 0 = first, i + 1 = env i's own; -1 = in none (yet).
        peer: the other side's address, for people; host: without the port. early: what came before it was in a session.
        gone: closed. heard: something came.
        clogged: the other side does not read what it was sent. detached: the socket was given away.
        since: when it was accepted, time.monotonic() seconds. fd: its descriptor.
        encrypted: it speaks TLS: what is on its descriptor is not what was said.
        told: it came while somebody else was served: the first connection of a trainer that waits.
    """

    def __init__(self, server: BridgeServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self.place = -1
        self.peer = self.host = "?"
        self.early = b""
        self.gone = self.heard = False
        self.clogged = False
        self.detached = False
        self.told = False
        self.since = time.monotonic()
        self.fd = -1
        self.encrypted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if peer:
            self.host = str(peer[0])
            self.peer = f"{peer[0]}:{peer[1]}"
        sock = transport.get_extra_info("socket")
        self.encrypted = transport.get_extra_info("ssl_object") is not None
        if sock is not None:
            self.fd = sock.fileno()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            notice_dead_peer(sock)
            leave_to_parent(sock)
        self._server.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self.heard = True
        if self.place < 0 and not self.gone and not self._speaks_our_language(data):
            _log.warning(
                "a connection from %s was closed: it sent %r, which no trainer says before it is served",
                self.peer,
                (self.early + data)[:60],
            )
            self.drop()
            return
        self._server.data_received(self, data)

    def _speaks_our_language(self, data: bytes) -> bool:
        """Nothing but requests can come before a handshake: an env socket's, or those of one who knows the game."""
        if len(self.early) > MAX_EARLY:
            return False
        begin = (self.early[:64] + data[:64]).lstrip()[:8].upper()
        return (
            not begin or begin[0] in b"+-.0123456789" or any(begin.startswith(word[: len(begin)]) for word in _OPENINGS)
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._server.connection_lost(self)

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self.clogged = True
        self._server.clogging_changed()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self.clogged = False
        self._server.clogging_changed()

    def pause_reading(self, pause: bool) -> None:
        """Stops or goes on reading."""
        if self._transport is not None and not self._transport.is_closing() and not self.detached:
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Sends."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def closed_by_peer(self) -> bool:
        """Has the other side closed, though the event loop has not come to hear of it?"""
        if self._transport is None or self._transport.is_closing():
            return True
        if sys.platform == "linux":  # also behind data that was not read yet
            poller = select.poll()
            poller.register(self.fd, select.POLLRDHUP)
            return bool(poller.poll(0))
        try:
            with self._transport.get_extra_info("socket").dup() as sock:
                sock.setblocking(False)
                return not sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError as error:
            return error.errno not in (errno.EMFILE, errno.ENFILE)

    def detach(self) -> socket.socket:
        """A blocking socket of the same connection, for another owner; nothing more is read or written here.

        Raises:
            OSError: there are too many files open; then nothing has changed.
        """
        assert self._transport is not None
        mine: socket.socket = self._transport.get_extra_info("socket").dup()
        self._transport.pause_reading()
        self.detached = True
        mine.setblocking(True)
        leave_to_parent(mine)
        return mine

    def drop(self) -> None:
        """Closes; what the other side does not read is thrown away instead of waiting for it for ever."""
        self.gone = True
        if self._transport is None:
            return
        if self.clogged:
            self._transport.abort()
        else:
            self._transport.close()
