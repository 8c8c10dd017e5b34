"""The first part of an exported graph: from what the engine sends to what the policy's net is fed.

In the order of Stable-Baselines3: channel transposition (VecTransposeImage), normalisation (VecNormalize, in
float64 and then rounded to float32, as NumPy does it there), one-hot and image scaling (preprocess_obs). Here
is also the same way in NumPy, `ObservationLeaf.to_python`, which turns what the engine sends into what predict() takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first, preprocess_obs
from stable_baselines3.common.vec_env import VecNormalize, VecTransposeImage, unwrap_vec_wrapper
from torch import nn

from ue_rl.inference.metadata import space_size, space_to_json
from ue_rl.protocol.spaces.engine_leaf import leaf_of, noted_leaf
from ue_rl.protocol.spaces.gymnasium import gymnasium_space
from ue_rl.protocol.spaces.tree import Leaf
from ue_rl.system.errors import ExportError

LAYOUTS = ("auto", "channels_first", "channels_last")


@dataclass(frozen=True)
class ObservationLeaf:
    """One part of the observation: the whole, or one key of a Dict.

    Attributes:
        key: the key, None for a whole observation.
        space: as the engine sends it (images in its own channel order, numbers not normalised).
        policy_space: as the policy takes it.
        transposed: whether the channels move from last to first.
        noted: the engine's leaf, where the policy takes another one (see `LeafForm.trained`): Policies of
            Stable-Baselines3 count from 0.
        engine_key: the engine's name of this key, where Stable-Baselines3 needs another one; see `name`.
    """

    key: str | None
    space: gym.Space[Any]
    policy_space: gym.Space[Any]
    transposed: bool
    noted: Leaf | None = None
    engine_key: str | None = None

    @property
    def name(self) -> str | None:
        """The key as the engine has it, and the file."""
        if self.engine_key is None:
            return self.key
        return self.engine_key

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row of the input; a Discrete observation is one number."""
        if self.space.shape:
            return tuple(self.space.shape)
        return (self.size,)

    @cached_property  # of a picture it takes milliseconds: the bounds of each of its numbers are written out
    def size(self) -> int:
        """Numbers in one row."""
        return space_size(space_to_json(self.space))

    def to_python(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        """float32 rows [N, *shape] as the env would have given them: in its dtype, and transposed."""
        if self.transposed:
            rows = VecTransposeImage.transpose_image(rows)
        if self.noted is not None:
            rows = self.noted.form.to_trained(self.noted, np)(rows.reshape(len(rows), -1))
        rows = rows.reshape(len(rows), *(self.policy_space.shape or (1,)))
        if isinstance(self.policy_space, spaces.Discrete):
            rows = rows[:, 0]
        return np.ascontiguousarray(rows).astype(self.policy_space.dtype)


def starts_of(space: gym.Space[Any]) -> tuple[int, ...]:
    """The engine's lowest choices of a space that counts from 0; () where they are all 0, or where it has no choices.

    ue_rl.envs.spaces leaves them at the spaces that it makes for Stable-Baselines3.
    """
    if not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return ()
    return leaf_of(space).starts


def check_starts(space: Any, what: str) -> None:
    """Refuse a space whose choices begin elsewhere and that Stable-Baselines3 was given as it is.

    It counts from 0 whatever the space says: in training the env was given, or gave, other numbers than the engine has.

    Raises:
        ExportError: such a space; those that ue_rl makes count from 0.
    """
    for part in space.spaces.values() if isinstance(space, spaces.Dict) else [space]:
        if isinstance(part, (spaces.Discrete, spaces.MultiDiscrete)) and np.any(part.start):
            raise ExportError(
                f"the {what} space's choices do not begin with 0, but those of Stable-Baselines3 do: the env that the "
                "model was trained in was not given what such an engine is",
                field=f"{what}_space",
                expected="choices from 0",
                got=part,
                cure="train in an UnrealVecEnv, which counts as the engine does, or behind a wrapper that starts at 0",
            )


def keys_of(space: gym.Space[Any]) -> dict[str, str]:
    """The engine's names of the parts of a Dict -> its own, in its order; ue_rl.envs.spaces notes what differs."""
    names = getattr(space, "engine_names", {})
    return {names.get(key, key): key for key in getattr(space, "spaces", ())}


def find_leaves(
    space: gym.Space[Any], env: Any, image_layout: str, order: tuple[str, ...] = ()
) -> list[ObservationLeaf]:
    """The parts of the observation of a model, in the order of its space.

    Images: Stable-Baselines3 moves the channels first by a wrapper around the env, and the policy knows only the
    result. If the model still has its env, `env`, that tells; else `image_layout` decides, where "auto" means
    channels last, since that is what engines send.

    Args:
        order: the names of the parts in the engine's row, where it is known; () for the order of the space.
    """
    if image_layout not in LAYOUTS:
        raise ExportError("no such image layout", field="image_layout", expected=LAYOUTS, got=image_layout)
    if isinstance(space, spaces.Dict):
        keys = keys_of(space)
        if set(order) == set(keys):
            names = order
        else:
            names = tuple(keys)
        return [
            replace(_leaf(keys[name], space.spaces[keys[name]], env, image_layout), engine_key=name) for name in names
        ]
    return [_leaf(None, space, env, image_layout)]


def _leaf(key: str | None, space: gym.Space[Any], env: Any, layout: str) -> ObservationLeaf:
    if not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        raise ExportError(
            f"a {type(space).__name__} observation cannot be exported",
            field=key,
            got=space,
            expected="Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of these, as Stable-Baselines3 takes them",
            cure="train behind a wrapper that flattens it",
        )
    if not (isinstance(space, spaces.Box) and is_image_space(space) and is_image_space_channels_first(space)):
        noted = noted_leaf(space)
        if noted is None:
            return ObservationLeaf(key, space, space, False)
        return ObservationLeaf(key, gymnasium_space(noted), space, False, noted)
    if layout == "auto" and env is not None:
        wrapper = unwrap_vec_wrapper(env, VecTransposeImage)
        transposed = wrapper is not None and not getattr(wrapper, "skip", False)
        if transposed and key is not None:
            transposed = key in wrapper.image_space_keys  # type: ignore[union-attr]
    else:
        transposed = layout != "channels_first"
    if not transposed:
        return ObservationLeaf(key, space, space, False)
    low = np.moveaxis(space.low, 0, -1)
    high = np.moveaxis(space.high, 0, -1)
    return ObservationLeaf(key, spaces.Box(low, high, dtype=space.dtype.type), space, True)


def engine_space(leaves: list[ObservationLeaf]) -> gym.Space[Any]:
    """The observation space as the engine sees it."""
    if leaves[0].key is None:
        return leaves[0].space
    made = spaces.Dict()
    for leaf in leaves:  # one by one: the constructor would sort the keys
        made.spaces[str(leaf.name)] = leaf.space
    return made


def stats_of(vec_normalize: VecNormalize | None, key: str | None) -> Any:
    """The running mean and variance that belong to a leaf, None where it is not normalised."""
    rms: Any
    if vec_normalize is not None:
        rms = vec_normalize.obs_rms
    else:
        rms = None
    if isinstance(rms, dict) and vec_normalize is not None:
        if key in (vec_normalize.norm_obs_keys or ()):
            return rms.get(key)
        return None
    return rms


def check_normalize(vec_normalize: VecNormalize | None, leaves: list[ObservationLeaf]) -> None:
    """Refuse statistics that belong to another env; raises ExportError: a shape or the keys differ from the model's."""
    if vec_normalize is None:
        return
    rms: Any = vec_normalize.obs_rms
    mine = {leaf.key for leaf in leaves}
    if isinstance(rms, dict):
        theirs = set(rms)
    else:
        theirs = {None}
    if not theirs <= mine or (theirs == {None}) != (mine == {None}):
        what = "the VecNormalize statistics belong to another observation space"
        raise ExportError(what, expected=f"keys {sorted(map(str, mine))}", got=f"keys {sorted(map(str, theirs))}")
    for leaf in leaves:
        stats = stats_of(vec_normalize, leaf.key)
        shape = leaf.policy_space.shape or ()
        wanted = tuple(shape)
        had = () if stats is None else tuple(stats.mean.shape)
        stacked = 0 < len(had) == len(wanted) and all(n % own == 0 for n, own in zip(wanted, had, strict=True))
        if stacked and wanted != had:
            raise ExportError(
                "frames were stacked after they had been normalised (VecFrameStack around VecNormalize): the file gets "
                "stacked frames as the engine sends them, and the zeros before an episode's first ones are none that "
                "could be normalised",
                field=leaf.key,
                expected=wanted,
                got=had,
                cure="train in VecNormalize(VecFrameStack(env, n)), or pass the statistics that belong to this model",
            )
        if stats is not None and had != wanted:
            raise ExportError(
                "the VecNormalize statistics have another shape than the observation",
                field=leaf.key,
                expected=wanted,
                got=had,
                cure="pass the statistics that were saved with this model",
            )


class LeafNet(nn.Module):
    """One leaf in the graph: float32 [N, *leaf.shape] in, what the features extractor takes out."""

    mean: th.Tensor
    std: th.Tensor

    def __init__(self, leaf: ObservationLeaf, vec_normalize: VecNormalize | None, normalize_images: bool) -> None:
        super().__init__()
        self.leaf = leaf
        self.normalize_images = normalize_images
        self.to_trained = None
        if leaf.noted is not None:
            self.to_trained = leaf.noted.form.to_trained(leaf.noted, th)
        stats = stats_of(vec_normalize, leaf.key)
        self.normalized = stats is not None
        if stats is not None and vec_normalize is not None:
            self.register_buffer("mean", th.as_tensor(np.asarray(stats.mean, np.float64)))
            self.register_buffer(
                "std", th.as_tensor(np.sqrt(np.asarray(stats.var, np.float64) + vec_normalize.epsilon))
            )
            self.clip = float(vec_normalize.clip_obs)

    def forward(self, rows: th.Tensor) -> th.Tensor:
        """See the class."""
        if self.leaf.transposed:
            rows = rows.permute(0, 3, 1, 2)
        shape = self.leaf.policy_space.shape or (1,)
        if self.to_trained is not None:
            rows = self.to_trained(rows.flatten(1)).reshape(-1, *shape)
            if not isinstance(self.leaf.policy_space, spaces.Box):
                # the zeros that a graph is converted and tried out with are no choices of the engine
                rows = th.clamp(rows, min=0.0)
        if self.normalized:
            rows = th.clamp((rows.double() - self.mean) / self.std, -self.clip, self.clip).float()
        if isinstance(self.leaf.policy_space, spaces.Discrete):
            rows = rows[:, 0]
        out = preprocess_obs(rows, self.leaf.policy_space, normalize_images=self.normalize_images)
        assert isinstance(out, th.Tensor)
        return out


class ObservationNet(nn.Module):
    """All leaves: the inputs of the graph in, one tensor or a dict of tensors out."""

    def __init__(
        self,
        leaves: list[ObservationLeaf],
        vec_normalize: VecNormalize | None,
        normalize_images: bool,
        flat_input: bool,
    ) -> None:
        super().__init__()
        self.leaves = leaves
        self.flat_input = flat_input
        self.nets = nn.ModuleList(LeafNet(leaf, vec_normalize, normalize_images) for leaf in leaves)

    def forward(self, *inputs: th.Tensor) -> th.Tensor | dict[str, th.Tensor]:
        """`inputs`: one per leaf; or a single [N, total] in the flat form."""
        parts = list(inputs)
        if self.flat_input:
            parts = []
            at = 0
            for leaf in self.leaves:
                parts.append(inputs[0][:, at : at + leaf.size].reshape(-1, *leaf.shape))
                at += leaf.size
        outs = [net(part) for net, part in zip(self.nets, parts, strict=True)]
        if self.leaves[0].key is None:
            return outs[0]  # type: ignore[no-any-return]
        return {str(leaf.key): out for leaf, out in zip(self.leaves, outs, strict=True)}
