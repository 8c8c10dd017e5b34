"""What GymnasiumBridge does with single envs: making them, and what they offer beside reset and step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.errors import ConfigurationError
from ue_rl.spec import DEFAULT_FPS, MAX_FPS, Parameter

AnyEnv = gym.Env[Any, Any]
EnvFactory = Callable[[], AnyEnv]


def render_fps(env: Any) -> int:
    """Pictures a second, as the env's metadata says it; for Gymnasium's and PettingZoo's envs."""
    said = env.metadata.get("render_fps")
    return min(max(round(said), 1), MAX_FPS) if isinstance(said, (int, float)) and said < np.inf else DEFAULT_FPS


class EnvMaker:
    """Makes the envs of one bridge: all with the same spaces, each an object of its own.

    Args:
        env: a registered id, a callable that makes an env, or several callables: env i is made by the i-th, in turns
            where there are more envs. kwargs: for gymnasium.make or the callable.

    Raises:
        ConfigurationError: an unknown id, no callables.
    """

    def __init__(self, env: str | EnvFactory | Sequence[EnvFactory], kwargs: dict[str, Any]) -> None:
        self.sources: list[Any] = [env]
        if isinstance(env, Sequence) and not isinstance(env, str):
            self.sources = list(env)
        if not self.sources:
            raise ConfigurationError("no env is given", field="env", expected="an id, or callables")
        self._kwargs = kwargs

    def make(self, made: Sequence[AnyEnv]) -> AnyEnv:
        """One more env beside those that are `made` already.

        Raises:
            ConfigurationError: it is one of those, or has other spaces.
        """
        number = len(made)
        env = _make(self.sources[number % len(self.sources)], self._kwargs)
        for i, other in enumerate(made):
            if env.unwrapped is other.unwrapped:
                raise ConfigurationError(
                    "the same env object was given for two envs: each steps on its own",
                    field="env",
                    env_id=number,
                    expected="a new env from each call",
                    got=f"that of env {i}, a {type(env).__name__}",
                    cure="make the env within the callable: lambda: MyEnv(), not lambda: env",
                )
        for name in ("observation_space", "action_space"):
            if made and getattr(env, name) != getattr(made[0], name):
                raise ConfigurationError(
                    f"envs of one bridge have the same spaces, but this {name} is another",
                    field="env",
                    env_id=number,
                    expected=getattr(made[0], name),
                    got=getattr(env, name),
                    cure="host envs with other spaces in an engine of their own",
                )
        return env


def reset_keywords(env: AnyEnv) -> frozenset[str]:
    """Which of `seed` and `options` an env's reset takes, and that of everything that it wraps."""
    taken = frozenset({"seed", "options"})
    layer: Any = env
    while layer is not None:
        named = inspect.signature(layer.reset).parameters
        if not any(given.kind is given.VAR_KEYWORD for given in named.values()):
            taken &= named.keys()
        layer = layer.env if isinstance(layer, gym.Wrapper) else None
    return taken


def attribute(env: AnyEnv, name: str) -> Any:
    """An attribute of an env or of anything that it wraps; None where there is none."""
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        return None


def flat_mask(mask: Any, size: int, env_id: int) -> NDArray[np.bool_]:
    """An env's action mask as `size` flags.

    Args:
        mask: flags (of any dtype) in any form; or, for a MultiDiscrete, a tuple of arrays, as Gymnasium samples by.

    Raises:
        ConfigurationError: it has another number of flags.
    """
    if isinstance(mask, (tuple, list)):
        mask = np.concatenate([np.ravel(part) for part in mask])
    flags: NDArray[np.bool_] = np.ravel(mask).astype(np.bool_)
    if flags.size != size:
        raise ConfigurationError(
            "the env's action mask has a wrong size",
            fault="engine",
            env_id=env_id,
            field="MASK",
            expected=f"{size} flags, one for each choice",
            got=np.shape(mask),
        )
    return flags


