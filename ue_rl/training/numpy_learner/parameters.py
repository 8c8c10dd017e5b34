"""The parameters of a policy as views of one array, and their gradient as a second one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


class FlatParameters:
    """Moves the data of `parameters` into one array: torch and NumPy see every update of the other, without a copy.

    Args:
        parameters: of one dtype, float32 or float64, on the CPU; they lie in the array in this order.

    Attributes:
        values: [size], the parameters. gradient: [size], where a backward pass writes; same dtype.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.sizes = [parameter.numel() for parameter in self.parameters]
        dtype = self.parameters[0].detach().numpy().dtype
        self.values: Floats = np.empty(sum(self.sizes), dtype)
        self.gradient: Floats = np.zeros_like(self.values)
        self._starts = np.concatenate([[0], np.cumsum(self.sizes)]).tolist()
        self._at = {id(parameter): number for number, parameter in enumerate(self.parameters)}
        for parameter in self.parameters:
            view = self.view(self.values, parameter)
            view[...] = parameter.detach().numpy()
            parameter.data = torch.from_numpy(view)
        self._addresses = [parameter.data_ptr() for parameter in self.parameters]

    def view(self, array: Floats, parameter: torch.Tensor) -> Floats:
        """The part of `array` [size] that belongs to `parameter`, in its shape."""
        at = self._at[id(parameter)]
        return array[self._starts[at] : self._starts[at + 1]].reshape(tuple(parameter.shape))

    def stacked(self, array: Floats, parameters: Sequence[torch.Tensor]) -> Floats:
        """The parts of neighbours of one shape as one view of `array`: [len(parameters), *shape]."""
        first = self._at[id(parameters[0])]
        numbers = [self._at[id(parameter)] for parameter in parameters]
        assert numbers == list(range(first, first + len(parameters)))
        start = self._starts[first]
        end = self._starts[first + len(parameters)]
        return array[start:end].reshape(len(parameters), *parameters[0].shape)

    def hold(self) -> bool:
        """Do the parameters still lie in the array? A copy, or a move to another dtype, has arrays of its own."""
        return [parameter.data_ptr() for parameter in self.parameters] == self._addresses
