"""Is an engine there, can it be reached, and does it speak?"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ue_rl.connections.dialling import address_of, open_transport
from ue_rl.devtools.doctor.rows import DoctorRow, fail, ok
from ue_rl.protocol.spec import Channel
from ue_rl.system.errors import (
    AccessRefused,
    ConfigurationError,
    EngineBusy,
    EngineDisconnected,
    EngineTimeout,
    EngineUnreachable,
    HandshakeError,
    UeRlError,
)


def engine(url: str, timeout: float) -> Iterator[DoctorRow]:
    """Dials, shakes hands, begins an episode in every env, and goes."""
    check = "engine"
    begun = time.perf_counter()
    try:
        transport = open_transport(url, timeout=timeout, connect_timeout=timeout)
    except UeRlError as error:
        yield fail(check, _fault(error), error.plain())
        return
    try:
        facts = ", ".join(f"{key} {value}" for key, value in transport.describe().items())
        took = f"{(time.perf_counter() - begun) * 1e3:.0f} ms"
        yield ok(check, f"{transport.connect().num_envs} envs, {facts}; connected within {took}")
        asked = address_of(url).options.get("channel", "auto")
        served = transport.spec.channel
        if served not in (None, Channel.ANY) and asked not in ("auto", served.value.lower()):
            yield fail(check, "other-wiring", f"it serves {served.value}, and the URL asks for {asked}")
            return
        transport.reset()
        transport.receive()
        yield ok("first episode", "every env has answered")
    except UeRlError as error:
        yield fail("first episode", "no-answer", error.plain())
    finally:
        transport.close()


def _fault(error: UeRlError) -> str:
    """Which one it is; what the connection says of why it failed stands in the error's cause."""
    text = f"{error} {error.__cause__}".lower()
    if isinstance(error, EngineBusy):
        return "busy"
    in_plain_text = isinstance(error, EngineDisconnected) and error.fault == "caller"  # the port speaks TLS
    if isinstance(error, AccessRefused) or in_plain_text:
        return "not-let-in"
    if isinstance(error, ConfigurationError):
        raise error
    if error.field == "CHANNEL" or "channel" in text or "wiring" in text or "env socket" in text:
        return "other-wiring"
    if isinstance(error, HandshakeError):
        if "sent no handshake" in text:
            return "no-handshake"
        return "wrong-handshake"
    if isinstance(error, EngineUnreachable):
        if any(word in text for word in ("timed out", "no route", "network is unreachable", "host is down")):
            return "firewall"
        unknown = any(word in text for word in ("name or service", "resolve", "unknown host", "getaddrinfo"))
        if unknown:
            return "unknown-host"
        return "not-listening"
    if isinstance(error, EngineTimeout):
        if "connect" in text and "handshake" not in text:
            return "firewall"
        return "no-handshake"
    if isinstance(error, EngineDisconnected):
        return "no-handshake"
    return "wrong-handshake"
