"""The distributions that actions are drawn from: draws, log-probabilities, entropies, and their gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.training.numpy_learner.parameters import FlatParameters, Floats

Actions = NDArray[Any]
Masks = NDArray[np.bool_]
# (gradient with respect to the log-probabilities [n], the same for every entropy) -> with respect to the outputs.
Backward = Callable[[Floats, float], Floats]

_EXCLUDED = -1e8  # the logit of a choice that a mask excludes, as sb3-contrib has it
_ABSENT = -1e30  # of a place in the table that is no choice; below _EXCLUDED, so that a row without choices has none


class ActionDistribution(ABC):
    """What a policy's outputs say of actions; `n` is the number of observations."""

    @abstractmethod
    def draw(self, outputs: Floats, masks: Masks | None = None) -> tuple[Actions, Floats]:
        """(actions in the policy's shape and dtype, log-probabilities [n]), drawn from NumPy's global generator.

        Args:
            outputs: [n, outputs]. masks: [n, choices], true where a choice is allowed.

        Raises:
            ValueError: the outputs are no numbers.
        """

    @abstractmethod
    def evaluate(
        self, outputs: Floats, actions: Actions, masks: Masks | None = None
    ) -> tuple[Floats, Floats, Backward]:
        """(log-probabilities [n], entropies [n], the way back) of actions [n, numbers].

        Raises:
            ValueError: the outputs are no numbers.
        """


