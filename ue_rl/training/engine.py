"""Opens what a command talks to: a running engine, or an embedded one in a process of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ue_rl.connecting import open_transport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.training.checks import has_port
from ue_rl.transport import Transport


@contextmanager
def open_engine(
    *,
    env: str | None = None,
    num_envs: int = 1,
    env_kwargs: dict[str, Any] | None = None,
    host: str | None = None,
    port: int | None = None,
    make: Callable[[Transport], UnrealVecEnv] | None = None,
    **options: Any,
) -> Iterator[UnrealVecEnv]:
    """A connected VecEnv, closed with its engine at the end.

    Args:
        env: a Gymnasium id to host in a process of its own; None connects to `host` and `port`.
        host: a name, an address, or shm://NAME for shared memory by name.
        make: makes the VecEnv out of the connection; None: UnrealVecEnv.
        options: of the connection, see ue_rl.connect.

    Raises:
        ConfigurationError: the env cannot be made. Also what ue_rl.connect raises.
    """
    import ue_rl

    with ExitStack() as stack:
        if env is None:
            url = address_of(host, port)
        else:
            from ue_rl.bridges import GymnasiumBridge, ShmUpgrader, run_in_process

            factory = functools.partial(GymnasiumBridge, env, num_envs, **(env_kwargs or {}))
            url = stack.enter_context(run_in_process(factory, upgrader=ShmUpgrader())).url
            options.pop("wait", None)
        if make is None:
            vec_env = ue_rl.connect(url, **options)
        else:
            carrier = open_transport(url, **options)
            stack.callback(carrier.close)
            vec_env = make(carrier)
        stack.callback(vec_env.close)
        yield vec_env


def address_of(host: str | None, port: int | None) -> str:
    """The URL of --host (a name, ADDRESS:PORT or shm://NAME) and --port, as ue_rl.connect takes it."""
    address = host or "127.0.0.1"
    if address.startswith("shm://"):
        return address
    if has_port(address):
        return f"tcp://{address}"
    return f"tcp://[{address}]:{port or 7777}" if ":" in address else f"tcp://{address}:{port or 7777}"
