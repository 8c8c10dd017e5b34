"""Classes that a config may name in policy_kwargs: activation_fn: nn.ReLU. No torch, until one is named."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from ue_rl.system.errors import ConfigurationError, nearest

_ACTIVATIONS = (
    "ELU", "GELU", "Identity", "LeakyReLU", "Mish", "ReLU", "SELU", "SiLU", "Sigmoid", "Softplus", "Tanh",
)  # fmt: skip
_OPTIMIZERS = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "SGD")
# Name -> the module that has it.
CLASSES = {
    **{f"nn.{name}": "torch.nn" for name in _ACTIVATIONS},
    **{f"optim.{name}": "torch.optim" for name in _OPTIMIZERS},
    "RMSpropTFLike": "stable_baselines3.common.sb2_compat.rmsprop_tf_like",
    "CombinedExtractor": "stable_baselines3.common.torch_layers",
    "FlattenExtractor": "stable_baselines3.common.torch_layers",
    "NatureCNN": "stable_baselines3.common.torch_layers",
}
_OF_CLASSES = ("activation_fn", "optimizer_class", "features_extractor_class")  # arguments whose value is a class


def policy_arguments(value: Any, field: str) -> Any:
    """`policy_kwargs` as SB3 takes them, with the classes that are named in them; None as it is.

    Raises:
        ConfigurationError: no mapping, or a class is named that a config may not name; it names `field`.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            "not arguments of a policy", field=field, expected="a mapping, such as {net_arch: [64, 64]}", got=value
        )
    arguments = dict(value)
    for name in _OF_CLASSES:
        if isinstance(arguments.get(name), str):
            arguments[name] = _class(arguments[name], f"{field}.{name}")
    return arguments


def _class(name: str, field: str) -> Any:
    short = name.removeprefix("torch.").removeprefix("th.")
    if short not in CLASSES:
        raise ConfigurationError(
            "no class that a config may name",
            field=field,
            got=name,
            expected=", ".join(CLASSES),
            cure=nearest(short, CLASSES) or "a class of yours needs a script of yours",
        )
    return getattr(importlib.import_module(CLASSES[short]), short.rpartition(".")[2])