class CategoricalActions(ActionDistribution):
    """Several choices, each among choices of its own: MultiDiscrete, and MultiBinary with masks.

    Args:
        counts: how many choices each number of an action has.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self._counts = np.array(counts)
        self._width = int(self._counts.max())
        inside = np.arange(self._width) < self._counts[:, None]
        # Where each output stands in a table of one row for each number; None: the outputs are that table.
        if inside.all():
            self._places = None
        else:
            self._places = np.flatnonzero(inside)

    def draw(self, outputs: Floats, masks: Masks | None = None) -> tuple[Actions, Floats]:
        """See ActionDistribution."""
        weights, sums, shifted = self._softmax(outputs, masks)
        # The smallest of exponential numbers with these rates is each one with the probability of its rate's share.
        rivals = np.random.standard_exponential(weights.shape)
        chosen = (weights / rivals).argmax(axis=-1)
        log_probs = _picked(shifted, chosen) - np.log(sums[..., 0])
        return chosen, _checked(np.add.reduce(log_probs, axis=1))

    def evaluate(
        self, outputs: Floats, actions: Actions, masks: Masks | None = None
    ) -> tuple[Floats, Floats, Backward]:
        """See ActionDistribution."""
        weights, sums, shifted = self._softmax(outputs, masks)
        chosen = np.asarray(actions).reshape(len(outputs), len(self._counts)).astype(np.intp, copy=False)
        shares = weights
        shares /= sums
        logs = shifted
        logs -= np.log(sums)
        log_probs = _picked(logs, chosen)
        surprises = shares * logs
        allowed = None
        if masks is not None:
            allowed = self._table(masks, False)
        if allowed is not None:
            surprises *= allowed
        entropies = -np.add.reduce(surprises, axis=-1)

        def backward(of_log_probs: Floats, of_entropies: float) -> Floats:
            gradient = shares * -of_log_probs[:, None, None]
            rows = np.arange(gradient.shape[0] * gradient.shape[1])
            gradient.reshape(-1, self._width)[rows, chosen.reshape(-1)] += np.repeat(of_log_probs, len(self._counts))
            if of_entropies != 0:
                lost = shares * entropies[..., None]
                lost += surprises
                lost *= of_entropies
                gradient -= lost
            if allowed is not None:
                gradient *= allowed
            return self._row(gradient)

        return _checked(np.add.reduce(log_probs, axis=1)), np.add.reduce(entropies, axis=1), backward

    def _softmax(self, outputs: Floats, masks: Masks | None) -> tuple[Floats, Floats, Floats]:
        """(numbers in proportion to the probabilities, their sums [n, numbers, 1], their logarithms)."""
        if masks is not None:
            outputs = np.where(masks, outputs, outputs.dtype.type(_EXCLUDED))
        table = self._table(outputs, _ABSENT)
        shifted = table - np.maximum.reduce(table, axis=-1, keepdims=True)
        weights = np.exp(shifted)
        return weights, np.add.reduce(weights, axis=-1, keepdims=True), shifted

    def _table(self, row: NDArray[Any], absent: float) -> NDArray[Any]:
        """[n, outputs] as [n, numbers, width], with `absent` where there is no choice."""
        if self._places is None:
            return row.reshape(len(row), len(self._counts), self._width)
        table = np.full((len(row), len(self._counts) * self._width), absent, row.dtype)
        table[:, self._places] = row
        return table.reshape(len(row), len(self._counts), self._width)

    def _row(self, table: Floats) -> Floats:
        """The reverse of `_table`."""
        row = table.reshape(len(table), -1)
        if self._places is None:
            return row
        return row[:, self._places]


class SingleChoiceActions(ActionDistribution):
    """One choice: Discrete. As CategoricalActions, with fewer calls, of which a step of a few envs consists."""

    def draw(self, outputs: Floats, masks: Masks | None = None) -> tuple[Actions, Floats]:
        """See ActionDistribution."""
        weights, sums, shifted = self._softmax(outputs, masks)
        chosen = (weights / np.random.standard_exponential(weights.shape)).argmax(axis=1)
        log_probs: Floats = shifted[np.arange(len(chosen)), chosen]
        log_probs -= np.log(sums[:, 0])
        return chosen, _checked(log_probs)

    def evaluate(
        self, outputs: Floats, actions: Actions, masks: Masks | None = None
    ) -> tuple[Floats, Floats, Backward]:
        """See ActionDistribution."""
        shares, sums, logs = self._softmax(outputs, masks)
        shares /= sums
        logs -= np.log(sums)
        rows = np.arange(len(outputs))
        chosen = np.asarray(actions).reshape(-1).astype(np.intp, copy=False)
        surprises = shares * logs
        if masks is not None:
            surprises *= masks
        entropies = -np.add.reduce(surprises, axis=1)

        def backward(of_log_probs: Floats, of_entropies: float) -> Floats:
            gradient: Floats = shares * -of_log_probs[:, None]
            gradient[rows, chosen] += of_log_probs
            if of_entropies != 0:
                lost = shares * entropies[:, None]
                lost += surprises
                lost *= of_entropies
                gradient -= lost
            if masks is not None:
                gradient *= masks
            return gradient

        return _checked(logs[rows, chosen]), entropies, backward

    def _softmax(self, outputs: Floats, masks: Masks | None) -> tuple[Floats, Floats, Floats]:
        """(numbers in proportion to the probabilities, their sums [n, 1], their logarithms)."""
        if masks is not None:
            outputs = np.where(masks, outputs, outputs.dtype.type(_EXCLUDED))
        shifted = outputs - np.maximum.reduce(outputs, axis=1, keepdims=True)
        weights = np.exp(shifted)
        return weights, np.add.reduce(weights, axis=1, keepdims=True), shifted


class BernoulliActions(ActionDistribution):
    """Flags, each on by itself: MultiBinary."""

    def draw(self, outputs: Floats, masks: Masks | None = None) -> tuple[Actions, Floats]:
        """See ActionDistribution."""
        probabilities = _sigmoid(outputs)
        actions = (np.random.random_sample(outputs.shape) < probabilities).astype(outputs.dtype)
        log_probs = actions * outputs - np.logaddexp(0, outputs)
        return actions, _checked(np.add.reduce(log_probs, axis=1))

    def evaluate(
        self, outputs: Floats, actions: Actions, masks: Masks | None = None
    ) -> tuple[Floats, Floats, Backward]:
        """See ActionDistribution."""
        chosen = np.asarray(actions).astype(outputs.dtype, copy=False)
        probabilities = _sigmoid(outputs)
        normalizers = np.logaddexp(0, outputs)
        log_probs = chosen * outputs - normalizers
        entropies = normalizers - probabilities * outputs

        def backward(of_log_probs: Floats, of_entropies: float) -> Floats:
            gradient = (chosen - probabilities) * of_log_probs[:, None]
            if of_entropies != 0:
                gradient -= of_entropies * outputs * probabilities * (1 - probabilities)
            return gradient

        return _checked(np.add.reduce(log_probs, axis=1)), np.add.reduce(entropies, axis=1), backward


class GaussianActions(ActionDistribution):
    """Numbers, each by itself around an output, with deviations that are parameters: Box, hybrid actions.

    Args:
        log_deviations: [numbers], a view of the parameters. gradient: [numbers], where the way back writes.
        shape: of an action.
    """

    def __init__(self, log_deviations: Floats, gradient: Floats, shape: Sequence[int]) -> None:
        self._log_deviations = log_deviations
        self._gradient = gradient
        self._shape = tuple(shape)

    def draw(self, outputs: Floats, masks: Masks | None = None) -> tuple[Actions, Floats]:
        """See ActionDistribution."""
        noise = np.random.standard_normal(outputs.shape).astype(outputs.dtype, copy=False)
        actions = outputs + noise * np.exp(self._log_deviations)
        return _checked(actions).reshape(len(outputs), *self._shape), self._log_probs(noise)

    def evaluate(
        self, outputs: Floats, actions: Actions, masks: Masks | None = None
    ) -> tuple[Floats, Floats, Backward]:
        """See ActionDistribution."""
        inverse = np.exp(-self._log_deviations)
        distances = np.asarray(actions).reshape(outputs.shape) - outputs
        distances *= inverse
        entropy = np.add.reduce(self._log_deviations) + len(self._log_deviations) * (0.5 + 0.5 * math.log(2 * math.pi))
        entropies = np.full(len(outputs), entropy, outputs.dtype)

        def backward(of_log_probs: Floats, of_entropies: float) -> Floats:
            gradient = distances * of_log_probs[:, None]
            np.add.reduce(gradient * distances, axis=0, out=self._gradient)
            self._gradient -= np.add.reduce(of_log_probs)
            self._gradient += of_entropies * len(outputs)
            gradient *= inverse
            return gradient

        return _checked(self._log_probs(distances)), entropies, backward

    def _log_probs(self, distances: Floats) -> Floats:
        """[n] of distances [n, numbers] from the outputs, in deviations."""
        constant = np.add.reduce(self._log_deviations) + len(self._log_deviations) * 0.5 * math.log(2 * math.pi)
        log_probs: Floats = np.add.reduce(distances * distances, axis=1)
        log_probs *= -0.5
        log_probs -= constant
        return log_probs


def distribution_of(policy: Any, flat: FlatParameters, masked: bool) -> ActionDistribution | None:
    """That of the policy's action space; None where there is none in NumPy.

    Args:
        masked: the policy is one of sb3-contrib's, whose flags are choices between two.
    """
    space = policy.action_space
    if isinstance(space, spaces.Discrete):
        return SingleChoiceActions()
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return CategoricalActions(space.nvec.tolist())
    if isinstance(space, spaces.MultiBinary) and isinstance(space.n, int):
        if masked:
            return CategoricalActions([2] * space.n)
        return BernoulliActions()
    if isinstance(space, spaces.Box):
        log_deviations = flat.view(flat.values, policy.log_std)
        return GaussianActions(log_deviations, flat.view(flat.gradient, policy.log_std), space.shape)
    return None


def _picked(table: Floats, chosen: NDArray[np.intp]) -> Floats:
    """Of [n, numbers, width] the entries [n, numbers] that are chosen."""
    width = table.shape[-1]
    flat = table.reshape(-1)
    picked: Floats = flat[np.arange(0, flat.size, width) + chosen.reshape(-1)]
    return picked.reshape(chosen.shape)


def _sigmoid(x: Floats) -> Floats:
    """By the tangent, which overflows nowhere."""
    return 0.5 * np.tanh(0.5 * x) + 0.5  # type: ignore[no-any-return]


def _checked(values: Floats) -> Floats:
    """`values`, which follow from the policy's outputs.

    Raises:
        ValueError: one of them is NaN.
    """
    # The sum is a quick test; that of numbers may be none itself, where infinities are among them.
    if np.isnan(np.add.reduce(values, axis=None)) and np.isnan(values).any():
        raise ValueError("the policy's outputs are no numbers (NaN): its weights or an observation are none")
    return values
