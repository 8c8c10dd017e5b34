"""The sockets of a session: the first one, with the handshake on it, and those of the envs."""

from __future__ import annotations

import contextlib
import logging
import math

from ue_rl.connections.tcp.link import UNFINISHED, Link, dial
from ue_rl.protocol.access.client_access import ClientAccess, asks_for_token, blamed
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text import MAX_HANDSHAKE, decode_handshake
from ue_rl.protocol.text.notices import ended_by, notice_of
from ue_rl.system.durable import amount
from ue_rl.system.errors import (
    AccessRefused,
    EngineBusy,
    EngineDisconnected,
    EngineTimeout,
    EngineUnreachable,
    HandshakeError,
    UeRlError,
    UnsupportedByEngine,
)
from ue_rl.system.room import MORE_ROOM, short_of
from ue_rl.system.timing import SYSTEM_TIMING, Timing

_log = logging.getLogger("ue_rl.connections")

_NO_GREETING = (
    "connected, but the engine says nothing, and it is still waited for; a game greets within 0.1 s: "
    "does the port speak TLS (then dial tls://), has a trainer been here before (the Unreal plugin serves one in each "
    "Play: press Play again), or is this not the game's port?"
)
_BUSY_GRACE = 1.0  # seconds: the trainer that is served may be one that has just closed
# Seconds of silence behind which another connection is made: one that ends after 24 s and more shows an engine that it
# was no env socket of the silent one before it, which then has to give way (docs/protocol.md, section 4).
_REDIAL = 30.0
_BETWEEN = 0.2  # seconds between two connections that are closed before a word
_ACCEPT_SECONDS = 0.1  # the deployed plugin takes one connection in so many, and answers none before all are there


def shake_hands(
    host: str,
    port: int,
    timeout: float,
    wait: float = 0.0,
    access: ClientAccess | None = None,
    timing: Timing = SYSTEM_TIMING,
) -> tuple[Link, EnvSpec]:
    """The first connection and what the engine said on it.

    Args:
        timeout: seconds for connecting and, again, for the CONFIG line. wait: keep trying this many seconds while
            nobody listens, the engine says nothing, or the connection is closed before a word is said, and wait this
            long for a turn where another trainer is served.
        access: TLS and token of this side. timing: the link's.

    Raises:
        AccessRefused, EngineUnreachable, EngineBusy, EngineTimeout, EngineDisconnected, HandshakeError.
    """
    wait_until = timing.now() + wait
    closed: EngineDisconnected | None = None  # why the first connection was closed before a word was said
    try:
        while True:
            now = timing.now()
            sock = dial(host, port, now + timeout, wait=max(wait_until - now, 0.0), timing=timing)
            patience = max(timeout, min(wait_until - now, _REDIAL))
            if closed is not None:
                # Such a port may also take a connection and leave it: no longer than it is waited for.
                patience = max(wait_until - now, _BETWEEN)
            link: Link | None = None
            try:
                if access is not None:
                    sock = access(sock, host, port, timing.now() + timeout)
                link = Link(sock, MAX_HANDSHAKE, timing)
                return link, hear_handshake(link, patience, wait_until)
            except BaseException as error:
                if link is not None:
                    link.close()
                waits = timing.now() < wait_until
                if isinstance(error, EngineDisconnected) and error.unheard and waits:
                    if closed is None:
                        _tell_closed(host, port, wait_until - timing.now())
                    closed = closed or error
                    timing.sleep(min(_BETWEEN, max(wait_until - timing.now(), 0.0)))
                    continue
                if link is None or not isinstance(error, EngineTimeout):
                    raise
                if closed is not None and not len(link.lines):
                    raise closed from error
                if len(link.lines) or not waits:
                    raise _no_handshake(link, patience if len(link.lines) else max(timeout, wait), error) from error
    finally:
        # An error and the frame that holds it would keep each other, and all that the callers' frames hold, until the
        # cyclic collector comes by.
        closed = None


def _tell_closed(host: str, port: int, seconds: float) -> None:
    """Says what it is waited for, and how long."""
    _log.warning(
        "port %d of %s accepts and closes the connection before a word is said, as a published port does whose game "
        "does not listen yet; it is dialled for %.0f s more",
        port,
        host,
        seconds,
    )


