"""Attributes: the part of an UnrealVecEnv that says what Stable-Baselines3 asks about its envs beside the steps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, tile_images

from ue_rl.envs.controls import EngineControls, GoalReward, check_render_mode
from ue_rl.envs.masks import Masks
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError, UnsupportedByEngine

_KNOWN = (
    "render_mode", "spec", "metadata", "observation_space", "action_space", "engine_spec", "max_episode_steps",
)  # fmt: skip
_METHODS = ("action_masks", "compute_reward", "render", "get_params", "set_params", "list_params")


def check_limit(steps: int | None) -> int | None:
    """The most steps of an episode; None: as many as the engine allows.

    Raises:
        ConfigurationError: it is no whole number from 1 on.
    """
    if steps is not None and (int(steps) != steps or steps < 1):
        raise ConfigurationError("an episode has at least one step", field="max_episode_steps", got=steps)
    return None if steps is None else int(steps)


class Attributes(EngineControls, VecEnv):
    """A base of UnrealVecEnv, which has these attributes."""

    engine_spec: EnvSpec
    max_episode_steps: int | None
    _masks: Masks | None
    _monitor: bool
    _compute_reward: GoalReward | None

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """What is known about each env: render_mode, spec, spaces, max_episode_steps, the methods of `env_method` that
        this engine has, and, by its name, the value of a parameter of the game.

        Raises:
            UnsupportedByEngine: (an AttributeError) anything else lives inside the engine.
        """
        envs = self._get_indices(indices)
        if attr_name in _KNOWN:
            return [getattr(self, attr_name) for _ in envs]
        if attr_name in _METHODS:
            return [self._method(attr_name, env) for env in envs]
        if attr_name in self._parameters:
            return [self.get_params([attr_name], env)[attr_name] for env in envs]
        raise self._inside("get_attr", attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Sets render_mode or max_episode_steps, for all envs at once, or a parameter of the game by its name.

        Raises:
            ConfigurationError: no such render_mode, or no step is allowed.
            UnsupportedByEngine: anything else lives inside the engine; or it sends no pictures.
        """
        envs = self._get_indices(indices)
        everywhere = len(envs) == self.num_envs
        if attr_name == "render_mode" and everywhere:
            self.render_mode = check_render_mode(self.engine_spec, value)
        elif attr_name == "max_episode_steps" and everywhere:
            self.max_episode_steps = check_limit(value)
        elif attr_name in self._parameters:
            for env in [None] if everywhere else envs:
                self.set_params({attr_name: value}, env)
        else:
            raise self._inside("set_attr", attr_name)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """What the engine answers: action_masks (FEATURES=MASK), compute_reward (an argument of this class, or
        FEATURES=GOAL_REWARD), render (FEATURES=RENDER), list_params, get_params and set_params.

        Raises:
            UnsupportedByEngine: it does not, or any other method, with what to use instead.
        """
        methods = [self._method(method_name, env) for env in self._get_indices(indices)]
        return [method(*method_args, **method_kwargs) for method in methods]

    def _method(self, name: str, env: int) -> Callable[..., Any]:
        if name == "action_masks" and self._masks is not None:
            return functools.partial(self._masks.action_masks, env)
        if name == "compute_reward" and self._compute_reward is not None:
            return self._compute_reward
        if name == "render" and "RENDER" in self.engine_spec.features:
            return functools.partial(self._picture, env)
        if name in ("get_params", "set_params") and self._parameters:
            return functools.partial(getattr(self, name), env_id=env)
        if name == "list_params" and self._parameters:
            return self.list_params
        raise self._inside("env_method", name)

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Monitor: True where the episode statistics are in the infos. No other wrapper runs inside the engine."""
        return [self._monitor and wrapper_class is Monitor for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """A picture of each env, uint8 [height, width, channels], with render_mode="rgb_array"; otherwise None each.

        An env that has no picture now is black beside those that have one; None each where none has.
        """
        if self.render_mode is None:
            return [None] * self.num_envs
        pictures = [self._picture(env) for env in range(self.num_envs)]
        black = next((np.zeros_like(picture) for picture in pictures if picture is not None), None)
        return [black if picture is None else picture for picture in pictures]

    def render(self, mode: str | None = None) -> NDArray[np.uint8] | None:
        """The pictures of all envs, tiled; None where no env has one."""
        if self.render_mode is None or mode not in (None, self.render_mode):
            return super().render(mode)  # says why there is none
        pictures = [picture for picture in self.get_images() if picture is not None]
        return tile_images(pictures) if pictures else None

    def _get_indices(self, indices: VecEnvIndices) -> list[int]:
        n, chosen = self.num_envs, list(super()._get_indices(indices))
        for env in chosen:
            if not -n <= env < n:
                raise IndexError(f"env index {env} is outside 0..{n - 1}")
        return chosen

    def _inside(self, call: str, name: str) -> UnsupportedByEngine:
        return UnsupportedByEngine(
            f"{call}({name!r}) asks for something that lives inside the engine",
            expected=", ".join((*_KNOWN, *self._parameters)),
            cure="pass values at the start of an episode with set_options(), let the game list it as a parameter, or "
            "wrap the VecEnv",
        )
