"""The networks of an actor-critic policy: what they give for features, and the gradient of a loss.

Networks of the same shape are computed as one stack: one call of NumPy serves both, and calls are what small networks
cost. The arrays between the layers are used again by the next batch of the same size: new ones of this size come from
the system each time, page by page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ue_rl.training.numpy_learner.activations import ActivationFunction, activation_of
from ue_rl.training.numpy_learner.parameters import FlatParameters, Floats

_SIZES = 4  # of batches whose arrays are kept: a step's, a minibatch's, that of the last minibatch, one cut episode's


class DenseLayer(NamedTuple):
    """A layer of several networks of one shape; all arrays are views of FlatParameters.

    Attributes:
        weights: [networks, outputs, inputs]. transposed: the same, [networks, inputs, outputs].
        biases: [networks, 1, outputs].
        weight_gradient, bias_gradient: of the same shapes, where the backward pass writes.
        activation: of the outputs.
    """

    weights: Floats
    transposed: Floats
    biases: Floats
    weight_gradient: Floats
    bias_gradient: Floats
    activation: ActivationFunction


class BatchArrays(NamedTuple):
    """What a stack writes for batches of one size.

    Attributes:
        outputs: of each layer, [networks, n, outputs]. gradients: of the same shapes, with respect to them.
    """

    outputs: list[Floats]
    gradients: list[Floats]


class StackedNetworks:
    """The hidden layers of several networks of one shape, which are given the same features.

    Args:
        modules: one torch.nn.Sequential for each network, of Linear and activation in turn.
    """

    def __init__(self, modules: Sequence[torch.nn.Sequential], flat: FlatParameters) -> None:
        self.count = len(modules)
        self._layers = [_layer(linears, module, flat) for linears, module in _by_layer(modules)]
        self._arrays: dict[int, BatchArrays] = {}  # by the batch's size

    def forward(self, features: Floats) -> list[Floats]:
        """The features [n, inputs], and the outputs of each layer for them: [networks, n, outputs].

        The outputs are overwritten by the next call with as many features.
        """
        outputs = [features]  # once for all networks: the products spread them
        for layer, after in zip(self._layers, self._arrays_for(len(features)).outputs, strict=True):
            np.matmul(outputs[-1], layer.transposed, out=after)
            np.add(after, layer.biases, out=after)
            layer.activation.apply(after)
            outputs.append(after)
        return outputs

    def last_gradient(self, n: int, network: int) -> Floats | None:
        """Where `backward` is given the gradient with respect to a network's last outputs; None: it has no layers."""
        if not self._layers:
            return None
        gradient: Floats = self._arrays_for(n).gradients[-1][network]
        return gradient

    def backward(self, outputs: list[Floats]) -> None:
        """Writes the gradients of the parameters; `last_gradient` has that of the last outputs.

        Args:
            outputs: what `forward` gave; all but the features are overwritten.
        """
        if not self._layers:
            return
        gradients = self._arrays_for(len(outputs[0])).gradients
        for number in range(len(self._layers) - 1, -1, -1):
            layer = self._layers[number]
            gradient = gradients[number]
            layer.activation.backward(outputs[number + 1], gradient)
            np.matmul(gradient.swapaxes(1, 2), outputs[number], out=layer.weight_gradient)
            np.add.reduce(gradient, axis=1, keepdims=True, out=layer.bias_gradient)
            if number > 0:
                np.matmul(gradient, layer.weights, out=gradients[number - 1])

    def _arrays_for(self, n: int) -> BatchArrays:
        held = self._arrays.get(n)
        if held is None:
            if len(self._arrays) >= _SIZES:
                self._arrays.clear()
            outputs = [np.empty((self.count, n, layer.weights.shape[1]), layer.weights.dtype) for layer in self._layers]
            held = BatchArrays(outputs, [np.empty_like(output) for output in outputs])
            self._arrays[n] = held
        return held


class OutputLayer:
    """A layer without an activation; what it gives of hidden layers is what the network says.

    Args:
        module: a torch.nn.Linear.
    """

    def __init__(self, module: torch.nn.Linear, flat: FlatParameters) -> None:
        self._weights = flat.view(flat.values, module.weight)
        self._biases = flat.view(flat.values, module.bias)
        self._weight_gradient = flat.view(flat.gradient, module.weight)
        self._bias_gradient = flat.view(flat.gradient, module.bias)

    def forward(self, hidden: Floats) -> Floats:
        """[n, outputs] of hidden [n, inputs]."""
        outputs: Floats = np.dot(hidden, self._weights.T)
        outputs += self._biases
        return outputs

    def backward(self, hidden: Floats, gradient: Floats, hidden_gradient: Floats | None) -> None:
        """Writes the gradients of the parameters, and the one with respect to hidden [n, inputs].

        Args:
            gradient: with respect to the outputs, [n, outputs]. hidden_gradient: None: nobody needs it.
        """
        np.dot(gradient.T, hidden, out=self._weight_gradient)
        np.add.reduce(gradient, axis=0, out=self._bias_gradient)
        if hidden_gradient is not None:
            np.dot(gradient, self._weights, out=hidden_gradient)


