"""Which part of a Gymnasium observation is an image: a Box uint8 0..255 of 2 or 3 dimensions, or one key of a Dict.

As Stable-Baselines3 sees it: of three dimensions the shortest holds the channels, first or last; where it is the middle
one, the channels are last. Two dimensions are one channel. The order of the env's own array is kept: nothing is turned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ue_rl.errors import ConfigurationError
from ue_rl.spec import ImageSpec

IMAGE_AS = "Box uint8 0..255 [height, width], [height, width, channels] or [channels, height, width]"


@dataclass(frozen=True)
class ImageSide:
    """How an observation comes apart.

    Attributes:
        spec: of the image. numbers: the space of what stands beside it, None where it is the whole observation.
        picture: from an observation to its image, uint8 [*spec.shape]. rest: to what is of the space `numbers`.
    """

    spec: ImageSpec
    numbers: gym.Space[Any] | None
    picture: Callable[[Any], Any]
    rest: Callable[[Any], Any]


def find_image(space: gym.Space[Any]) -> ImageSide:
    """The image of `space`.

    Raises:
        ConfigurationError: there is none, or a Dict has several.
    """
    if not isinstance(space, spaces.Dict):
        if not _is_image(space):
            raise _none("this env's observations are no images", space)
        return ImageSide(_spec_of(space, only=True), None, _picture(space), lambda obs: None)
    keys = [key for key, part in space.spaces.items() if _is_image(part)]
    if len(keys) != 1:
        raise _none(f"this env's observations have {len(keys)} images, one can be carried", space)
    key = keys[0]
    others = {name: part for name, part in space.spaces.items() if name != key}
    picture = _picture(space[key])
    numbers: gym.Space[Any] | None = None
    if len(others) == 1:
        ((name, numbers),) = others.items()
        rest: Callable[[Any], Any] = lambda obs: obs[name]  # noqa: E731
    else:
        numbers = spaces.Dict(others) if others else None
        rest = lambda obs: {name: obs[name] for name in others}  # noqa: E731
    return ImageSide(_spec_of(space[key], only=not others), numbers, lambda obs: picture(obs[key]), rest)


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
        what, fault="caller", field="images", expected=f"{IMAGE_AS}, or a Dict with one such key", got=space,
        cure="leave images=True out: observations then travel as flat numbers",
    )  # fmt: skip
