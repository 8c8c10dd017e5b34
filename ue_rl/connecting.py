"""`connect(url)`: from an address to a VecEnv. Beside the command line the one place where core and rooms meet.

tcp://HOST:PORT    the engine's text protocol; upgraded to shared memory where both sides can (transport="auto")
shm://NAME         an engine's shared memory, by name or by the path of a file; shm:// alone: $LUCKY_SHM_NAME
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ue_rl.connections import SharedMemoryConnection, open_engine
from ue_rl.errors import ConfigurationError
from ue_rl.transport import Transport

if TYPE_CHECKING:
    from ue_rl.envs.vec_env import UnrealVecEnv

DEFAULT_PORT = 7777
SHM = "shm://"


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
            "not an address of an engine",
            fault="caller",
            field="url",
            expected="tcp://HOST:PORT or shm://NAME",
            got=url,
        )
    return parts.hostname, port


def open_transport(url: str, transport: str = "auto", **options: Any) -> Transport:
    """A connected transport for `url`; the arguments as for `connect`."""
    if not url.startswith(SHM):
        host, port = parse_tcp(url)
        return open_engine(host, port, transport=transport, **options)
    if transport not in ("auto", "shm") or options.pop("channel", "auto") != "auto":
        raise ConfigurationError(
            "this address is shared memory", fault="caller", field="transport", expected="transport='auto' or 'shm'",
            got=transport,
        )  # fmt: skip
    options.pop("compiled", None)  # of text only
    return SharedMemoryConnection.attach(url.removeprefix(SHM) or None, **options)


def connect(
    url: str,
    transport: str = "auto",
    *,
    max_episode_steps: int | None = None,
    monitor: bool = True,
    copy: bool = True,
    **options: Any,
) -> UnrealVecEnv:
    """Connects to a running engine.

    Args:
        url: "tcp://HOST:PORT", or "shm://NAME" for shared memory by name.
        transport: "auto": shared memory where the engine offers it and this machine is the engine's, else TCP;
            "tcp": never; "shm": nothing else.
        max_episode_steps, monitor, copy: see UnrealVecEnv.
        options: of the connection: channel="auto"|"shared"|"per_env" (TCP), timeout=30.0 (seconds a step may take),
            connect_timeout=None, wait=0.0 (seconds to keep trying while nobody listens), compiled=None.

    Raises:
        ConfigurationError, EngineUnreachable, EngineTimeout, EngineDisconnected, HandshakeError, SegmentInvalid,
        UnsupportedByEngine.
    """
    from ue_rl.envs.vec_env import UnrealVecEnv  # Stable-Baselines3, which `open_transport` does not need

    carrier = open_transport(url, transport, **options)
    try:
        return UnrealVecEnv(carrier, max_episode_steps=max_episode_steps, monitor=monitor, copy=copy)
    except BaseException:
        carrier.close()
        raise
