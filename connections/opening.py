"""open_engine: one connection to an engine over TCP or shared memory, whichever the caller wants and both sides can.

The first socket gets the handshake. Where it offers shared memory, and the segment can be mapped here, the session goes
over (docs/shared-memory.md, section 3); otherwise it goes on in text on the same socket.
"""

from __future__ import annotations

import logging
from typing import Any, TypeAlias

from ue_rl.connections.base.address import TRANSPORTS, split_place
from ue_rl.connections.shm.connection import SharedMemoryConnection
from ue_rl.connections.shm.upgrade import UpgradeRefused
from ue_rl.connections.tcp.greeting import shake_hands
from ue_rl.connections.tcp.kinds import MultiTcpConnection, SingleTcpConnection, go_on
from ue_rl.protocol.access.client_access import GUARDED, ClientAccess
from ue_rl.system.compiled import is_built
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.timing import SYSTEM_TIMING, Timing

_log = logging.getLogger("ue_rl.connections")

Spoken: TypeAlias = MultiTcpConnection | SingleTcpConnection | SharedMemoryConnection


def open_engine(
    host: str,
    port: int,
    *,
    transport: str = "auto",
    channel: str = "auto",
    spin_us: float | None = None,
    compiled: bool | None = None,
    nul_terminated: bool | None = None,
    access: ClientAccess | None = None,
    timing: Timing = SYSTEM_TIMING,
    **options: Any,
) -> Spoken:
    """A connected transport to the engine that listens on host:port.

    Args:
        transport: "auto": shared memory where the engine offers it and it can be mapped here, else TCP; "tcp": never
            shared memory; "shm": nothing else.
        channel: see TcpConnection. Naming one means TCP where `transport` is "auto".
        spin_us: see SharedMemoryConnection. compiled: see ue_rl.protocol.text.Codec; for text only.
        nul_terminated: see TcpConnection; for text only.
        access: TLS and token of this side. With TLS it is text. timing: see TcpConnection.
        options: timeout, connect_timeout, wait.

    Raises:
        ConfigurationError: an invalid argument. UnsupportedByEngine: transport="shm" without shared memory here.
            Also what Transport.connect raises.
    """
    if transport not in TRANSPORTS:
        raise ConfigurationError(
            "no such transport", field="transport", expected=" or ".join(TRANSPORTS), got=transport
        )
    if access is not None and access.tls is not None:
        if transport == "shm":
            what = "shared memory needs no TLS, and its sockets have none"
            raise ConfigurationError(what, field="transport", expected="'auto' or 'tcp' with tls://", got=transport)
        transport = "tcp"
    options["timing"] = timing
    if transport == "shm":
        if channel != "auto":
            raise ConfigurationError(
                "a channel is a wiring of TCP", field="channel", expected="'auto' with transport='shm'", got=channel
            )
        connection = SharedMemoryConnection(engine=(host, port), access=access, spin_us=spin_us, **options)
        connection.connect()
        return connection
    text = {**options, "channel": channel, "compiled": compiled, "nul_terminated": nul_terminated, "access": access}
    probe = MultiTcpConnection(host, port, **text)  # checks the options before anything is dialled
    link, spec = shake_hands(host, port, probe.connect_timeout, probe.wait, access, timing)
    refused = ""
    if spec.shm is not None and transport == "auto" and channel == "auto":
        try:
            return SharedMemoryConnection.upgrade(link, spec, spin_us=spin_us, **options)
        except UpgradeRefused as why:
            refused = str(why)
            level = logging.INFO
            if not is_built("sync"):
                level = logging.WARNING  # who installs it can mend that
            _log.log(level, "no shared memory, the run goes on over TCP: %s", refused)
        except BaseException:  # Ctrl-C among them
            link.close()
            raise
    spoken = go_on(link, spec, host, port, **text)
    spoken.refused = refused
    return spoken


def dial_tcp(place: str, transport: str, **options: Any) -> Spoken:
    """tcp://HOST:PORT, for ue_rl.connections.dialling.CARRIERS: a connected transport; options and errors as for
    `connect`.
    """
    files = _files(options)
    if any(files.get(name) for name in GUARDED[1:]):
        raise ConfigurationError(
            "certificates are for TLS", field="ca, cert, key", got=f"tcp://{place}", cure=f"dial tls://{place}"
        )
    host, port = split_place(place)
    return open_engine(host, port, transport=transport, access=ClientAccess.of(**files), **options)


def dial_tls(place: str, transport: str, **options: Any) -> Spoken:
    """tls://HOST:PORT: the same within TLS."""
    access = ClientAccess.of(tls=True, **_files(options))
    host, port = split_place(place)
    return open_engine(host, port, transport=transport, access=access, **options)


def _files(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options.pop(name) for name in GUARDED if name in options}
