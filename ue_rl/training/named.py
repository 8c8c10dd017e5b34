"""Callbacks and wrappers that a run names as module:Class, and the frames that are stacked: what stands around its env.

From the engine outwards: wrappers of each hosted env (in the engine), wrappers of all envs, stacked frames, and
VecNormalize, which models.py puts around it.
"""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecFrameStack

from ue_rl.system.errors import ConfigurationError
from ue_rl.system.loading import loaded
from ue_rl.training.kinds import named_of
from ue_rl.training.options import TrainOptions


def callbacks_of(options: TrainOptions) -> list[BaseCallback]:
    """The callbacks of `callback`, made.

    Raises:
        ConfigurationError: one cannot be loaded or made, or is none.
    """
    made = [_made(loaded(name, "callback"), name, given, "callback") for name, given in _given(options.callback)]
    for each in made:
        if not isinstance(each, BaseCallback):
            what = "not a callback of Stable-Baselines3"
            expected = "a subclass of BaseCallback"
            raise ConfigurationError(what, field="callback", expected=expected, got=type(each).__name__)
    return made


def hosted_wrappers(options: TrainOptions) -> list[tuple[str, dict[str, Any]]]:
    """Those of `env_wrapper` that stand around each hosted env, in its engine's process: name and arguments.

    Raises:
        ConfigurationError: one cannot be loaded, or the envs live in an engine that hosts no Gymnasium env.
    """
    found = [each for each in _given(options.env_wrapper) if not _is_of_all(loaded(each[0], "env_wrapper"))]
    if found and not options.embedded:
        raise ConfigurationError(
            "it stands around one Gymnasium env, and this engine's envs are a game's",
            field="env_wrapper",
            expected="a VecEnvWrapper of Stable-Baselines3's, which stands around all envs",
            got=found[0][0],
        )
    return found


def wrapped(options: TrainOptions, vec_env: VecEnv) -> VecEnv:
    """`vec_env` in those of `env_wrapper` that stand around all envs, and with `frame_stack`.

    Raises:
        ConfigurationError: a wrapper cannot be made, these observations cannot be stacked, or a wrapper changes the
            spaces, where a model.onnx is wanted.
    """
    for name, given in _given(options.env_wrapper):
        kind = loaded(name, "env_wrapper")
        inner = vec_env
        if _is_of_all(kind):
            vec_env = _made(kind, name, given, "env_wrapper", inner)
        if options.export and _spaces_of(vec_env) != _spaces_of(inner):
            what = f"{name} changes the spaces, and is not in model.onnx, which would take what the wrapper gives"
            cure = "do in the game what it does, or train with --no-export"
            raise ConfigurationError(what, field="env_wrapper", cure=cure)
    if options.frame_stack is None:
        return vec_env
    space = vec_env.observation_space
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    if not all(isinstance(part, spaces.Box) for part in parts):
        what = "these observations cannot be stacked"
        expected = "a Box, or a Dict of them"
        raise ConfigurationError(what, field="frame_stack", expected=expected, got=space)
    return VecFrameStack(vec_env, options.frame_stack)


def _given(value: Any) -> list[tuple[str, dict[str, Any]]]:
    if value is None:
        return []
    return named_of(value)


def _spaces_of(env: VecEnv) -> Any:
    return env.observation_space, env.action_space


def _is_of_all(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, VecEnvWrapper)


def _made(kind: Any, name: str, given: dict[str, Any], field: str, *first: Any) -> Any:
    try:
        return kind(*first, **given)
    except TypeError as error:
        raise ConfigurationError(f"{name} does not take these arguments", field=field, got=str(error)) from error


def wrap_hosted(env: gym.Env[Any, Any], wrappers: list[tuple[str, dict[str, Any]]]) -> gym.Env[Any, Any]:
    """`env` in these, the first one innermost.

    Raises:
        ConfigurationError: one cannot be loaded or made, or gives no env.
    """
    for name, given in wrappers:
        env = _made(loaded(name, "env_wrapper"), name, given, "env_wrapper", env)
        if not isinstance(env, gym.Env):
            what = "not a wrapper"
            expected = "a gymnasium.Wrapper, or a function that gives an env"
            raise ConfigurationError(what, field="env_wrapper", expected=expected, got=name)
    return env