def rewards_of_goals(env: AnyEnv) -> Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]] | None:
    """The `compute_reward(achieved, desired, info)` of a goal env: two arrays float32 [n, size] -> float32 [n].

    It is given n goals at once in the form and dtype of the env's goals; where it does not give n rewards, one by one.
    None where the env has none.
    """
    found = attribute(env, "compute_reward")
    space = env.observation_space
    if not (callable(found) and isinstance(space, spaces.Dict) and "achieved_goal" in space.spaces):
        return None
    goal = space["achieved_goal"]
    shape, dtype = goal.shape or (1,), goal.dtype

    def rewards(achieved: NDArray[np.float32], desired: NDArray[np.float32]) -> NDArray[np.float32]:
        n = len(achieved)
        have, want = (np.asarray(goals).reshape(n, *shape).astype(dtype) for goals in (achieved, desired))
        infos = np.array([{} for _ in range(n)], dtype=object)
        given = np.asarray(found(have, want, infos), np.float32)
        if given.shape != (n,):
            given = np.array([found(*each) for each in zip(have, want, infos, strict=True)], np.float32).reshape(n)
        return given

    return rewards


class GameParameters:
    """Numbers of the envs that a trainer may set.

    Args:
        envs: the bridge's own list. paths: attribute paths of the unwrapped env to (value, low, high), such as
            {"gravity": (9.8, 1, 20), "model.friction": (0.4, 0, 1)}; None: those of the env's own `list_parameters`.

    Raises:
        ConfigurationError: an env has no such attribute, or a value is out of its range.
    """

    def __init__(self, envs: Sequence[AnyEnv], paths: Mapping[str, tuple[float, float, float]] | None) -> None:
        self._envs, self._paths = envs, paths
        own = attribute(envs[0], "list_parameters") if paths is None else None
        given: Mapping[str, tuple[float, float, float]] = (paths or {}) if own is None else own()
        self.parameters = tuple(Parameter(name, *map(float, values)) for name, values in given.items())
        self._values: list[dict[str, float]] = []

    def prepare(self, env_id: int) -> None:
        """Gives a new env the values at the start."""
        for parameter in self.parameters if self._paths is not None else ():
            _place(self._envs[env_id], parameter.name)  # raises before anything is set
        if self._paths is not None:
            for parameter in self.parameters:
                self.set(parameter.name, parameter.value, env_id)

    def list(self) -> dict[str, tuple[float, float, float]]:
        """Name -> (value of env 0, low, high)."""
        return {p.name: (self.get(p.name, 0), p.low, p.high) for p in self.parameters}

    def get(self, name: str, env_id: int) -> float:
        """The value in one env."""
        if self._paths is None:
            own = attribute(self._envs[env_id], "get_parameter")
            if own is not None:
                return float(own(name))
            return float(attribute(self._envs[env_id], "list_parameters")()[name][0])
        owner, last = _place(self._envs[env_id], name)
        return float(getattr(owner, last))

    def set(self, name: str, value: float, env_id: int) -> None:
        """In one env; -1: in all."""
        for env in self._envs if env_id < 0 else [self._envs[env_id]]:
            if self._paths is None:
                attribute(env, "set_parameter")(name, value)
            else:
                owner, last = _place(env, name)
                kind = type(getattr(owner, last))
                setattr(owner, last, kind(value) if kind in (int, float) else value)


def _place(env: AnyEnv, path: str) -> tuple[Any, str]:
    """(object, attribute) that a path names."""
    owner: Any = env.unwrapped
    *way, last = path.split(".")
    for name in [*way, last]:
        if not hasattr(owner, name):
            raise ConfigurationError(
                "the env has no such attribute",
                field="parameters",
                got=path,
                expected=f"an attribute of {type(owner).__name__}",
            )
        if name is not last:
            owner = getattr(owner, name)
    return owner, last


def _make(env: str | EnvFactory, kwargs: dict[str, Any]) -> AnyEnv:
    if not isinstance(env, str):
        return env(**kwargs)
    try:
        return gym.make(env, **kwargs)
    except (gym.error.Error, TypeError) as error:
        if isinstance(error, TypeError) and "unexpected keyword argument" not in str(error):
            raise
        cure = "check the id, or install what the env needs (such as gymnasium[mujoco])"
        raise ConfigurationError(
            f"Gymnasium cannot make {env!r}",
            field="env",
            got=str(error).strip(),
            cure="check its arguments" if isinstance(error, TypeError) else cure,
        ) from error
