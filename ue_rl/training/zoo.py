"""RL Zoo's files of hyperparameters (hyperparams/ppo.yml), in the words of our own options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ue_rl.errors import ConfigurationError, nearest
from ue_rl.launching.template import program_of
from ue_rl.system.known import require_known
from ue_rl.training import expressions
from ue_rl.training.algorithms import ALGORITHMS
from ue_rl.training.hyperparameters import known_algorithm
from ue_rl.training.options import DEFAULT_ENV
from ue_rl.training.yaml_files import read_mapping

_ALGORITHMS = {**{name: name for name in ALGORITHMS}, "ppo_lstm": "recurrentppo", "ppo-lstm": "recurrentppo"}
_RENAMED = {"n_envs": "num_envs", "n_timesteps": "timesteps", "policy": "policy", "frame_stack": "frame_stack"}
_NOISES = ("normal", "ornstein-uhlenbeck")
_OTHERS = (
    "normalize", "env_wrapper", "vec_env_wrapper", "callback", "noise_type", "noise_std", "replay_buffer_class",
    "replay_buffer_kwargs",
)  # fmt: skip
_KEPT = ("policy_kwargs",)  # as it is written: a class cannot stand in config.yaml


def read_zoo(file: str | Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the section of a task stands for.

    Args:
        file: RL Zoo's YAML file; where its name is an algorithm's, it is for that one.
        given: what the other layers say: algo, env, engine, url.

    Raises:
        ConfigurationError: no such section, an unknown key, or a value that cannot be understood.
    """
    path = Path(file)
    content = read_mapping(path, "hyperparams")
    named = _ALGORITHMS.get(path.stem.lower())
    algo = str(given.get("algo") or named or "ppo").lower()
    section = _section(content, path, given)
    known = [*_RENAMED, *_OTHERS, *_arguments_of(algo)]
    values: dict[str, Any] = {} if named is None else {"algo": algo}
    hyper: dict[str, Any] = {}
    require_known(section, known, f"{path.name} has an unknown key", "hyperparams")
    for key, written in section.items():
        value = _read(str(key), written)
        if key in _RENAMED:
            values[_RENAMED[key]] = int(value) if isinstance(value, float) and value.is_integer() else value
        elif key not in _OTHERS:
            hyper[key] = value
    wrappers = [part for key in ("env_wrapper", "vec_env_wrapper") for part in _each(section.get(key))]
    callbacks = _each(section.get("callback"))
    values |= {key: parts for key, parts in (("env_wrapper", wrappers), ("callback", callbacks)) if parts}
    if section.get("normalize"):
        values["normalize"] = _read("normalize", section["normalize"])
    noise = section.get("noise_type")
    if noise is not None:
        if noise not in _NOISES:
            what, names = "no such noise", ", ".join(_NOISES)
            raise ConfigurationError(
                what, field="hyperparams.noise_type", expected=names, got=noise, cure=nearest(str(noise), _NOISES)
            )
        hyper["action_noise"] = f"{noise} {section.get('noise_std', 0.1)}"
    values |= _hindsight(section)
    return {**values, "hyperparameters": hyper} if hyper else values


def _section(content: Mapping[Any, Any], path: Path, given: Mapping[str, Any]) -> Mapping[Any, Any]:
    engine, url = given.get("engine"), given.get("url")
    hosted = engine is None and url is None
    task = given.get("env") or DEFAULT_ENV if hosted else None if engine is None else program_of(engine)
    names = [str(name) for name in content]
    name = task if task in content else names[0] if len(names) == 1 and not hosted else None
    section = content.get(name)
    if not isinstance(section, Mapping):
        raise ConfigurationError(
            f"{path.name} has no section for this task",
            field="hyperparams",
            expected=", ".join(names) or "a section",
            got=task or url,
            cure=nearest(str(task), names) or "name one of its tasks with --env, or give the section the task's name",
        )
    return section


def _arguments_of(algo: str) -> list[str]:
    not_here = ("self", "policy", "env", "seed", "device", "verbose", "_init_setup_model", "tensorboard_log")
    return [name for name in inspect.signature(known_algorithm(algo).__init__).parameters if name not in not_here]


def _read(key: str, value: Any) -> Any:
    """A value of the file: an expression as what it says, 3e-4, which YAML takes for text, as a number."""
    if not isinstance(value, str):
        return value
    if key in _KEPT:
        expressions.policy_arguments(value, f"hyperparams.{key}")  # raises
        return value
    if value.strip().startswith(("dict(", "{", "[", "(")):
        return expressions.read(value, f"hyperparams.{key}")
    try:
        return float(value)
    except ValueError:
        return value


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _hindsight(section: Mapping[Any, Any]) -> dict[str, Any]:
    """RL Zoo's replay buffer for goals as our `her`."""
    buffer = section.get("replay_buffer_class")
    if buffer is None:
        return {}
    if buffer != "HerReplayBuffer":
        what = "only the replay buffer for goals can be named"
        raise ConfigurationError(
            what, field="hyperparams.replay_buffer_class", expected="HerReplayBuffer", got=buffer, cure="leave it out"
        )
    return {"her": dict(_read("replay_buffer_kwargs", section.get("replay_buffer_kwargs")) or {})}
