"""GymnasiumBridge: hosts any Gymnasium env as an engine, one instance per env.

Over the wire it gives what SB3's DummyVecEnv gives over the same envs, bit for bit: numbers are float32 on both
sides, seeds arrive as they were given, and a finished env waits for the trainer's reset.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.bridges.vector import EnvIds, VectorBridge
from ue_rl.errors import ConfigurationError
from ue_rl.json_text import json_items
from ue_rl.spec import ActionSpec, EnvSpec, EnvType, ImageSpec

# An observation has one number or more, also beside an image that is all of it.
NO_NUMBERS = spaces.Box(-np.inf, np.inf, (1,), np.float32)
ZERO = np.zeros(1, np.float32)
EnvFactory = Callable[[], gym.Env[Any, Any]]
_IMAGE = "Box uint8 0..255 [height, width], [height, width, channels] or [channels, height, width]"


@dataclass(frozen=True)
class _ImageSide:
    """How an observation comes apart.

    Attributes:
        spec: of the image. numbers: the space of what stands beside it.
        picture: from an observation to its image, uint8 [*spec.shape]. rest: to what is of the space `numbers`.
    """

    spec: ImageSpec
    numbers: gym.Space[Any]
    picture: Callable[[Any], Any]
    rest: Callable[[Any], Any]


class GymnasiumBridge(VectorBridge):
    """Gymnasium envs behind one bridge.

    Args:
        env: a registered id such as "CartPole-v1", or a callable that makes an env.
        num_envs: how many; each is an instance of its own.
        env_type: MULTI, SINGLE or RLBASE.
        send_info: send the JSON-able part of each info dict (INFO).
        images: carry the image of the observation as an image, over shared memory alone: text has none. The
            trainer sees the image, or {"obs": .., "image": ..} where a Dict has numbers beside it (docs/images.md).
        make_kwargs: for gymnasium.make.

    Observations, without images, are flattened: Box by reshape, everything else by gymnasium.spaces.flatten.

    Raises:
        ConfigurationError: an unknown id, num_envs below 1, a space that the wire cannot carry, or
            `images` of an env that has none.
    """

    def __init__(
        self,
        env: str | EnvFactory,
        num_envs: int = 1,
        *,
        env_type: EnvType = EnvType.MULTI,
        send_info: bool = False,
        images: bool = False,
        **make_kwargs: Any,
    ) -> None:
        if num_envs < 1:
            raise ConfigurationError(
                "size out of range", fault="caller", field="ENV_COUNT", expected="1 or more", got=num_envs
            )
        self._make_env: Callable[[], gym.Env[Any, Any]] = functools.partial(_make, env, make_kwargs)
        first = self._make_env()
        self.envs: list[gym.Env[Any, Any]] = [first]
        self._send_info = send_info
        self._obs_space, self._act_space = first.observation_space, first.action_space
        action, self._to_env = _action_side(self._act_space)
        self._image = _find_image(self._obs_space) if images else None
        low, high, self._flatten = _observation_side(self._obs_space if self._image is None else self._image.numbers)
        bounded = bool(np.isfinite(low).any() or np.isfinite(high).any())
        super().__init__(
            EnvSpec(
                obs_size=len(low),
                act_size=action.size,
                env_type=env_type,
                num_envs=num_envs,
                action=action,
                obs_low=tuple(low.tolist()) if bounded else (),
                obs_high=tuple(high.tolist()) if bounded else (),
                features=frozenset({"SEED", "OPTIONS", "TRUNC"} | ({"INFO"} if send_info else set())),
                image=None if self._image is None else self._image.spec,
            )
        )

    def configure(self, spec: EnvSpec) -> None:
        """See BaseBridge.configure; makes or closes envs until there are `spec.num_envs`.

        Raises:
            ConfigurationError: other sizes than those of the env.
        """
        if self._spec is not None and (spec.obs_size, spec.act_size) != (self._spec.obs_size, self._spec.act_size):
            raise ConfigurationError(
                "this bridge's sizes are those of its env", fault="caller", field="OBS, ACT",
                expected=(self._spec.obs_size, self._spec.act_size), got=(spec.obs_size, spec.act_size),
            )  # fmt: skip
        with self.lock:
            while len(self.envs) < spec.num_envs:
                self.envs.append(self._make_env())
            while len(self.envs) > spec.num_envs:
                self.envs.pop().close()
            super().configure(spec)

    def reset_envs(
        self, env_ids: EnvIds, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """See VectorBridge."""
        rows, flatten, image = self.outbox.obs, self._flatten, self._image
        with np.errstate(over="ignore"):
            for env, seed, option in zip(env_ids.tolist(), seeds, options, strict=True):
                obs, info = self.envs[env].reset(seed=seed, options=option)
                rows[env] = flatten(obs if image is None else self._take_picture(env, obs))
                self._note(env, info)

    def step_envs(self, actions: NDArray[np.float32], env_ids: EnvIds) -> None:
        """See VectorBridge."""
        out, to_env, flatten, envs, image = self.outbox, self._to_env, self._flatten, self.envs, self._image
        rows, rewards, dones, cut = out.obs, out.rewards, out.dones, out.truncated
        with np.errstate(over="ignore"):
            for env in env_ids.tolist():
                obs, reward, terminated, truncated, info = envs[env].step(to_env(actions[env]))
                rows[env] = flatten(obs if image is None else self._take_picture(env, obs))
                rewards[env] = reward
                dones[env] = terminated or truncated
                cut[env] = truncated and not terminated
                if info:
                    self._note(env, info)

    def offered(self) -> frozenset[str]:
        """See BridgeCore: pictures only of envs that were made to give them."""
        pictures = getattr(self.envs[0], "render_mode", None) == "rgb_array"
        return super().offered() - (frozenset() if pictures else {"RENDER"})

    def render(self, env_id: int = 0) -> NDArray[np.uint8] | None:
        """The env's picture, uint8 [height, width, 3], where it was made with render_mode="rgb_array"."""
        try:
            picture = self.envs[env_id].render()
        except gym.error.DependencyNotInstalled as error:
            raise ConfigurationError(
                "this env cannot render here", fault="caller", got=str(error), cure="install what it names"
            ) from error
        return picture if isinstance(picture, np.ndarray) else None

    def close(self) -> None:
        """Closes the envs."""
        for env in self.envs:
            env.close()

    def _take_picture(self, env: int, obs: Any) -> Any:
        """Writes the image of `obs`; the rest of it."""
        assert self._image is not None
        assert self.outbox.image is not None
        self.outbox.image[env] = self._image.picture(obs)
        return self._image.rest(obs)

    def _note(self, env: int, info: dict[str, Any]) -> None:
        if self._send_info and info:
            plain = json_items(info)
            if plain:
                self.write_info(env, plain)


