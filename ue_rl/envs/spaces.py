"""EnvSpec -> Gymnasium spaces: what an env of the trainer's side has for observations and actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ue_rl.envs.hybrid_box import HybridBox
from ue_rl.protocol.spaces.gymnasium import gymnasium_space
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, Space, box
from ue_rl.protocol.spec import ActionKind, EnvSpec


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
    made = gymnasium_space(tree, () if spec.image is None else spec.image.shape, zero_based)
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

    layers = nn.ModuleDict()
    names = [name for name, _ in tree.parts]
    taken = set(names)
    renamed = []
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
    if action.kind is ActionKind.HYBRID and zero_based:
        return HybridBox(action.tree)
    return gymnasium_space(action.tree, (), zero_based)
