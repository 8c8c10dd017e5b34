"""`connect(url)`: from an address to a VecEnv. Beside the command line the one place where core and rooms meet.

tcp://HOST:PORT    the engine's text protocol; upgraded to shared memory where both sides can (transport="auto")
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from ue_rl.connections import open_tcp
from ue_rl.errors import ConfigurationError
from ue_rl.transport import Transport
from ue_rl.vec_env import UnrealVecEnv

DEFAULT_PORT = 7777


def parse_tcp(url: str) -> tuple[str, int]:
    """("127.0.0.1", 7777) of "tcp://127.0.0.1:7777"; the port defaults to 7777. IPv6 in brackets.

    Raises:
        ConfigurationError: not such a URL.
    """
    try:
        parts = urlsplit(url)
        port = DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "tcp" or not parts.hostname or not 0 < port < 65_536 or parts.path not in ("", "/"):
        raise ConfigurationError(
            "not an address of an engine", fault="caller", field="url", expected="tcp://HOST:PORT", got=url
        )
    return parts.hostname, port


def open_transport(url: str, **options: Any) -> Transport:
    """A connected transport for `url`; `options` as for `connect`."""
    host, port = parse_tcp(url)
    return open_tcp(host, port, **options)


def connect(url: str, *, max_episode_steps: int | None = None, monitor: bool = True, **options: Any) -> UnrealVecEnv:
    """Connects to a running engine.

    Args:
        url: "tcp://HOST:PORT".
        max_episode_steps, monitor: see UnrealVecEnv.
        options: of the connection: channel="auto"|"shared"|"per_env", timeout=30.0 (seconds a step may take),
            connect_timeout=None, wait=0.0 (seconds to keep trying while nobody listens), compiled=None.

    Raises:
        ConfigurationError, EngineUnreachable, EngineTimeout, EngineDisconnected, HandshakeError.
    """
    transport = open_transport(url, **options)
    try:
        return UnrealVecEnv(transport, max_episode_steps=max_episode_steps, monitor=monitor)
    except BaseException:
        transport.close()
        raise
