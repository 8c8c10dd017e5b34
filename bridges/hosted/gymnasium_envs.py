"""Envs of other libraries in a bridge: making and holding them, and what they offer beside reset and step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.protocol.spec import DEFAULT_FPS, MAX_FPS, EnvSpec, Parameter
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.loading import imported

AnyEnv = gym.Env[Any, Any]
EnvFactory = Callable[[], AnyEnv]


def render_fps(env: Any) -> int:
    """Pictures a second, as the env's metadata says it; for Gymnasium's and PettingZoo's envs."""
    said = env.metadata.get("render_fps")
    if isinstance(said, (int, float)) and said < np.inf:
        return min(max(round(said), 1), MAX_FPS)
    return DEFAULT_FPS


class EnvMaker:
    """Makes the envs of one bridge: all with the same spaces, each an object of its own.

    Args:
        env: what makes an env, or several such: env i is made by the i-th, in turns where there are more envs.
        make: an env of one of these. spaces_of: name -> space, of an env. same: what these are, for an error.

    Raises:
        ConfigurationError: nothing makes an env.
    """

    def __init__(
        self, env: Any, make: Callable[[Any], Any], spaces_of: Callable[[Any], dict[Any, Any]], same: str = "spaces"
    ) -> None:
        self.sources: list[Any]
        if isinstance(env, Sequence) and not isinstance(env, str):
            self.sources = list(env)
        else:
            self.sources = [env]
        if not self.sources:
            raise ConfigurationError("no env is given", field="env", expected="an id, or callables")
        self._make = make
        self._spaces_of = spaces_of
        self._same = same

    def make(self, made: Sequence[Any]) -> Any:
        """One more env beside those that are `made` already.

        Raises:
            ConfigurationError: it is one of those, or has other spaces.
        """
        number = len(made)
        env = self._make(self.sources[number % len(self.sources)])
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
        if made and (own := self._spaces_of(env)) != (wanted := self._spaces_of(made[0])):
            raise ConfigurationError(
                f"envs of one bridge have the same {self._same}, but these are others",
                field="env",
                env_id=number,
                expected={name: space for name, space in wanted.items() if own.get(name) != space},
                got={name: space for name, space in own.items() if wanted.get(name) != space},
                cure="host envs with other spaces in an engine of their own",
            )
        return env


class HoldsEnvs(BaseBridge):
    """A bridge of another library's envs: one object for each env of its spec.

    Attributes:
        envs: the objects.
    """

    envs: list[Any]
    # Only where the envs can: a host asks whether they are there, see ue_rl/bridges/hosting.py.
    render: Callable[[int], NDArray[np.uint8] | None]
    list_parameters: Callable[[], dict[str, tuple[float, float, float]]]
    get_parameter: Callable[[str, int], float]
    set_parameter: Callable[[str, float, int], None]

    def hold(
        self, maker: EnvMaker, num_envs: int | None, parameters: Mapping[str, tuple[float, float, float]] | None
    ) -> tuple[Any, int]:
        """(the first env, how many there are to be); before the spec is made. None: one for each of the sources.

        Raises:
            ConfigurationError: none, or see EnvMaker and GameParameters.
        """
        if num_envs is None:
            count = len(maker.sources)
        else:
            count = num_envs
        if count < 1:
            raise ConfigurationError("size out of range", field="ENV_COUNT", expected="1 or more", got=count)
        self._maker = maker
        self.envs = [maker.make([])]
        self._parameters = GameParameters(self.envs, parameters)
        return self.envs[0], count

    def offer_what_envs_can(self) -> set[str]:
        """Gives this bridge the methods that its envs can answer; the features that say so."""
        if self._parameters.parameters:
            self.list_parameters = self._parameters.list
            self.get_parameter = self._parameters.get
            self.set_parameter = self._parameters.set
        if getattr(self.envs[0], "render_mode", None) != "rgb_array":
            return set()
        self.render = self._render
        return {"RENDER"}

    def configure(self, spec: EnvSpec) -> None:
        """See BaseBridge.configure; makes or closes envs until there are `spec.num_envs`."""
        with self.lock:
            prepared = 0
            if self._spec is not None:
                prepared = len(self.envs)
            while len(self.envs) < spec.num_envs:
                self.envs.append(self._maker.make(self.envs))
            while len(self.envs) > spec.num_envs:
                self.envs.pop().close()
            for env_id in range(prepared, len(self.envs)):
                self._parameters.prepare(env_id)
            super().configure(spec)

    def close(self) -> None:
        """Closes the envs."""
        for env in self.envs:
            env.close()

    def _render(self, env_id: int = 0) -> NDArray[np.uint8] | None:
        """The env's picture, uint8 [height, width, 3]; None where it has none now."""
        try:
            picture = self.envs[env_id].render()
        except gym.error.DependencyNotInstalled as error:
            raise ConfigurationError(
                "this env cannot render here", got=str(error), cure="install what it names"
            ) from error
        if picture is None:
            return None
        return np.asarray(picture, np.uint8)


def reset_keywords(env: AnyEnv) -> frozenset[str]:
    """Which of `seed` and `options` an env's reset takes, and that of everything that it wraps."""
    taken = frozenset({"seed", "options"})
    layer: Any = env
    while layer is not None:
        named = inspect.signature(layer.reset).parameters
        if not any(given.kind is given.VAR_KEYWORD for given in named.values()):
            taken &= named.keys()
        if isinstance(layer, gym.Wrapper):
            layer = layer.env
        else:
            layer = None
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
    shape = goal.shape
    if not shape:
        shape = (1,)
    dtype = goal.dtype

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
        self._envs = envs
        self._paths = paths
        own = None
        if paths is None:
            own = attribute(envs[0], "list_parameters")
        given: Mapping[str, tuple[float, float, float]]
        if own is None:
            given = paths or {}
        else:
            given = own()
        self.parameters = tuple(Parameter(name, *map(float, values)) for name, values in given.items())
        self._values: list[dict[str, float]] = []

    def prepare(self, env_id: int) -> None:
        """Gives a new env the values at the start."""
        if self._paths is not None:
            parameters = self.parameters
        else:
            parameters = ()
        for parameter in parameters:
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
        if env_id < 0:
            envs = self._envs
        else:
            envs = [self._envs[env_id]]
        for env in envs:
            if self._paths is None:
                attribute(env, "set_parameter")(name, value)
            else:
                owner, last = _place(env, name)
                kind = type(getattr(owner, last))
                if kind in (int, float):
                    typed = kind(value)
                else:
                    typed = value
                setattr(owner, last, typed)


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


def make_gymnasium(env: str | EnvFactory, kwargs: dict[str, Any]) -> AnyEnv:
    """Of a registered id, or a callable; raises ConfigurationError: Gymnasium cannot make it."""
    if not isinstance(env, str):
        return env(**kwargs)
    module, colon, _ = env.rpartition(":")
    if colon:
        imported(module, "env")  # gymnasium.make would import it, and let through whatever that raises
    try:
        return gym.make(env, **kwargs)
    except (gym.error.Error, ImportError, TypeError) as error:
        if isinstance(error, TypeError) and "unexpected keyword argument" not in str(error):
            raise
        cure = "check the id, or install what the env needs (such as gymnasium[mujoco])"
        raise ConfigurationError(
            f"Gymnasium cannot make {env!r}",
            field="env",
            got=str(error).strip(),
            cure="check its arguments" if isinstance(error, TypeError) else cure,
        ) from error
