"""The networks of an actor-critic policy: what they give for features, and the gradient of a loss.

Networks of the same shape are computed as one stack: one call of NumPy serves both, and calls are what small networks
cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ue_rl.training.numpy_learner.activations import ActivationFunction, activation_of
from ue_rl.training.numpy_learner.parameters import FlatParameters, Floats


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


class StackedNetworks:
    """The hidden layers of several networks of one shape, which are given the same features.

    Args:
        modules: one torch.nn.Sequential for each network, of Linear and activation in turn.
    """

    def __init__(self, modules: Sequence[torch.nn.Sequential], flat: FlatParameters) -> None:
        self.count = len(modules)
        self._layers = [_layer(linears, module, flat) for linears, module in _by_layer(modules)]

    def forward(self, features: Floats) -> list[Floats]:
        """The features [n, inputs], and the outputs of each layer for them: [networks, n, outputs]."""
        outputs = [features]  # once for all networks: the products spread them
        for layer in self._layers:
            after = np.matmul(outputs[-1], layer.transposed)
            after += layer.biases
            layer.activation.apply(after)
            outputs.append(after)
        return outputs

    def backward(self, outputs: list[Floats], gradient: Floats) -> None:
        """Writes the gradients of the parameters.

        Args:
            outputs: what `forward` gave. gradient: with respect to the last of them, [networks, n, outputs]; it is
                overwritten.
        """
        for number in range(len(self._layers) - 1, -1, -1):
            layer = self._layers[number]
            layer.activation.backward(outputs[number + 1], gradient)
            np.matmul(gradient.swapaxes(1, 2), outputs[number], out=layer.weight_gradient)
            np.add.reduce(gradient, axis=1, keepdims=True, out=layer.bias_gradient)
            if number > 0:
                gradient = np.matmul(gradient, layer.weights)


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

    def backward(self, hidden: Floats, gradient: Floats, hidden_gradient: Floats) -> None:
        """Writes the gradients of the parameters, and the one with respect to hidden [n, inputs].

        Args:
            gradient: with respect to the outputs, [n, outputs].
        """
        np.dot(gradient.T, hidden, out=self._weight_gradient)
        np.add.reduce(gradient, axis=0, out=self._bias_gradient)
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
        """(action outputs [n, outputs], values [n, 1], what `backward` needs) of features [n, inputs]."""
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
            layers: what `forward` gave. action_gradient: of its action outputs, [n, outputs]. value_gradient: [n, 1].
        """
        actor_hidden = _hidden(layers[0], 0)
        critic_hidden = _hidden(layers[-1], -1)
        gradients = [
            np.empty((stack.count, *_hidden(each, 0).shape), actor_hidden.dtype)
            for stack, each in zip(self._stacks, layers, strict=True)
        ]
        self._action.backward(actor_hidden, action_gradient, gradients[0][0])
        self._value.backward(critic_hidden, value_gradient, gradients[-1][-1])
        for stack, outputs, gradient in zip(self._stacks, layers, gradients, strict=True):
            stack.backward(outputs, gradient)


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
