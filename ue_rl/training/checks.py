"""What each option of a run may be: types and ranges, said by name before anything is started."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ue_rl.connecting import has_port
from ue_rl.errors import ConfigurationError

Check = Callable[[Any], bool]


def _whole(low: int, high: float = math.inf) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _texts(value: Any) -> bool:
    return _text(value) or (isinstance(value, (list, tuple)) and bool(value) and all(map(_text, value)))


# name: (what is allowed, in words; may it be left out (None)?; the check)
_RULES: dict[str, tuple[str, bool, Check]] = {
    **dict.fromkeys(
        ("timesteps", "num_envs", "num_engines", "save_freq", "keep"), ("a positive integer", False, _whole(1))
    ),
    **dict.fromkeys(("threads", "max_episode_steps"), ("a positive integer", True, _whole(1))),
    **dict.fromkeys(("num_env_runners", "num_learners"), ("an integer from 0", True, _whole(0))),
    "num_gpus_per_learner": ("a number from 0", True, _number),
    **dict.fromkeys(("max_restarts", "verbose"), ("an integer from 0", False, _whole(0))),
    "eval_episodes": ("an integer from 0", True, _whole(0)),
    "seed": ("an integer from 0 to 2**32 - 1", True, _whole(0, 2**32 - 1)),
    "port": ("an integer from 1 to 65535", True, _whole(1, 65535)),
    **dict.fromkeys(
        ("timeout", "start_timeout", "restart_window"),
        ("a number of seconds above 0", False, lambda value: _number(value) and value > 0),
    ),
    **dict.fromkeys(("wait", "reconnect"), ("a number of seconds from 0", False, _number)),
    "save_minutes": ("a number of minutes from 0", False, _number),
    **dict.fromkeys(
        ("normalize", "export", "save_replay_buffer"), ("true or false", False, lambda value: isinstance(value, bool))
    ),
    "nul_terminated": ("true or false", True, lambda value: isinstance(value, bool)),
    **dict.fromkeys(("algo", "policy", "device", "log_dir"), ("text", False, _text)),
    **dict.fromkeys(("env", "run_id", "init_from", "group", "engine", "ray_address"), ("text", True, _text)),
    "host": ("an address, or a list of them", True, _texts),
    "env_kwargs": ("a mapping, {NAME: VALUE}", False, lambda value: isinstance(value, Mapping)),
    "transport": ("auto, tcp, shm", False, lambda value: value in ("auto", "tcp", "shm")),
    "channel": ("auto, shared, per_env", False, lambda value: value in ("auto", "shared", "per_env")),
}


def check_options(options: Any) -> None:
    """Checks the plain fields of TrainOptions, and that they do not exclude each other.

    Raises:
        ConfigurationError: names the first option that is not what it may be.
    """
    for name, (allowed, optional, check) in _RULES.items():
        value = getattr(options, name)
        if not (value is None and optional) and not check(value):
            raise ConfigurationError(f"must be {allowed}", field=name, got=value)
    _check_engine(options)


def _check_engine(o: Any) -> None:
    remote = o.host is not None or o.port is not None
    if o.env is not None and remote:
        raise ConfigurationError(
            "an embedded env and a running engine exclude each other", field="env",
            cure="give either --env, or --host and --port",
        )  # fmt: skip
    if o.engine is not None and (remote or o.env is not None):
        raise ConfigurationError(
            "an engine that is started here excludes an embedded env and a running engine", field="engine",
            cure="give either --engine, or --env, or --host and --port",
        )  # fmt: skip
    if o.num_engines > 1 and remote:
        raise ConfigurationError(
            "num_engines is the number of engines that are started here", field="num_engines", got=o.num_engines,
            cure="for engines that run already give --host ADDRESS:PORT once for each",
        )  # fmt: skip
    hosts = o.hosts
    if len(hosts) > 1:
        bare = [host for host in hosts if not host.startswith("shm://") and not has_port(host)]
        if o.port is not None or bare:
            raise ConfigurationError(
                "each of several engines needs its own port", field="host", got=bare[0] if bare else f"port {o.port}",
                expected="ADDRESS:PORT, or shm://NAME", cure="leave out --port, and write --host ADDRESS:PORT for each",
            )  # fmt: skip
        if len(set(hosts)) < len(hosts):
            raise ConfigurationError("the same engine twice", field="host", got=", ".join(hosts))
