"""The engines that a command starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.dialling import open_transport
from ue_rl.connections.launching.engine import LaunchedEngine
from ue_rl.connections.launching.template import template
from ue_rl.system.errors import ConfigurationError


def launched(
    command: str | Sequence[str],
    *,
    num_engines: int = 1,
    num_envs: int | None = None,
    seed: int | None = None,
    output_dir: str | Path | None = None,
    start_timeout: float = 120.0,
    transport: str = "auto",
    open: Callable[..., BaseTransport] = open_transport,
    **options: Any,
) -> list[LaunchedEngine]:
    """The engines that `ue_rl.launch` starts, none of which has been started yet; arguments and errors as there.

    Args:
        open: opens a transport, as open_transport.
    """
    words = template(command, [name for name, value in (("num_envs", num_envs), ("seed", seed)) if value is None])
    if num_engines < 1:
        raise ConfigurationError("there must be one engine at least", field="num_engines", got=num_engines)
    if num_envs is not None and num_envs < 1:
        raise ConfigurationError("an engine has one env at least", field="num_envs", got=num_envs)
    if not 0 < start_timeout < float("inf"):
        raise ConfigurationError("a deadline must be positive and finite", field="start_timeout", got=start_timeout)
    if num_engines > 1 and not words.uses("port"):
        raise ConfigurationError(
            f"{num_engines} engines cannot listen on the same port",
            field="engine",
            expected="{port} in the command",
            got=" ".join(words.words),
            cure="put {port} where the game takes its port: each engine gets one of its own",
        )
    if options.get("connect_timeout") is None:
        options["connect_timeout"] = start_timeout

    def dial(url: str) -> BaseTransport:
        return open(url, transport, **options)

    folder = None
    if output_dir is not None:
        folder = Path(output_dir)
    return [
        LaunchedEngine(
            words,
            num_envs,
            seed,
            number,
            None if folder is None else folder / f"engine-{number}.log",
            dial,
            start_timeout,
        )
        for number in range(num_engines)
    ]