def _find_image(space: gym.Space[Any]) -> _ImageSide:
    """The image of `space`, as SB3 sees it; the order of the env's own array is kept.

    Of three dimensions the shortest holds the channels, first or last; where it is the middle one, the channels are
    last. Two dimensions are one channel.

    Raises:
        ConfigurationError: there is none, or a Dict has several.
    """
    if not isinstance(space, spaces.Dict):
        if not _is_image(space):
            raise _none("this env's observations are no images", space)
        return _ImageSide(_spec_of(space, only=True), NO_NUMBERS, _picture(space), lambda obs: ZERO)
    keys = [key for key, part in space.spaces.items() if _is_image(part)]
    if len(keys) != 1:
        raise _none(f"this env's observations have {len(keys)} images, one can be carried", space)
    key = keys[0]
    others = {name: part for name, part in space.spaces.items() if name != key}
    picture = _picture(space[key])
    numbers: gym.Space[Any] = spaces.Dict(others) if others else NO_NUMBERS
    rest: Callable[[Any], Any] = lambda obs: {name: obs[name] for name in others}  # noqa: E731
    if not others:
        rest = lambda obs: ZERO  # noqa: E731
    elif len(others) == 1:
        ((name, numbers),) = others.items()
        rest = lambda obs: obs[name]  # noqa: E731
    return _ImageSide(_spec_of(space[key], only=not others), numbers, lambda obs: picture(obs[key]), rest)


