"""The engines of a run as one connection, running ones or such as are started here, and what is set in them first."""

from __future__ import annotations

import json
import logging
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ue_rl.connections.dialling import url_engines
from ue_rl.connections.engines.lifecycle import Listener
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.source import EngineSource
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.connections.launching.starting import launched
from ue_rl.connections.launching.template import template, used
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.protocol.calls.parameters import as_ranges, check_ranges, randomize, shown
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import ConfigurationError, nearest
from ue_rl.system.loading import imported
from ue_rl.training.options import CONNECTS, DEFAULT_ENV, TrainOptions

NO_TIME_SCALE = "the engine does not change its speed (no FEATURES=TIME_SCALE in its handshake): time_scale is left out"

_log = logging.getLogger(__name__)


def engines_at(
    urls: Sequence[str], restarts: Restarts | None, on_change: Listener | None = None, **connection: Any
) -> EnginesTransport:
    """Running engines, none of which is dialled before `connect()`; `connection` as for `url_engines`."""
    return EnginesTransport(url_engines(urls, **connection), restarts=restarts, on_change=on_change)


def engines_started(
    command: str | Sequence[str],
    restarts: Restarts | None,
    on_change: Listener | None = None,
    *,
    num_envs: int,
    seed: int,
    **launch: Any,
) -> EnginesTransport:
    """Engines of a command, none of which is started before `connect()`.

    Args:
        num_envs, seed: for a command that takes them. launch: as for `launched`.
    """
    values = used(command, num_envs=num_envs, seed=seed)
    sources: Sequence[EngineSource] = launched(command, **values, **launch)
    return EnginesTransport(sources, restarts=restarts, on_change=on_change)


def engines_of(options: TrainOptions, output: Path, on_change: Listener | None = None) -> EnginesTransport:
    """The engines of a run.

    Args:
        output: the folder for what each engine prints, engine-0.log and so on.

    Raises:
        ConfigurationError: a command, an env or an address that cannot be.
    """
    o = options
    connection = {name: getattr(o, name) for name in CONNECTS}
    if o.urls and not o.reconnect:
        restarts = None
    else:
        restarts = Restarts.of(o.restarts)
    if o.urls:
        return engines_at(o.urls, restarts, on_change, reconnect=o.reconnect, wait=o.wait, **connection)
    return engines_started(
        command_of(o),
        restarts,
        on_change,
        num_envs=o.num_envs,
        seed=random.SystemRandom().randrange(2**31) if o.seed is None else o.seed,
        num_engines=o.num_engines,
        output_dir=output,
        start_timeout=o.start_timeout,
        **connection,
    )


def command_of(options: TrainOptions, filmed: bool = False) -> str | list[str]:
    """What starts the engines of a run.

    Args:
        filmed: a hosted env draws, whatever the run's films are.

    Raises:
        ConfigurationError: it cannot be read, or Gymnasium does not know the env.
    """
    if options.engine is None:
        drawn = {}
        if options.video_freq or filmed:
            drawn = {"render_mode": "rgb_array"}
        wrappers: list[tuple[str, dict[str, Any]]] = []
        if options.env_wrapper is not None:
            from ue_rl.training.hosted_wrappers import hosted_wrappers  # imports Gymnasium

            wrappers = hosted_wrappers(options)
        kwargs = {**drawn, **options.env_kwargs}
        hosted = options.env or DEFAULT_ENV
        return serve_command(hosted, kwargs, wrappers, options.token_file)
    template(options.engine)
    return options.engine


def serve_command(
    env: str,
    kwargs: dict[str, Any],
    wrappers: Sequence[tuple[str, dict[str, Any]]] = (),
    token_file: str | None = None,
) -> list[str]:
    """What hosts a Gymnasium env in a process of its own, as LaunchedEngine takes it.

    Args:
        wrappers: that stand around it, the first one innermost: module:Class and its arguments.
        token_file: of those who may connect; None: nobody is asked.

    Raises:
        ConfigurationError: Gymnasium does not know the env.
    """
    _check_registered(env)
    words = [sys.executable, "-m", "ue_rl", "serve", "--env", _as_text(env), "--num-envs", "{num_envs}"]
    given = []
    if kwargs:
        given = ["--kwargs", _as_text(json.dumps(kwargs))]
    if token_file is not None:
        given += ["--token-file", _as_text(token_file)]
    else:
        given += []
    for name, arguments in wrappers:
        if arguments:
            text = json.dumps({name: arguments})
        else:
            text = name
        given += ["--env-wrapper", _as_text(text)]
    return [*words, "--port", "{port}", "--shm", *given]


def _check_registered(env: str) -> None:
    """Raises ConfigurationError: Gymnasium does not know the env, nor does the module that it names register it."""
    import gymnasium

    module, colon, name = env.rpartition(":")
    if colon:
        imported(module, "env")  # gymnasium.make imports it, gymnasium.spec does not
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error as error:
        cure = "write MODULE:ID, where MODULE is the module or package that registers it"
        if colon:
            cure = f"import {module} registers no such id: look for gymnasium.register(id=..) in it"
        raise ConfigurationError(
            f"Gymnasium cannot make {env!r}",
            field="env",
            got=str(error),
            cure=nearest(name, gymnasium.registry, before=module + colon) or cure,
        ) from error


def _as_text(word: str) -> str:
    """`word` for a command in which {name} is a placeholder."""
    return re.sub(r"\{([A-Za-z_]\w*)\}", r"{{\1}}", word)


def set_game(
    transport: Transport,
    spec: EnvSpec,
    params: Any,
    seed: int | None,
    time_scale: float | None,
    tell: Callable[[str], object],
) -> None:
    """Sets the game's parameters, those that are drawn from the next reset on, and its speed.

    An engine that has no time scale is only told of: it changes how long a run takes, not what it learns.

    Raises:
        UnsupportedByEngine: the engine has no parameters. ConfigurationError: not these.
    """
    ranges = as_ranges(params, "params")
    if ranges:
        check_ranges(spec, ranges, "params")
        randomize(transport, ranges, seed)
        _log.info("parameters: %s", ", ".join(f"{name} {shown(*value)}" for name, value in ranges.items()))
    if time_scale is not None:
        if "TIME_SCALE" in spec.features:
            EngineCalls(transport).set_time_scale(time_scale)
        else:
            _log.info(NO_TIME_SCALE)  # whoever is told shows it
            tell(NO_TIME_SCALE)
