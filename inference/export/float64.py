"""A policy in float64: its own code, on numbers with twice the digits."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch as th
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

_SINGLE = (th.float32, th.float16, th.bfloat16)


class _Doubled(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it no operation gives or takes float32: what code asks for in float32 it gets in float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = {name: th.float64 if value in _SINGLE else value for name, value in (kwargs or {}).items()}
        return _double(func(*_double(args), **_double(named)))


@contextmanager
def in_float64() -> Iterator[None]:
    """Within it torch computes in float64, without gradients."""
    with th.no_grad(), _Doubled():  # type: ignore[no-untyped-call]
        yield


def doubled(model: Any) -> Any:
    """What acts as `model` does, in float64: a copy of its policy in a model that is otherwise the same.

    Args:
        model: of Stable-Baselines3, or anything with a `policy`; one with a method `in_float64` makes its own.
    """
    if hasattr(model, "in_float64"):
        return model.in_float64()
    twin = copy.copy(model)
    twin.policy = doubled_net(model.policy)
    return twin


def doubled_net(net: nn.Module) -> nn.Module:
    """A copy of `net` with parameters and buffers in float64."""
    # torch refuses to copy what was computed with gradients, such as gSDE's last noise. Its copy stands in the memo.
    memo = {id(tensor): tensor.detach().clone() for tensor in _computed_tensors(net)}
    return copy.deepcopy(net, memo).double()


def doubled_array(array: Any) -> Any:
    """NumPy numbers, or a dict of such, in float64; whole ones stay as they are."""
    if isinstance(array, dict):
        return {name: doubled_array(part) for name, part in array.items()}
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    return array


def _computed_tensors(net: nn.Module) -> Iterator[th.Tensor]:
    """The tensors in `net`, and in objects that it holds, that have been computed from others with gradients."""
    seen: set[int] = set()
    left: list[Any] = [net]
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, th.Tensor):
            if not value.is_leaf:
                yield value
        elif isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, (list, tuple, set)):
            left.extend(value)
        elif not isinstance(value, (type, ModuleType)):
            left.extend(getattr(value, "__dict__", {}).values())


def _double(value: Any) -> Any:
    """`value` with its tensors in float64, also those in tuples, lists and dicts.

    Written out, since torch's tree_map takes longer than the operations of a small net.
    """
    if isinstance(value, th.Tensor):
        if value.dtype in _SINGLE:
            return value.double()
        return value
    if isinstance(value, (tuple, list)):
        return type(value)([_double(part) for part in value])
    if isinstance(value, dict):
        return {name: _double(part) for name, part in value.items()}
    return value