def hear_handshake(link: Link, timeout: float, wait_until: float) -> EnvSpec:
    """What the engine says first within `timeout` seconds, or when the trainer before this one has gone.

    Args:
        link: the first connection. wait_until: seconds of its clock to which it waits for its turn.

    Raises:
        EngineTimeout: it has not said that by then. Otherwise as `shake_hands`.
    """
    busy: EngineBusy | None = None
    deadline = link.timing.now() + timeout
    while True:
        try:
            if busy is None:
                silence = _NO_GREETING
            else:
                silence = ""
            start, end = link.next_span(deadline, silence=silence)
        except (EngineTimeout, EngineDisconnected) as error:
            if busy is not None and error.field != "ERROR":
                raise busy from None
            if link.encrypted and isinstance(error, EngineDisconnected) and error.field != "ERROR":
                raise AccessRefused(
                    "the engine ended TLS before it said anything",
                    got=error.got,
                    cure="it may ask for a certificate: tls://HOST:PORT?cert=FILE&key=FILE; its log says why",
                ) from error
            if isinstance(error, EngineDisconnected) and error.fault == "engine" and error.field != "ERROR":
                if len(link.lines):
                    field = None
                else:
                    field = EngineDisconnected.UNHEARD
                raise EngineDisconnected(
                    "the engine closed the connection and sent no handshake",
                    got=error.got,
                    field=field,
                    cure="does it serve another trainer, or is this not the game's port? Its log may say why",
                ) from error
            raise
        line = bytes(link.lines.data[start:end])
        notice = notice_of(line)
        if notice is None:
            if line[:5] == b"AUTH=":
                raise asks_for_token(link.sock)
            spec = decode_handshake(line)
            link.greeting = line.decode("ascii").strip()
            return spec
        if (ended := ended_by(line)) is not None:
            raise blamed(ended)
        busy = _busy(link, notice[2])
        deadline = max(wait_until, link.timing.now() + min(_BUSY_GRACE, timeout))


def _busy(link: Link, said: dict[str, str]) -> EngineBusy:
    """The error for a BUSY line with the fields `said`."""
    who = "another trainer"
    if said.get("PEER"):
        who = f"a trainer at {said['PEER']}"
    with contextlib.suppress(KeyError, ValueError):
        who += f", connected for {float(said['SINCE']):.0f} s"
    engine = "the engine"
    if link.peer is not None:
        host, port = link.peer
        engine = f"the engine on {host}:{port}"
    return EngineBusy(
        f"{engine} serves {who}",
        cure="close that one first (in a notebook: env.close() on the one of the cell's last run), start a second "
        "engine on another port, or wait for your turn: tcp://HOST:PORT?wait=60s, or wait=SECONDS",
    )


def _no_handshake(link: Link, timeout: float, error: EngineTimeout) -> HandshakeError:
    unread = link.lines.unread()
    if unread:
        return HandshakeError(
            f"the engine's first line was not finished within {timeout:g} s",
            expected="a line feed at the end of the line",
            got=unread,
            cure=UNFINISHED,
        )
    return HandshakeError(
        "the engine accepted the connection but sent no handshake",
        expected=f"CONFIG:.. within {timeout:g} s",
        got=error.got,
        cure="does the port speak TLS (then dial tls://), is another trainer connected, did one connect before (then "
        "press Play again), or is this not the game's port?",
    )


def accept_seconds(spec: EnvSpec) -> float:
    """What an engine may take to accept all env sockets, on top of its deadline."""
    if spec.version:
        return 0.0
    return _ACCEPT_SECONDS * spec.num_envs


def open_env_links(
    host: str,
    port: int,
    spec: EnvSpec,
    max_line: int,
    timeout: float,
    *,
    fall_back: bool,
    access: ClientAccess | None = None,
    timing: Timing = SYSTEM_TIMING,
) -> list[Link]:
    """Opens the env sockets in order; none where the listener refuses the first and `fall_back`."""
    links: list[Link] = []
    count = spec.num_envs
    deadline = timing.now() + timeout + accept_seconds(spec)
    try:
        for env in range(count):
            sock = dial(host, port, deadline, timing=timing)
            if access is None:
                opened = sock
            else:
                opened = access(sock, host, port, deadline)
            links.append(Link(opened, max_line, timing))
            if env % 4 == 3:
                # Engines let about 8 connections wait to be accepted; one too many is tried again a second later.
                timing.sleep(1e-4)
    except BaseException as error:
        for link in links:
            link.close()
        if not isinstance(error, UeRlError):
            raise
        if fall_back and not links and isinstance(error, EngineUnreachable):
            return []
        raise type(error)(
            f"the engine took the first connection, but only {len(links)} of {count} env sockets",
            fault="engine",
            got=error.got,
            cure="if it serves one socket for all envs, connect with channel='shared'",
        ) from error
    return links


def no_images(spec: EnvSpec, link: Link) -> UnsupportedByEngine:
    """The error for text and an engine with images: either it offers no shared memory, or the caller wants none.

    Args:
        link: the first connection.
    """
    assert spec.image is not None
    got = spec.image.text()
    cure = (
        "run the trainer on the engine's machine, let the engine offer shared memory, and connect with "
        "transport='auto' or 'shm'"
    )
    needed = spec.num_envs * math.prod(spec.image.size)
    short = ""
    if spec.shm is None and link.is_local:
        short = short_of(needed)
    if short:
        got = f"no offer of shared memory; {short}, and the images of {spec.num_envs} envs take {amount(needed)}"
        cure = f"{MORE_ROOM} The engine's log says why it offers none"
    return UnsupportedByEngine(
        "this engine's observations have images, which text does not carry",
        field="IMAGE",
        expected="shared memory",
        got=got,
        cure=cure,
    )
