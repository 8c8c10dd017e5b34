"""Callbacks and wrappers that a run names as module:Class, and the frames that are stacked: what stands around its env.

From the engine outwards: wrappers of each hosted env (in the engine, hosted_wrappers.py), wrappers of all envs, stacked
frames, and VecNormalize, which models.py puts around it.
"""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from ue_rl.system.errors import ConfigurationError
from ue_rl.system.loading import loaded
from ue_rl.training.hosted_wrappers import is_of_all_envs, make_named, named
from ue_rl.training.options import TrainOptions


def callbacks_of(options: TrainOptions) -> list[BaseCallback]:
    """The callbacks of `callback`, made.

    Raises:
        ConfigurationError: one cannot be loaded or made, or is none.
    """
    made = [make_named(loaded(name, "callback"), name, given, "callback") for name, given in named(options.callback)]
    for each in made:
        if not isinstance(each, BaseCallback):
            what = "not a callback of Stable-Baselines3"
            expected = "a subclass of BaseCallback"
            raise ConfigurationError(what, field="callback", expected=expected, got=type(each).__name__)
    return made


def wrapped(options: TrainOptions, vec_env: VecEnv) -> VecEnv:
    """`vec_env` in those of `env_wrapper` that stand around all envs, and with `frame_stack`.

    Raises:
        ConfigurationError: a wrapper cannot be made, these observations cannot be stacked, or a wrapper changes the
            spaces, where a model.onnx is wanted.
    """
    for name, given in named(options.env_wrapper):
        kind = loaded(name, "env_wrapper")
        inner = vec_env
        if is_of_all_envs(kind):
            vec_env = make_named(kind, name, given, "env_wrapper", inner)
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


def _spaces_of(env: VecEnv) -> Any:
    return env.observation_space, env.action_space
