"""ClientAccess: what a trainer does with a socket before it is used: TLS, and the proofs of a token."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from os import PathLike
from typing import NamedTuple

from ue_rl.protocol.access.tls import refused, trainer_context
from ue_rl.protocol.access.tokens import LONGEST, answer, read_token, same
from ue_rl.protocol.text.notices import ended_by, notice_of
from ue_rl.system.errors import AccessRefused, EngineDisconnected, EngineTimeout, UeRlError

GUARDED = ("token_file", "ca", "cert", "key")  # the files that a ClientAccess is made of


class ClientAccess(NamedTuple):
    """Called with each connected socket.

    Attributes:
        token: of both sides; None: no token is asked for, nor given. tls: None: plain text.
    """

    token: bytes | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(
        cls,
        token_file: str | PathLike[str] | None = None,
        tls: bool = False,
        ca: str | PathLike[str] | None = None,
        cert: str | PathLike[str] | None = None,
        key: str | PathLike[str] | None = None,
    ) -> ClientAccess | None:
        """One from files; None: there is nothing to do. Raises ConfigurationError where a file cannot be used."""
        token = None
        if token_file is not None:
            token = read_token(token_file)
        context = None
        if tls:
            context = trainer_context(ca, cert, key)
        if token is None and context is None:
            return None
        return cls(token, context)

    def __call__(self, sock: socket.socket, host: str, port: int, deadline: float) -> socket.socket:
        """The socket to use from here on; it is closed where this fails.

        Raises:
            AccessRefused: either side is not let in by the other. EngineTimeout: by `deadline` (time.monotonic()).
            EngineDisconnected: the engine says why it ends the connection.
        """
        if ":" in host:
            where = f"[{host}]:{port}"
        else:
            where = f"{host}:{port}"
        step = "TLS"
        try:
            sock.settimeout(max(deadline - time.monotonic(), 0.05))
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_hostname=host)
            step = "a token"
            if self.token is not None:
                _prove(sock, self.token, where, deadline)
        except TimeoutError as late:
            sock.close()
            what = f"the engine on {where} has not said a word about {step} in time"
            raise EngineTimeout(what, cure=f"is it started with {step}, and not busy?") from late
        except OSError as error:
            sock.close()
            if isinstance(error, UeRlError):
                raise
            if isinstance(error, (ssl.SSLEOFError, ConnectionError)):
                raise _unheard(where, str(error)) from error
            raise refused(error, where) from error
        except BaseException:
            sock.close()
            raise
        return sock


def asks_for_token(sock: socket.socket) -> AccessRefused:
    """The error of who dials without one; `sock`: the connection, of which a run may have several."""
    where = ""
    with contextlib.suppress(OSError):  # it has gone meanwhile
        host, port, *_ = sock.getpeername()
        if ":" in host:
            where = f" on [{host}]:{port}"
        else:
            where = f" on {host}:{port}"
    return AccessRefused(
        f"the engine{where} asks for a token",
        field="token_file",
        expected="a proof of its token",
        got="none was given",
        cure="give its file behind the address, tcp://HOST:PORT?token-file=FILE, or as token_file=",
    )


def speaks_tls(sentence: str) -> bool:
    """Does the door of a server say so, to one who dials in plain text?"""
    return "port speaks TLS" in sentence


def port_speaks_tls(cure: str = "dial tls://HOST:PORT?ca=FILE") -> AccessRefused:
    """The error of who dials in plain text."""
    return AccessRefused("this port speaks TLS", field="url", expected="TLS", got="plain text", cure=cure)


def blamed(ended: EngineDisconnected) -> EngineDisconnected:
    """The error for an ERROR line: a door's word that its port speaks TLS is for who has dialled in plain text."""
    if speaks_tls(ended.message):
        ended.fault = "caller"
        ended.cure = port_speaks_tls().cure
    return ended


def _unheard(where: str, got: str) -> EngineDisconnected:
    return EngineDisconnected(
        f"{where} closed the connection before anything was said",
        field=EngineDisconnected.UNHEARD,
        fault="engine",
        got=got,
        cure="does the engine listen there already, and with the TLS and the token that were given? Its log may say",
    )


def _prove(sock: socket.socket, token: bytes, where: str, deadline: float) -> None:
    line = _line(sock, where, deadline)
    told = answer(token, line)
    if told is None:
        if (ended := ended_by(line.encode())) is not None:
            raise blamed(ended)
        open_door = line[:7].upper() == "CONFIG:" or notice_of(line.encode()) is not None
        if open_door:
            problem = f"the engine on {where} asks for no token"
        else:
            problem = f"{where} asks for no token as an engine does"
        raise AccessRefused(
            problem,
            field="token_file",
            expected="AUTH=..",
            got=line,
            cure="start the engine with the token, or leave token_file out where anybody may be the engine",
        )
    sock.sendall(told[0])
    line = _line(sock, where, deadline)
    if not same(told[1], line):
        notice = notice_of(line.encode())
        if notice is not None:
            got = notice[1]
            if not got:
                got = notice[0]
            raise AccessRefused(
                f"the engine on {where} refused the token",
                field="token_file",
                got=got,
                cure="is it the engine's?",
            )
        what = f"the engine on {where} does not know the token: it may be another one than yours"
        raise AccessRefused(what, field="token_file", got=line)


def _line(sock: socket.socket, where: str, deadline: float) -> str:
    """The next line; not a byte behind it is read: that is the handshake's."""
    line = b""
    while not line.endswith(b"\n"):
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        byte = sock.recv(1)
        line += byte
        if not byte or (len(line) > LONGEST and line[:1] != b"E"):
            if not byte and not line:
                raise _unheard(where, "the connection was closed")
            break
        if len(line) > 8 * LONGEST:
            break
    return line.decode("ascii", "backslashreplace").strip()
