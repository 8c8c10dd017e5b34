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
    from gymnasium.vector import AutoresetMode

    from ue_rl.envs.controls import GoalReward
    from ue_rl.envs.gym_env import UnrealEnv
    from ue_rl.envs.vec_env import UnrealVecEnv
    from ue_rl.envs.vector_env import UnrealVectorEnv

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
    for name in ("compiled", "nul_terminated"):  # of text only
        options.pop(name, None)
    return SharedMemoryConnection.attach(url.removeprefix(SHM) or None, **options)


def connect(
    url: str,
    transport: str = "auto",
    *,
    max_episode_steps: int | None = None,
    monitor: bool = True,
    copy: bool = True,
    compute_reward: GoalReward | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> UnrealVecEnv:
    """Connects to a running engine.

    Args:
        url: "tcp://HOST:PORT", or "shm://NAME" for shared memory by name.
        transport: "auto": shared memory where the engine offers it and this machine is the engine's, else TCP;
            "tcp": never; "shm": nothing else.
        max_episode_steps, monitor, copy, compute_reward, render_mode: see UnrealVecEnv.
        options: of the connection: channel="auto"|"shared"|"per_env" (TCP), timeout=30.0 (seconds a step may take),
            connect_timeout=None, wait=0.0 (seconds to keep trying while nobody listens), compiled=None,
            nul_terminated=False (for SINGLE and RLBASE games with the deployed Unreal plugin, see docs/unreal.md).

    Raises:
        ConfigurationError, EngineUnreachable, EngineTimeout, EngineDisconnected, HandshakeError, SegmentInvalid,
        UnsupportedByEngine.
    """
    from ue_rl.envs.vec_env import UnrealVecEnv  # Stable-Baselines3, which `open_transport` does not need

    carrier = open_transport(url, transport, **options)
    try:
        return UnrealVecEnv(
            carrier, max_episode_steps=max_episode_steps, monitor=monitor, copy=copy, compute_reward=compute_reward,
            render_mode=render_mode,
        )  # fmt: skip
    except BaseException:
        carrier.close()
        raise


def make_env(
    url: str,
    transport: str = "auto",
    *,
    render_mode: str | None = None,
    compute_reward: GoalReward | None = None,
    **options: Any,
) -> UnrealEnv:
    """What gymnasium.make("ue_rl/Engine-v0", url=..) makes: an engine's one env. Arguments and errors as `connect`."""
    from ue_rl.envs.gym_env import UnrealEnv

    carrier = open_transport(url, transport, **options)
    try:
        return UnrealEnv(carrier, render_mode=render_mode, compute_reward=compute_reward)
    except BaseException:
        carrier.close()
        raise


def make_vector_env(
    url: str,
    num_envs: int | None = None,
    transport: str = "auto",
    *,
    autoreset_mode: AutoresetMode | str | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> UnrealVectorEnv:
    """What gymnasium.make_vec("ue_rl/Engine-v0", num_envs=.., url=..) makes.

    Args:
        num_envs: must be the engine's number of envs; None: whatever that is. autoreset_mode: None: NEXT_STEP.
        url, transport, render_mode, options: as for `connect`.

    Raises:
        ConfigurationError: the engine has another number of envs. Otherwise as `connect`.
    """
    from ue_rl.envs.vector_env import UnrealVectorEnv

    carrier = open_transport(url, transport, **options)
    try:
        count = carrier.connect().num_envs
        if num_envs is not None and num_envs != count:
            raise ConfigurationError(
                "the engine has another number of envs", fault="caller", field="num_envs", expected=count, got=num_envs,
                cure=f"pass num_envs={count}: the engine decides how many it has",
            )  # fmt: skip
        modes = {} if autoreset_mode is None else {"autoreset_mode": autoreset_mode}
        return UnrealVectorEnv(carrier, render_mode=render_mode, **modes)
    except BaseException:
        carrier.close()
        raise
