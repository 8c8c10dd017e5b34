"""Steps of Adam and RMSprop over flat parameters, with the state in the policy's optimizer of torch.

The state is views of flat arrays, so what `optimizer.state_dict()` gives is always the newest, and torch can go on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

from ue_rl.training.numpy_learner.parameters import FlatParameters, Floats


class FlatOptimizer(ABC):
    """An optimizer of torch, whose steps NumPy takes.

    Args:
        optimizer: has one group of parameters, all of which are in `flat`.
    """

    averages: tuple[str, ...]  # the names of the state's arrays of a parameter's shape

    def __init__(self, optimizer: torch.optim.Optimizer, flat: FlatParameters) -> None:
        self._optimizer = optimizer
        self._flat = flat
        self._arrays = {name: np.zeros_like(flat.values) for name in self.averages}
        # One counter for each parameter: torch, too, counts them one by one.
        self._counts = np.zeros(len(flat.parameters), np.float32)
        self._scratch = np.empty_like(flat.values)
        self._denominator = np.empty_like(flat.values)
        self._take_over()

    def holds(self) -> bool:
        """Is the state that the optimizer has still in these arrays? One that was loaded is not."""
        for parameter, tensors in zip(self._flat.parameters, self._tensors, strict=True):
            state = self._optimizer.state.get(parameter, {})
            if any(state.get(name) is not tensor for name, tensor in tensors):
                return False
        return True

    def step(self, max_norm: float) -> None:
        """Clips the gradient in `flat` to a norm of `max_norm`, and moves the parameters along it."""
        gradient = self._flat.gradient
        norm = float(np.sqrt(np.dot(gradient, gradient)))
        share = max_norm / (norm + 1e-6)
        if not share >= 1:  # a norm that is no number, too: as with torch, nothing of the gradient is one then
            gradient *= share
        self._counts += 1
        self._move(self._optimizer.param_groups[0], gradient)

    @abstractmethod
    def _move(self, group: dict[str, Any], gradient: Floats) -> None:
        """A step with the hyperparameters of `group`; the counters have it already."""

    def _take_over(self) -> None:
        self._tensors: list[list[tuple[str, torch.Tensor]]] = []
        for number, parameter in enumerate(self._flat.parameters):
            state = self._optimizer.state[parameter]
            self._counts[number] = float(state.get("step", 0))
            tensors = [("step", torch.from_numpy(self._counts[number : number + 1]).reshape(()))]
            for name, array in self._arrays.items():
                view = self._flat.view(array, parameter)
                if name in state:
                    view[...] = state[name].detach().numpy()
                tensors.append((name, torch.from_numpy(view)))
            state.update(tensors)
            self._tensors.append(tensors)


class AdamOptimizer(FlatOptimizer):
    """torch.optim.Adam without weight decay and variants."""

    averages = ("exp_avg", "exp_avg_sq")

    def _move(self, group: dict[str, Any], gradient: Floats) -> None:
        first, second = group["betas"]
        mean = self._arrays["exp_avg"]
        square = self._arrays["exp_avg_sq"]
        change = self._scratch
        np.subtract(gradient, mean, out=change)
        change *= 1 - first
        mean += change
        np.multiply(gradient, gradient, out=change)
        change *= 1 - second
        square *= second
        square += change
        denominator = self._denominator
        np.sqrt(square, out=denominator)
        rate, root = self._corrections(group["lr"], first, second)
        denominator /= root
        denominator += group["eps"]
        np.divide(mean, denominator, out=change)
        change *= rate
        self._flat.values -= change

    def _corrections(self, learning_rate: float, first: float, second: float) -> tuple[Any, Any]:
        """(the step's size, what the root of the squares is divided by): numbers, or [size] where counters differ."""
        counts = self._counts.astype(np.float64)
        if (counts == counts[0]).all():
            count = float(counts[0])
            return learning_rate / (1 - first**count), (1 - second**count) ** 0.5
        of_each = np.repeat(counts, self._flat.sizes)
        dtype = self._flat.values.dtype
        rate = (learning_rate / (1 - first**of_each)).astype(dtype)
        return rate, np.sqrt(1 - second**of_each).astype(dtype)


class RMSpropOptimizer(FlatOptimizer):
    """torch.optim.RMSprop without momentum, centring and weight decay."""

    averages = ("square_avg",)

    def _move(self, group: dict[str, Any], gradient: Floats) -> None:
        alpha = group["alpha"]
        square = self._arrays["square_avg"]
        change = self._scratch
        np.multiply(gradient, gradient, out=change)
        change *= 1 - alpha
        square *= alpha
        square += change
        denominator = self._denominator
        np.sqrt(square, out=denominator)
        denominator += group["eps"]
        np.divide(gradient, denominator, out=change)
        change *= group["lr"]
        self._flat.values -= change


# What an argument of an optimizer must be for NumPy to take its steps.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "weight_decay": (0,), "amsgrad": (False,), "maximize": (False,), "momentum": (0,), "centered": (False,),
    "capturable": (False,), "differentiable": (False,), "decoupled_weight_decay": (False,),
}  # fmt: skip
_KINDS: dict[type[torch.optim.Optimizer], type[FlatOptimizer]] = {
    torch.optim.Adam: AdamOptimizer,
    torch.optim.RMSprop: RMSpropOptimizer,
}


def optimizer_of(optimizer: torch.optim.Optimizer, flat: FlatParameters) -> FlatOptimizer:
    """The same optimizer in NumPy; `why_not_optimizer` has found nothing against it."""
    return _KINDS[type(optimizer)](optimizer, flat)


def why_not_optimizer(optimizer: torch.optim.Optimizer) -> str | None:
    """Why NumPy does not take this optimizer's steps; None: it does."""
    name = type(optimizer).__name__
    if type(optimizer) not in _KINDS:
        return f"the optimizer is {name}, not Adam or RMSprop"
    if len(optimizer.param_groups) != 1:
        return "the optimizer has several groups of parameters"
    group = optimizer.param_groups[0]
    if not isinstance(group["lr"], (int, float)):
        return "the learning rate is a tensor"
    for argument, allowed in _PLAIN.items():
        if group.get(argument, allowed[0]) not in allowed:
            return f"{name} has {argument}={group[argument]}"
    return None