class ActorCritic:
    """Both networks of a policy over its flat parameters.

    Args:
        policy: an ActorCriticPolicy whose feature extractors have no parameters.
        flat: of `parameter_order(policy)`.
    """

    def __init__(self, policy: Any, flat: FlatParameters) -> None:
        self._stacks = [StackedNetworks(modules, flat) for modules in _stacks(policy)]
        self._action = OutputLayer(policy.action_net, flat)
        self._value = OutputLayer(policy.value_net, flat)

    def forward(self, features: Floats) -> tuple[Floats, Floats, list[list[Floats]]]:
        """(action outputs [n, outputs], values [n, 1], what `backward` needs) of features [n, inputs].

        The last part is overwritten by the next call with as many features.
        """
        layers = [stack.forward(features) for stack in self._stacks]
        outputs = self._action.forward(_hidden(layers[0], 0))
        values = self._value.forward(_hidden(layers[-1], -1))
        return outputs, values, layers

    def values(self, features: Floats) -> Floats:
        """[n, 1] of features [n, inputs]."""
        return self._value.forward(_hidden(self._stacks[-1].forward(features), -1))

    def backward(self, layers: list[list[Floats]], action_gradient: Floats, value_gradient: Floats) -> None:
        """Writes the gradients of all parameters of the networks.

        Args:
            layers: what `forward` gave; it is overwritten. action_gradient: of its action outputs, [n, outputs].
            value_gradient: [n, 1].
        """
        n = len(action_gradient)
        first = self._stacks[0]
        last = self._stacks[-1]
        self._action.backward(_hidden(layers[0], 0), action_gradient, first.last_gradient(n, 0))
        self._value.backward(_hidden(layers[-1], -1), value_gradient, last.last_gradient(n, -1))
        for stack, outputs in zip(self._stacks, layers, strict=True):
            stack.backward(outputs)


def _hidden(outputs: list[Floats], network: int) -> Floats:
    """What the last layer gives one of the networks, [n, outputs]; without layers the features."""
    return outputs[0] if len(outputs) == 1 else outputs[-1][network]


def parameter_order(policy: Any) -> list[torch.nn.Parameter]:
    """All parameters of the policy, those next to each other that a stack computes together."""
    order: list[torch.nn.Parameter] = []
    for modules in _stacks(policy):
        for linears, _ in _by_layer(modules):
            order += [linear.weight for linear in linears]
            order += [linear.bias for linear in linears]
    known = {id(parameter) for parameter in order}
    order += [parameter for parameter in policy.parameters() if id(parameter) not in known]
    return order


def _stacks(policy: Any) -> list[list[torch.nn.Sequential]]:
    """The hidden layers of its networks, action before value: those that are computed together in one list."""
    actor = policy.mlp_extractor.policy_net
    critic = policy.mlp_extractor.value_net
    if same_shape(actor, critic):
        return [[actor, critic]]
    return [[actor], [critic]]


def same_shape(one: torch.nn.Sequential, other: torch.nn.Sequential) -> bool:
    """Have both networks layers of the same sizes?"""
    return [tuple(value.shape) for value in one.parameters()] == [tuple(value.shape) for value in other.parameters()]


def _by_layer(modules: Sequence[torch.nn.Sequential]) -> Iterator[tuple[list[Any], torch.nn.Module]]:
    """For each layer: the Linear of every network, and the activation that follows."""
    for linear, activation in pairwise(range(len(modules[0]))):
        if linear % 2 == 0:
            yield [module[linear] for module in modules], modules[0][activation]


def _layer(linears: list[Any], activation: torch.nn.Module, flat: FlatParameters) -> DenseLayer:
    weights = [linear.weight for linear in linears]
    biases = [linear.bias for linear in linears]
    function = activation_of(activation)
    assert function is not None
    values = flat.stacked(flat.values, weights)
    return DenseLayer(
        values,
        values.swapaxes(1, 2),
        flat.stacked(flat.values, biases)[:, None],
        flat.stacked(flat.gradient, weights),
        flat.stacked(flat.gradient, biases)[:, None],
        function,
    )
