"""EnvSpec -> Gymnasium spaces.

A tree of the handshake becomes the Gymnasium space of the same form: DICT a Dict in the engine's order, TUPLE a Tuple,
BOX a Box of its shape and dtype, DISCRETE a Discrete, MULTI_DISCRETE a MultiDiscrete, MULTI_BINARY a MultiBinary, IMAGE
a Box uint8 0..255 of the handshake's IMAGE.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.hybrid_box import HybridBox
from ue_rl.spaces.tree import Branch, Leaf, LeafKind, Space, box
from ue_rl.spec import ActionKind, EnvSpec, ImageSpec

__all__ = ["ActionWriter", "action_space", "batched", "gymnasium_space", "observation_space", "observation_tree"]

# Older versions keep the order of a list of parts without being told.
_ORDER: dict[str, Any] = {"sort_keys": False} if "sort_keys" in inspect.signature(spaces.Dict).parameters else {}


def observation_tree(spec: EnvSpec, zero_based: bool = False) -> Space | None:
    """What an observation is, where it is more than one float32 row; None: it is that row.

    An image without a space of its own stands beside the row as {"image": .., "obs": ..}, or alone where the handshake
    says ONLY.

    Args:
        zero_based: for Stable-Baselines3: parts have names that its networks can give to their layers.
    """
    if spec.obs_space is not None and zero_based:
        return _renamed(spec.obs_space)
    if spec.obs_space is not None or spec.image is None:
        return spec.obs_space
    image = Leaf(LeafKind.IMAGE)
    if spec.image.only:
        return image
    low, high = spec.obs_bounds
    # in the order that Gymnasium's Dict had for them in version 1: networks join the parts in that order
    return Branch((("image", image), ("obs", box((spec.obs_size,), low, high))))


def observation_space(spec: EnvSpec, zero_based: bool = False) -> spaces.Space[Any]:
    """The engine's observation space; without OBS_SPACE a Box float32 [obs_size].

    Args:
        zero_based: choices count from 0 whatever the engine counts from, for Stable-Baselines3, which knows no start;
            see also `observation_tree`.
    """
    tree = observation_tree(spec, zero_based)
    if tree is None:
        low, high = spec.obs_bounds
        return spaces.Box(low, high, dtype=np.float32)
    made = gymnasium_space(tree, spec.image, zero_based)
    if tree is not spec.obs_space and spec.obs_space is not None:  # so that an exported file has the engine's names
        names = zip((name for name, _ in tree.parts), (name for name, _ in spec.obs_space.parts), strict=True)
        vars(made)["engine_names"] = dict(names)
    return made


def _renamed(tree: Space) -> Space:
    """`tree` with names that torch's ModuleDict takes, in which MultiInputPolicy keeps a net for each part.

    It takes no dots, and nothing that it has itself, such as `type`, `values` or `forward`: a dot becomes `_`, and `_`
    is put behind the name until it is free. Only the outermost names: SB3's policies know no Dicts in Dicts.
    """
    if not isinstance(tree, Branch) or not tree.named:
        return tree
    from torch import nn

    layers, names = nn.ModuleDict(), [name for name, _ in tree.parts]
    taken, renamed = set(names), []
    for name in names:
        safe = name.replace(".", "_")
        while hasattr(layers, safe) or (safe != name and safe in taken):
            safe += "_"
        taken.add(safe)
        renamed.append(safe)
    return tree if renamed == names else Branch(tuple(zip(renamed, (part for _, part in tree.parts), strict=True)))


def action_space(spec: EnvSpec, zero_based: bool = False) -> spaces.Space[Any]:
    """The engine's action space; Box(-1, 1) float32 [act_size] where it says nothing.

    Args:
        zero_based: as Stable-Baselines3 needs it: choices count from 0, and a Dict or Tuple is a HybridBox.
    """
    action = spec.action_spec
    if action.space is not None:
        if action.kind is ActionKind.HYBRID and zero_based:
            return HybridBox(action.space)
        return gymnasium_space(action.space, None, zero_based)
    if action.kind is ActionKind.BOX:
        return spaces.Box(*action.bounds, dtype=np.float32)
    if action.kind is ActionKind.DISCRETE:
        return _discrete((), action.counts, action.starts, zero_based)
    if action.kind is ActionKind.MULTI_DISCRETE:
        return _discrete((action.size,), action.counts, action.starts, zero_based)
    return spaces.MultiBinary(len(action.counts))


def batched(space: spaces.Space[Any], n: int) -> spaces.Space[Any]:
    """The space of `n` values at once; Gymnasium's own function sorts a Dict's keys in versions before 1.3."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(name, batched(part, n)) for name, part in space.spaces.items()], **_ORDER)
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([batched(part, n) for part in space.spaces])
    return batch_space(space, n)


def gymnasium_space(tree: Space, image: ImageSpec | None = None, zero_based: bool = False) -> spaces.Space[Any]:
    """The Gymnasium space of a tree; `image` is what its IMAGE leaf stands for."""
    if isinstance(tree, Branch):
        parts = [(name, gymnasium_space(part, image, zero_based)) for name, part in tree.parts]
        return spaces.Dict(parts, **_ORDER) if tree.named else spaces.Tuple([part for _, part in parts])
    if tree.kind is LeafKind.IMAGE:
        assert image is not None  # EnvSpec has checked that
        return spaces.Box(0, 255, image.shape, np.uint8)
    if tree.kind is LeafKind.BOX:
        dtype = np.dtype(tree.dtype)
        low, high = (np.full(tree.size, bound, dtype).reshape(tree.shape) for bound in (tree.low, tree.high))
        return spaces.Box(low, high, tree.shape, dtype.type)
    if tree.kind is LeafKind.MULTI_BINARY:
        return spaces.MultiBinary(tree.size if len(tree.shape) == 1 else tree.shape)
    return _discrete(tree.shape, tree.counts, tree.starts, zero_based)


def _discrete(
    shape: tuple[int, ...], counts: tuple[int, ...], starts: tuple[int, ...], zero_based: bool
) -> spaces.Discrete | spaces.MultiDiscrete:
    """A Discrete (of no shape) or a MultiDiscrete; one that counts from 0 where the engine does not says so.

    `engine_starts` is that note, int64 [size]: a model keeps its spaces, and its exported file counts as the engine.
    """
    first = np.zeros(len(counts), np.int64) if zero_based or not starts else np.array(starts, np.int64)
    made: spaces.Discrete | spaces.MultiDiscrete
    if not shape:
        made = spaces.Discrete(counts[0], start=int(first[0]))
    else:
        made = spaces.MultiDiscrete(np.array(counts, np.int64).reshape(shape), start=first.reshape(shape))
    if zero_based and starts:
        vars(made)["engine_starts"] = np.array(starts, np.int64)
    return made
