"""Activation functions, and what they make of a gradient; both work in place."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch

from ue_rl.training.numpy_learner.parameters import Floats


class ActivationFunction(ABC):
    """y = f(x), by numbers alone."""

    @abstractmethod
    def apply(self, x: Floats) -> None:
        """Replaces x by f(x)."""

    @abstractmethod
    def backward(self, y: Floats, gradient: Floats) -> None:
        """Replaces the gradient with respect to y = f(x), of the same shape, by the one with respect to x.

        What y holds afterwards is no longer of use.
        """


class HyperbolicTangent(ActivationFunction):
    """torch.nn.Tanh."""

    def apply(self, x: Floats) -> None:
        """See ActivationFunction."""
        np.tanh(x, out=x)

    def backward(self, y: Floats, gradient: Floats) -> None:
        """See ActivationFunction."""
        np.multiply(y, y, out=y)
        np.subtract(1, y, out=y)
        gradient *= y


class RectifiedLinear(ActivationFunction):
    """torch.nn.ReLU."""

    def apply(self, x: Floats) -> None:
        """See ActivationFunction."""
        np.maximum(x, 0, out=x)

    def backward(self, y: Floats, gradient: Floats) -> None:
        """See ActivationFunction."""
        gradient *= y > 0


class LeakyRectifiedLinear(ActivationFunction):
    """torch.nn.LeakyReLU.

    Args:
        slope: of negative numbers; positive, so that the sign of y is that of x.
    """

    def __init__(self, slope: float) -> None:
        self.slope = slope

    def apply(self, x: Floats) -> None:
        """See ActivationFunction."""
        np.multiply(x, self.slope, out=x, where=x < 0)

    def backward(self, y: Floats, gradient: Floats) -> None:
        """See ActivationFunction."""
        np.multiply(gradient, self.slope, out=gradient, where=y <= 0)


class ExponentialLinear(ActivationFunction):
    """torch.nn.ELU.

    Args:
        alpha: of x that is far below 0, f(x) is -alpha; positive.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def apply(self, x: Floats) -> None:
        """See ActivationFunction."""
        below = np.minimum(x, 0)
        np.expm1(below, out=below)
        below *= self.alpha
        np.maximum(x, 0, out=x)
        x += below

    def backward(self, y: Floats, gradient: Floats) -> None:
        """See ActivationFunction."""
        above = y > 0
        y += self.alpha
        y[above] = 1
        gradient *= y


def activation_of(module: torch.nn.Module) -> ActivationFunction | None:
    """The same function in NumPy; None where there is none."""
    kind = type(module)
    if kind is torch.nn.Tanh:
        return HyperbolicTangent()
    if kind is torch.nn.ReLU:
        return RectifiedLinear()
    if isinstance(module, torch.nn.LeakyReLU) and module.negative_slope > 0:
        return LeakyRectifiedLinear(module.negative_slope)
    if isinstance(module, torch.nn.ELU) and module.alpha > 0:
        return ExponentialLinear(module.alpha)
    return None
