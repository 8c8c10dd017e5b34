"""Which models NumPy learns: a rule of kinds, and a sentence for each one that is left to torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.policies import ActorCriticPolicy, MultiInputActorCriticPolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor

from ue_rl.training.numpy_learner.activations import activation_of
from ue_rl.training.numpy_learner.observations import features_of
from ue_rl.training.numpy_learner.optimizers import why_not_optimizer

_ALGORITHMS: list[type[Any]] = [PPO, A2C]
_POLICIES: list[type[Any]] = [ActorCriticPolicy, MultiInputActorCriticPolicy]
_MASKABLE: list[type[Any]] = []
try:
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.maskable.policies import (
        MaskableActorCriticPolicy,
        MaskableMultiInputActorCriticPolicy,
    )

    _ALGORITHMS.append(MaskablePPO)
    _MASKABLE += [MaskableActorCriticPolicy, MaskableMultiInputActorCriticPolicy]
except ImportError:
    pass

# Beyond, both spend their time in the same products of matrices: with 64 envs of 64 numbers torch needs 1.2 times
# NumPy's CPU time for 167,000 weights, and 0.9 times for 596,000 (benchmarks/bench_learner.py --only border).
MOST_WEIGHTS = 200_000


def base_of(algorithm: type[Any]) -> type[Any] | None:
    """PPO, A2C or MaskablePPO, whichever `algorithm` is a kind of; None: it is none of them."""
    return next((base for base in _ALGORITHMS if issubclass(algorithm, base)), None)


def is_masked(policy: Any) -> bool:
    """Is it one of sb3-contrib's policies with masks?"""
    return type(policy) in _MASKABLE


def why_torch(model: Any, kinds: Sequence[type[Any]]) -> str | None:
    """Why NumPy cannot learn this model, as the end of a sentence; None: it can.

    Args:
        kinds: the classes whose methods NumPy's would stand for, in the order of their resolution.
    """
    return _why_not_algorithm(model, kinds) or why_not_policy(model.policy)


def why_slower(model: Any) -> str | None:
    """Why `--learner auto` leaves a model to torch that NumPy can learn; None: it does not."""
    weights = sum(parameter.numel() for parameter in model.policy.parameters())
    if weights > MOST_WEIGHTS:
        return f"its networks have {weights:,} weights, and beyond {MOST_WEIGHTS:,} NumPy is no faster"
    return None


def _why_not_algorithm(model: Any, kinds: Sequence[type[Any]]) -> str | None:
    base = base_of(type(model))
    if base is None:
        return f"{type(model).__name__} is not PPO, A2C or MaskablePPO"
    if getattr(model, "overlaps", False):
        return "its rollouts overlap with the engine's ticks"
    for name in ("train", "collect_rollouts"):
        owner = next(each for each in kinds if name in vars(each))
        if getattr(owner, name) is not getattr(base, name):
            return f"{owner.__name__} has a {name} of its own"
    if model.use_sde:
        return "use_sde draws its noise with torch"
    return None


def why_not_policy(policy: Any) -> str | None:
    """Why NumPy cannot compute a policy and the steps of its optimizer; None: it can."""
    kind = type(policy)
    if kind not in (*_POLICIES, *_MASKABLE):
        return f"its policy is a {kind.__name__}"
    if policy.device.type != "cpu":
        return f"its policy is on {policy.device}"
    return (
        _why_not_features(policy)
        or _why_not_networks(policy)
        or _why_not_actions(policy.action_space)
        or why_not_optimizer(policy.optimizer)
    )


def _why_not_features(policy: Any) -> str | None:
    space = policy.observation_space
    for extractor in (policy.pi_features_extractor, policy.vf_features_extractor):
        if type(extractor) not in (FlattenExtractor, CombinedExtractor):
            return f"its features come from a {type(extractor).__name__}"
        if any(True for _ in extractor.parameters()):
            return f"its {type(extractor).__name__} has parameters"
    if isinstance(space, spaces.Dict) and any(is_image_space(part) for part in space.spaces.values()):
        return "it sees pictures"
    if features_of(space, np.dtype(np.float32), policy.normalize_images) is None:
        return f"it observes a {type(space).__name__} of a form that NumPy has no features for"
    return None


def _why_not_networks(policy: Any) -> str | None:
    networks = (policy.mlp_extractor.policy_net, policy.mlp_extractor.value_net)
    modules = list(chain(*networks))
    for module in [*modules, policy.action_net, policy.value_net]:
        if module._forward_hooks or module._forward_pre_hooks:
            return "its layers have hooks"
    for module in modules:
        if not isinstance(module, torch.nn.Linear) and activation_of(module) is None:
            return f"its activation function is {type(module).__name__}"
    for network in networks:
        linears = list(network)[::2]
        if any(type(module) is not torch.nn.Linear or module.bias is None for module in linears):
            return "its networks are not layers and activations in turn"
    if any(not parameter.requires_grad for parameter in policy.parameters()):
        return "some of its parameters are frozen"
    dtypes = {parameter.dtype for parameter in policy.parameters()}
    if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64}:
        return "its parameters are not all float32"
    return None


def _why_not_actions(space: spaces.Space[Any]) -> str | None:
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim != 1:
        return "its actions are a table of choices"
    return None