def _is_image(space: gym.Space[Any]) -> bool:
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return False
    return bool((space.low == 0).all() and (space.high == 255).all())


def _spec_of(space: gym.Space[Any], only: bool) -> ImageSpec:
    assert space.shape is not None
    shape = space.shape if len(space.shape) == 3 else (*space.shape, 1)
    if len(space.shape) == 3 and int(np.argmin(shape)) == 0:
        return ImageSpec(shape[1], shape[2], shape[0], channels_first=True, only=only)
    return ImageSpec(shape[0], shape[1], shape[2], only=only)


def _picture(space: gym.Space[Any]) -> Callable[[Any], Any]:
    assert space.shape is not None
    if len(space.shape) == 2:
        return lambda obs: np.asarray(obs)[:, :, None]
    return lambda obs: obs


def _none(what: str, space: gym.Space[Any]) -> ConfigurationError:
    return ConfigurationError(
        what, fault="caller", field="images", expected=f"{_IMAGE}, or a Dict with one such key", got=space,
        cure="leave images=True out: observations then travel as flat numbers",
    )  # fmt: skip


def _make(env: str | EnvFactory, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    if callable(env):
        return env(**kwargs)
    try:
        return gym.make(env, **kwargs)
    except gym.error.Error as error:
        raise ConfigurationError(
            f"Gymnasium cannot make {env!r}", fault="caller", field="env", got=str(error).strip(),
            cure="check the id, or install what the env needs (such as gymnasium[mujoco])",
        ) from error  # fmt: skip


def _action_side(space: gym.Space[Any]) -> tuple[ActionSpec, Callable[[NDArray[np.float32]], Any]]:
    """The wire's action space, and from a float32 row to what the env takes."""
    if isinstance(space, spaces.Box):
        low, high = space.low.ravel(), space.high.ravel()
        shape, dtype = space.shape, space.dtype
        box = ActionSpec.box(len(low))
        narrow = ActionSpec(box.kind, tuple(low.astype(np.float32).tolist()), tuple(high.astype(np.float32).tolist()))
        return narrow, lambda row: row.reshape(shape).astype(dtype)
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return ActionSpec.discrete(int(space.n)), lambda row: np.int64(int(row[0]) + start)
    if isinstance(space, spaces.MultiDiscrete):
        starts, kind = space.start.ravel(), space.dtype
        grid = space.nvec.shape
        counts = tuple(int(n) for n in space.nvec.ravel())
        return ActionSpec.multi_discrete(counts), lambda row: (row.astype(kind) + starts).reshape(grid).astype(kind)
    if isinstance(space, spaces.MultiBinary):
        form = space.shape
        return ActionSpec.multi_binary(int(np.prod(form))), lambda row: row.reshape(form).astype(np.int8)
    raise ConfigurationError(
        "the wire cannot carry this action space", fault="caller", field="ACT_SPACE",
        expected="Box, Discrete, MultiDiscrete or MultiBinary", got=space, cure="wrap the env to flatten its actions",
    )  # fmt: skip


def _observation_side(
    space: gym.Space[Any],
) -> tuple[NDArray[np.float32], NDArray[np.float32], Callable[[Any], NDArray[Any]]]:
    """(low, high) as float32 and from an observation to its numbers."""
    if isinstance(space, spaces.Box):
        with np.errstate(over="ignore"):
            low, high = space.low.ravel().astype(np.float32), space.high.ravel().astype(np.float32)
        if len(space.shape) == 1:
            return low, high, lambda obs: obs
        return low, high, lambda obs: np.asarray(obs).reshape(-1)
    try:
        flat = spaces.flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, spaces.Box):
        raise ConfigurationError(
            "the wire cannot carry this observation space", fault="caller", field="OBS_SPACE", got=space,
            cure="wrap the env so that its observations have a fixed size",
        )  # fmt: skip
    return flat.low.astype(np.float32), flat.high.astype(np.float32), lambda obs: np.asarray(spaces.flatten(space, obs))
