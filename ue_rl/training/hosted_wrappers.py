"""Wrappers of Gymnasium that a run names as module:Class, and that stand around each hosted env, in its engine.

Stable-Baselines3 is not imported here: RLlib's runs and `ue-rl serve` host envs where it is not installed.
"""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium as gym

from ue_rl.system.errors import ConfigurationError
from ue_rl.system.loading import loaded
from ue_rl.training.kinds import named_of
from ue_rl.training.options import TrainOptions

Named = tuple[str, dict[str, Any]]  # module:Class, and the arguments that go with it


def hosted_wrappers(options: TrainOptions) -> list[Named]:
    """Those of `env_wrapper` that stand around each hosted env, in its engine's process: name and arguments.

    Raises:
        ConfigurationError: one cannot be loaded, or the envs live in an engine that hosts no Gymnasium env.
    """
    found = [each for each in named(options.env_wrapper) if not is_of_all_envs(loaded(each[0], "env_wrapper"))]
    if found and not options.embedded:
        raise ConfigurationError(
            "it stands around one Gymnasium env, and this engine's envs are a game's",
            field="env_wrapper",
            expected="a VecEnvWrapper of Stable-Baselines3's, which stands around all envs",
            got=found[0][0],
        )
    return found


def wrap_hosted(env: gym.Env[Any, Any], wrappers: list[Named]) -> gym.Env[Any, Any]:
    """`env` in these, the first one innermost.

    Raises:
        ConfigurationError: one cannot be loaded or made, or gives no env.
    """
    for name, given in wrappers:
        env = make_named(loaded(name, "env_wrapper"), name, given, "env_wrapper", env)
        if not isinstance(env, gym.Env):
            what = "not a wrapper"
            expected = "a gymnasium.Wrapper, or a function that gives an env"
            raise ConfigurationError(what, field="env_wrapper", expected=expected, got=name)
    return env


def named(value: Any) -> list[Named]:
    """What an option names, in its order; [] where nobody has given it."""
    if value is None:
        return []
    return named_of(value)


def make_named(kind: Any, name: str, given: dict[str, Any], field: str, *first: Any) -> Any:
    """`kind(*first, **given)`.

    Raises:
        ConfigurationError: it does not take these arguments.
    """
    try:
        return kind(*first, **given)
    except TypeError as error:
        raise ConfigurationError(f"{name} does not take these arguments", field=field, got=str(error)) from error


def is_of_all_envs(kind: Any) -> bool:
    """Is it a VecEnvWrapper of Stable-Baselines3's? Found by name: where it is not installed nothing is one."""
    if not inspect.isclass(kind):
        return False
    return any(
        base.__name__ == "VecEnvWrapper" and base.__module__.startswith("stable_baselines3.") for base in kind.__mro__
    )
