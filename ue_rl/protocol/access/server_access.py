"""Doors: asyncio protocols that stand before those of a server: who is behind TLS, and knows the token, comes through.

Nothing of a server's own is reached before: an unknown peer takes no turn in a queue, and no place of a session.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from os import PathLike

from ue_rl.protocol.access.tls import engine_context, why
from ue_rl.protocol.access.tokens import LONGEST, accept, challenge, read_token
from ue_rl.protocol.text.notices import error_line
from ue_rl.system import listening
from ue_rl.system.errors import ConfigurationError

MOST_OUTSIDE = 64  # connections that have not come through yet; more are refused
PATIENCE = 5.0  # seconds in which one must
_log = logging.getLogger(__name__)
Make = Callable[[], asyncio.Protocol]


class Refusals:
    """Logs who was refused, a line a second: a crowd must not fill the disk, nor keep the loop busy with its names.

    Args:
        log: where to. who: in words, of everybody. now: seconds, as time.monotonic.
    """

    def __init__(self, log: logging.Logger, who: str, now: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._now = now
        self._who = who
        self._quiet_until = 0.0
        self._untold = 0

    def log(self, peer: str, why: str) -> None:
        """One more."""
        now = self._now()
        if now < self._quiet_until:
            self._untold += 1
            return
        more = ""
        if self._untold:
            more = f" (and {self._untold} more since the last such line)"
        self._log.warning("%s from %s was refused: %s%s", self._who, peer, why, more)
        self._quiet_until = now + 1.0
        self._untold = 0


class ServerAccess:
    """Who may come in.

    Args:
        token_file: None: nobody is asked. tls_cert, tls_key: PEM files; None: plain text.
        tls_client_ca: whose certificates are asked for.
        patience: seconds in which who dials must have shown what is asked for.
        most_outside: connections that have not come through yet; more are refused.

    Raises:
        ConfigurationError: a file that cannot be used.
    """

    def __init__(
        self,
        token_file: str | PathLike[str] | None = None,
        tls_cert: str | PathLike[str] | None = None,
        tls_key: str | PathLike[str] | None = None,
        tls_client_ca: str | PathLike[str] | None = None,
        patience: float = PATIENCE,
        most_outside: int = MOST_OUTSIDE,
    ) -> None:
        if tls_cert is None and (tls_key is not None or tls_client_ca is not None):
            raise ConfigurationError("TLS needs a certificate of this side", field="tls_cert", expected="a PEM file")
        self._files = token_file, tls_cert, tls_key, tls_client_ca
        self.patience = patience
        self.most_outside = most_outside
        if token_file is None:
            self.token = None
        else:
            self.token = read_token(token_file)
        if tls_cert is None:
            self.tls = None
        else:
            self.tls = engine_context(tls_cert, tls_key, tls_client_ca)
        self.outside = 0
        self.refusals = Refusals(_log, "a connection")

    def __reduce__(self) -> tuple[type[ServerAccess], tuple[object, ...]]:
        """Another process reads the files itself."""
        return ServerAccess, (*self._files, self.patience, self.most_outside)

    @property
    def asks(self) -> bool:
        """Is anybody asked for anything that not everybody has?"""
        return self.token is not None or (self.tls is not None and self.tls.verify_mode is ssl.CERT_REQUIRED)

    @property
    def tls_files(self) -> tuple[str | PathLike[str] | None, ...]:
        """Certificate, key and whose certificates are asked for, for libraries that read them themselves."""
        return self._files[1:]

    def before(self, make: Make) -> Make:
        """Makes what stands before the protocols that `make` makes."""
        if self.token is not None:
            make = partial(_TokenDoor, self, make, self.token)
        if self.tls is not None:
            make = partial(_TlsDoor, self, make, self.tls)
        return make


class _Door(asyncio.Protocol):
    def __init__(self, access: ServerAccess, make: Make) -> None:
        self.access = access
        self.make = make
        self.transport: asyncio.Transport | None = None
        self.early = b""
        self.peer = "?"
        self.is_outside = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        peer = transport.get_extra_info("peername")
        if peer:
            self.peer = f"{peer[0]}:{peer[1]}"
        else:
            self.peer = "?"
        self.access.outside += 1
        self.is_outside = True
        if self.access.outside > self.access.most_outside:
            self.close(f"{self.access.most_outside} connections are being asked already")
        else:
            self.ask()

    def ask(self) -> None:
        """Begins."""

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self.early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.settle()

    def settle(self) -> None:
        """It is asked no more."""
        self.access.outside -= self.is_outside
        self.is_outside = False

    def come_in(self, transport: asyncio.Transport) -> None:
        """The server has it from here on, with what came already."""
        self.settle()
        inner = self.make()
        transport.set_protocol(inner)
        inner.connection_made(transport)
        if self.early and not transport.is_closing():
            inner.data_received(self.early)
        self.early = b""

    def close(self, reason: str) -> None:
        """Refuses it."""
        if self.is_outside and self.transport is not None:
            self.settle()
            self.access.refusals.log(self.peer, reason)
            self.transport.write(error_line(reason))
            self.transport.close()


class _TokenDoor(_Door):
    def __init__(self, access: ServerAccess, make: Make, token: bytes) -> None:
        super().__init__(access, make)
        self.token = token
        self.timer: asyncio.TimerHandle | None = None
        self.nonce = ""

    def ask(self) -> None:
        """Sends the challenge."""
        assert self.transport is not None
        line, self.nonce = challenge()
        self.transport.write(line)
        late = "it did not answer the challenge in time: it has no token"
        self.timer = asyncio.get_running_loop().call_later(self.access.patience, self.close, late)

    def settle(self) -> None:
        """See _Door."""
        super().settle()
        if self.timer is not None:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if not self.is_outside:
            return
        assert self.transport is not None
        self.early += data
        line, feed, rest = self.early.lstrip(b"\r\n").partition(b"\n")
        if not feed and len(line) <= LONGEST:
            return
        text = line.decode("ascii", "backslashreplace").strip()
        proof = None
        if feed:
            proof = accept(self.token, self.nonce, text)
        if proof is None:
            answered = text.startswith("AUTH=")
            reason = "this engine asks for a token, and it has given none"
            if answered:
                reason = "its token is wrong"
            self.close(reason)
            return
        self.early = rest
        self.transport.write(proof)
        self.come_in(self.transport)


class _TlsDoor(_Door):
    """Begins TLS with `start_tls`, which raises what went wrong.

    `create_server(ssl=..)` shakes the same hands, but of a handshake that fails it tells neither the server's log nor
    the other side, and it counts nobody who is still at it.
    """

    def __init__(self, access: ServerAccess, make: Make, context: ssl.SSLContext) -> None:
        super().__init__(access, make)
        self.context = context

    def ask(self) -> None:
        """Begins TLS."""
        self.task = asyncio.get_running_loop().create_task(self._shake_hands())  # held: the loop alone does not

    async def _shake_hands(self) -> None:
        plain = self.transport
        assert plain is not None
        loop = asyncio.get_running_loop()
        with plain.get_extra_info("socket").dup() as spare:  # the loop closes its own where TLS fails
            try:
                encrypted = await loop.start_tls(
                    plain, self, self.context, server_side=True, ssl_handshake_timeout=self.access.patience
                )
            except OSError as error:
                self._refuse(spare, error)
                return
        if encrypted is not None and self.is_outside:
            self.come_in(encrypted)

    def _refuse(self, sock: socket.socket, error: OSError) -> None:
        if isinstance(error, ConnectionAbortedError):
            reason = "it has said nothing: this port speaks TLS"
        else:
            reason = f"no TLS: {why(error)}"
        self.settle()
        self.access.refusals.log(self.peer, reason)
        if reason.endswith(("speaks TLS", "speaks no TLS")):  # it may be a trainer that waits for plain text
            with contextlib.suppress(OSError):
                sock.send(error_line("this port speaks TLS: dial tls://"))


async def listen(
    make: Make, host: str, port: int, backlog: int, access: ServerAccess | None = None
) -> tuple[asyncio.Server, int]:
    """As ue_rl.system.listening.listen, with `access` before it."""
    if access is None or not access.asks:
        warn_if_open(host)
    if access is None:
        factory = make
    else:
        factory = access.before(make)
    return await listening.listen(factory, host, port, backlog)


def warn_if_open(host: str) -> None:
    """Warns where others than this machine may connect, and nobody asks who they are."""
    if not is_local(host):
        where = host
        if not where:
            where = "this port"
        _log.warning("anybody who reaches %s may connect: bind 127.0.0.1, or see docs/security.md", where)


def warn_if_readable(host: str, access: ServerAccess) -> None:
    """Warns where a token goes as it is (over HTTP and gRPC) through a network, without TLS."""
    if access.token is not None and access.tls is None and not is_local(host):
        _log.warning("the token for %s can be read on its way: give --tls-cert, or put TLS before it", host)


def is_local(host: str) -> bool:
    """Is this address reached from this machine alone? A name but localhost may be anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().removesuffix(".") == "localhost"
