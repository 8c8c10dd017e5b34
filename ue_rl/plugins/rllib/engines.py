"""What an `env_config` means: engines that are started or dialled, as one connection, and the envs over them.

{"engine": "./Game.sh --port {port} --envs {num_envs}"}   started here, watched, started again when they are lost
{"url": "tcp://10.0.0.{worker_index}:7777"}               running already; a list for several
{"env": "CartPole-v1", "env_kwargs": {}}                  a Gymnasium env in a process of its own
{"bridge": "package.module:Class"}                        a bridge class, likewise
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import itertools
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ue_rl.connections.engines.lifecycle import Listener
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.envs.vector_env import UnrealVectorEnv
from ue_rl.protocol.transport import closed_if_it_fails
from ue_rl.system.errors import ConfigurationError, nearest
from ue_rl.training.engine import engines_at, engines_started, serve_command, set_game
from ue_rl.training.kinds import named_of
from ue_rl.training.options import CONNECTS, DEFAULTS, ROWS
from ue_rl.training.rows import BOTH, CONNECTION, GAME, STARTED

if TYPE_CHECKING:
    from ue_rl.plugins.rllib.multi_agent_env import UnrealMultiAgentEnv

_log = logging.getLogger("ue_rl.plugins.rllib")
SEEDS = 1_000_000  # between two env runners
_KINDS = ("engine", "url", "env", "bridge")
_SAID: dict[str, tuple[Any, str]] = {
    "engine": ((str, list, tuple), "a text, or a list of texts"),
    "url": ((str, list, tuple, Mapping), "a text, a list of texts, or one of these for each worker_index"),
    **dict.fromkeys(("env", "bridge"), (str, "a text")),
    "seed": (Integral, "a whole number"), "output_dir": ((str, os.PathLike, type(None)), "a folder"),
}  # fmt: skip
HOSTED = ("env_kwargs", "env_wrapper")  # of "env" alone
# What a run has, too, and as it has it.
OPTIONS = [
    name
    for name, row in ROWS.items()
    if (row.group in (STARTED, CONNECTION, GAME) and row.rllib == BOTH) or name == "env_wrapper"
]
_DEFAULTS = {name: DEFAULTS[name] for name in OPTIONS} | {"seed": 0, "reconnect": 60.0, "output_dir": None}
NAME = "ue_rl"
_SEEDS = 1000  # between two envs of one env runner
_made = itertools.count()


def open_engines(
    env_config: Mapping[str, Any], num_envs: int, worker_index: int = 0, on_change: Listener | None = None
) -> EnginesTransport:
    """The engines of one env runner, started or dialled, and connected.

    Args:
        env_config: one of "engine", "url", "env" and "bridge", see above; and, where the default does not fit,
            env_kwargs ({}) and env_wrapper (a gymnasium.Wrapper as module:Class or {module:Class: {argument: value}},
            or a list of these, the first one innermost), both of "env" alone,
            num_engines (1; num_envs are shared out among them), seed (0; worker_index million is added), restarts
            ("10/60s": how often within how long), reconnect ("60s", of urls), output_dir (for what engines print; each
            env runner has a folder of its own in it, env-runner-N, and another one when it is started again),
            start_timeout, transport, timeout, wait, params (of the game: a number, or [low, high] to draw from for
            each episode), time_scale. {worker_index} stands for the number of the env runner in all of it. A "url" may
            be {worker_index: url(s)}.
        num_envs: of this env runner, in all. on_change: see EnginesTransport.

    Raises:
        ConfigurationError: a key that is not known, a value of a wrong type, none or two of the four, a number of envs
            that does not go into the engines or is not what the engines have. Also what `ue_rl.launch` and
            `ue_rl.connect` raise.
    """
    unknown = [key for key in env_config if key not in (*_KINDS, *_DEFAULTS)]
    given = [key for key in _KINDS if env_config.get(key)]
    if unknown or len(given) != 1:
        raise ConfigurationError(
            "an env_config says where the engine is",
            field="env_config",
            expected=f"one of {', '.join(_KINDS)}; beside it {', '.join(_DEFAULTS)}",
            got=", ".join(env_config) or "{}",
            cure=nearest(unknown[0], (*_KINDS, *_DEFAULTS)) if unknown else None,
        )
    for key in HOSTED:
        if env_config.get(key) and given[0] != "env":
            what = f"it is for env, and this env_config has {given[0]}"
            cure = "leave it out"
            raise ConfigurationError(what, field=key, got=env_config[key], cure=cure)
    said: dict[str, Any] = dict(_DEFAULTS)
    for key, value in env_config.items():
        said[key] = _numbered(_value(key, value), worker_index)
    engines = _engines(said, given[0], num_envs, worker_index, on_change)
    with closed_if_it_fails(engines):
        spec = engines.connect()
        count = spec.num_envs
        if count != num_envs:
            raise ConfigurationError(
                "the engine has another number of envs than the env runner",
                field="num_envs_per_env_runner",
                expected=count,
                got=num_envs,
                cure=f"set num_envs_per_env_runner={count} (--num-envs {count}), or let the engine's command take "
                "{num_envs}",
            )
        seed = said["seed"] + worker_index * SEEDS
        set_game(engines, spec, said["params"], seed, said["time_scale"], lambda text: _log.warning("%s", text))
    return engines


def _value(key: str, value: Any) -> Any:
    """What is meant; raises ConfigurationError: it is not what it may be."""
    if key in OPTIONS:
        kind = ROWS[key].kind
        if kind.read is not None and isinstance(value, str):
            with suppress(ValueError):
                value = kind.read(value)
        words = kind.words
        fits = kind.fits(value) or (value is None and DEFAULTS[key] is None)
    else:
        types, words = _SAID[key]
        fits = (isinstance(value, types) and not isinstance(value, bool)) or (value is None and key in _KINDS)
    if not fits:
        raise ConfigurationError("an env_config has a wrong value", field=key, expected=words, got=value)
    return value


def _engines(
    said: Mapping[str, Any], kind: str, num_envs: int, worker_index: int, on_change: Listener | None
) -> EnginesTransport:
    connection = {key: said[key] for key in CONNECTS if key in said}
    restarts = Restarts.of(said["restarts"])
    if kind == "url":
        if isinstance(said["url"], Mapping):
            urls = said["url"].get(worker_index)
        else:
            urls = said["url"]
        if not urls:
            expected = f"a url for worker_index {worker_index}"
            raise ConfigurationError("no engine for this env runner", field="url", expected=expected, got=said["url"])
        if isinstance(urls, str):
            urls = [urls]
        else:
            urls = list(urls)
        return engines_at(urls, restarts, on_change, reconnect=said["reconnect"], wait=said["wait"], **connection)
    count = said["num_engines"]
    if count < 1 or num_envs % count:
        what = "the envs cannot be shared out among the engines"
        expected = f"a number that {num_envs} envs can be divided by"
        raise ConfigurationError(what, field="num_engines", expected=expected, got=count)
    if kind == "bridge":
        words = [sys.executable, "-m", "ue_rl", "serve", "--bridge", said["bridge"], "--shm"]
        command: Any = [*words, "--num-envs", "{num_envs}", "--port", "{port}"]
    elif kind == "engine":
        command = said["engine"]
    else:
        wrappers = []
        if said["env_wrapper"] is not None:
            wrappers = named_of(said["env_wrapper"])
        command = serve_command(said["env"], said["env_kwargs"], wrappers)
    return engines_started(
        command,
        restarts,
        on_change,
        num_envs=num_envs // count,
        seed=said["seed"] + worker_index * SEEDS,
        num_engines=count,
        output_dir=None if said["output_dir"] is None else _own_folder(Path(said["output_dir"]), worker_index),
        start_timeout=said["start_timeout"],
        **connection,
    )


def _own_folder(folder: Path, worker_index: int) -> Path:
    """A new one in `folder`: env runners of one node, trials of Tune and runs after one another share the former."""
    for number in itertools.count(1):
        suffix = ""
        if number > 1:
            suffix = f"-{number}"
        path = folder / (f"env-runner-{worker_index}" + suffix)
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigurationError("the folder cannot be made", field="output_dir", got=str(error)) from error
        return path
    raise AssertionError("there is always another number")


def _numbered(value: Any, worker_index: int) -> Any:
    if isinstance(value, str):
        return value.replace("{worker_index}", str(worker_index))
    if isinstance(value, Path):
        return Path(_numbered(str(value), worker_index))
    if isinstance(value, Mapping):
        return {key: _numbered(part, worker_index) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_numbered(part, worker_index) for part in value]
    return value


def register(name: str = NAME) -> None:
    """Makes "ue_rl", and "ue_rl_agents" for engines with agents, envs of RLlib's; Ray takes them along to its workers.

    With UnrealEnvRunner everything of `open_engines` works. RLlib's stock runner needs
    `gym_env_vectorize_mode="vector_entry_point"`, and does not tell a vector env which runner it is in: {worker_index}
    is 0 in all of them, so let engines be started ({port} is always a free one).
    """
    from ray.tune.registry import register_env  # here: engines are opened, and their words refused, without Ray too

    register_env(name, make_env)
    register_env(f"{name}_agents", make_agents_env)


def make_env(env_config: Mapping[str, Any]) -> UnrealVectorEnv:
    """The vector env of an env runner: `env_config` with "num_envs", as RLlib's vector_entry_point gives it.

    Raises:
        ConfigurationError: there is no "num_envs"; see `open_engines`.
    """
    said = dict(env_config)
    num_envs = int(said.pop("num_envs", 1))
    worker = getattr(env_config, "worker_index", 0)
    if not worker:
        worker = 0
    engines = open_engines(said, num_envs, worker)
    return UnrealVectorEnv(engines)


def make_agents_env(env_config: Mapping[str, Any]) -> UnrealMultiAgentEnv:
    """One env with agents, over an engine of its own: RLlib makes as many as an env runner has envs.

    Args:
        env_config: see `open_engines`. Each env of a process has another `seed`.

    Raises:
        ConfigurationError: the engine has more than one env, or no agents; see `open_engines`.
    """
    from ue_rl.plugins.rllib.multi_agent_env import UnrealMultiAgentEnv

    said = {**env_config, "seed": env_config.get("seed", 0) + _SEEDS * next(_made)}
    worker = getattr(env_config, "worker_index", 0)
    if not worker:
        worker = 0
    return UnrealMultiAgentEnv(open_engines(said, 1, worker))


def by_group(*groups: str) -> Callable[..., str]:
    """A policy_mapping_fn: all agents of a group (striker_0, striker_1; a group of one: goalie) share a policy.

        config.multi_agent(policies={"striker", "goalie"}, policy_mapping_fn=by_group("striker", "goalie"))

    Args:
        groups: the names of the handshake's groups, which are those of the policies.

    Raises:
        ConfigurationError: (the function) the agent is of none of them.
    """
    return functools.partial(_group_of, groups)


def _group_of(groups: tuple[str, ...], agent: str, *_: object, **__: object) -> str:
    for group in groups:
        if agent == group or (agent.startswith(f"{group}_") and agent[len(group) + 1 :].isdigit()):
            return group
    what = "an agent is of none of the groups"
    cure = "name all groups of the engine: ue-rl inspect shows them"
    raise ConfigurationError(what, field="policy_mapping_fn", expected=", ".join(groups), got=agent, cure=cure)
