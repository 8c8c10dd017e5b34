"""Opens what a command talks to: running engines, engines that it starts by a command, or embedded ones."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ue_rl.connecting import address_of, connect, launched, open_transport, url_engines
from ue_rl.engines.lifecycle import Listener
from ue_rl.engines.restarts import Restarts
from ue_rl.engines.source import EngineSource
from ue_rl.engines.transport import EnginesTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.launching.presets import used
from ue_rl.training.embedded import serve_command
from ue_rl.training.options import DEFAULT_ENV, TrainOptions
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

    with ExitStack() as stack:
        if env is None:
            url = address_of(host, port)
        else:
            from ue_rl.bridges import GymnasiumBridge, ShmUpgrader, run_in_process

            factory = functools.partial(GymnasiumBridge, env, num_envs, **(env_kwargs or {}))
            url = stack.enter_context(run_in_process(factory, upgrader=ShmUpgrader())).url
            options.pop("wait", None)
        if make is None:
            vec_env = connect(url, **options)
        else:
            carrier = open_transport(url, **options)
            stack.callback(carrier.close)
            vec_env = make(carrier)
        stack.callback(vec_env.close)
        yield vec_env


def engines_of(options: TrainOptions, output: Path, on_change: Listener | None = None) -> EnginesTransport:
    """The engines of a run as one connection, none of which is started or dialled before `connect()`.

    Args:
        output: the folder for what each engine prints, engine-0.log and so on.

    Raises:
        ConfigurationError: a command, an env or an address that cannot be.
    """
    o = options
    connection: dict[str, Any] = {
        "transport": o.transport,
        "channel": o.channel,
        "timeout": o.timeout,
        "nul_terminated": o.nul_terminated,
    }
    sources: Sequence[EngineSource]
    if o.hosts:
        urls = [address_of(host, o.port) for host in o.hosts]
        sources = url_engines(urls, reconnect=o.reconnect, wait=o.wait, **connection)
        again = o.reconnect > 0
    else:
        command = o.engine if o.engine is not None else serve_command(o.env or DEFAULT_ENV, o.env_kwargs)
        seed = random.SystemRandom().randrange(2**31) if o.seed is None else o.seed
        connection |= used(command, num_envs=o.num_envs, seed=seed)
        sources = launched(
            command, num_engines=o.num_engines, output_dir=output, start_timeout=o.start_timeout, **connection
        )
        again = o.max_restarts > 0
    restarts = Restarts(o.max_restarts, o.restart_window) if again else None
    return EnginesTransport(sources, restarts=restarts, on_change=on_change)
