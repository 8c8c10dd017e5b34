"""Python expressions in configs, as RL Zoo writes policies' arguments: read, never run.

dict(net_arch=[64, 64], activation_fn=nn.Tanh) is literals, dict(..) and classes of a short list; anything else is
refused. No torch, until a class is named.
"""

from __future__ import annotations

import ast
import importlib
from typing import Any

from ue_rl.errors import ConfigurationError, nearest

_LAYERS = ("ELU", "GELU", "Identity", "LeakyReLU", "Mish", "ReLU", "SELU", "SiLU", "Sigmoid", "Softplus", "Tanh")
_OPTIMIZERS = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "SGD")
_SB3 = {
    "RMSpropTFLike": "stable_baselines3.common.sb2_compat.rmsprop_tf_like",
    "CombinedExtractor": "stable_baselines3.common.torch_layers",
    "FlattenExtractor": "stable_baselines3.common.torch_layers",
    "NatureCNN": "stable_baselines3.common.torch_layers",
}
# Name -> the module that has it. torch is called th there, too.
CLASSES = {
    **{f"nn.{name}": "torch.nn" for name in _LAYERS},
    **{f"optim.{name}": "torch.optim" for name in _OPTIMIZERS},
    **_SB3,
}
_OF_CLASSES = ("activation_fn", "optimizer_class", "features_extractor_class")  # arguments whose value is a class


def policy_arguments(value: Any, field: str) -> Any:
    """`policy_kwargs` as SB3 takes them, of a mapping or an expression; classes may be named in the mapping, too.

    Raises:
        ConfigurationError: see `read`.
    """
    arguments = read(value, field) if isinstance(value, str) else value
    if not isinstance(arguments, dict):
        return arguments  # SB3's signature says what it is to be
    return {
        name: read(given, f"{field}.{name}") if name in _OF_CLASSES and isinstance(given, str) else given
        for name, given in arguments.items()
    }


def read(text: str, field: str) -> Any:
    """The value of an expression.

    Raises:
        ConfigurationError: it is no Python, or more than literals, dict(..) and CLASSES; it names `field`.
    """
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, field)
    except ConfigurationError:
        raise
    except (SyntaxError, MemoryError, RecursionError, ValueError, TypeError) as error:
        raise ConfigurationError("not a Python expression", field=field, got=text, cure=str(error)) from error


def _value(node: ast.expr, field: str) -> Any:
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=parts):
            return [_value(part, field) for part in parts]
        case ast.Tuple(elts=parts):
            return tuple(_value(part, field) for part in parts)
        case ast.Dict(keys=keys, values=values) if all(keys):
            pairs = zip(keys, values, strict=True)
            return {_value(key, field): _value(value, field) for key, value in pairs if key is not None}
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=given) if all(each.arg for each in given):
            return {str(each.arg): _value(each.value, field) for each in given}
        case ast.Attribute() | ast.Name():
            return _class(ast.unparse(node), field)
    raise ConfigurationError(
        "an expression in a config is not run, and this is more than it may be",
        field=field,
        expected="numbers, words, lists, dict(..), and classes such as nn.Tanh",
        got=ast.unparse(node),
        cure="write the value itself; a class of yours needs a script of yours",
    )


def _class(name: str, field: str) -> Any:
    short = name.removeprefix("torch.").removeprefix("th.")
    if short not in CLASSES:
        raise ConfigurationError(
            "no class that a config may name", field=field, got=name, expected=", ".join(CLASSES),
            cure=nearest(short, CLASSES),
        )  # fmt: skip
    return getattr(importlib.import_module(CLASSES[short]), short.rpartition(".")[2])
