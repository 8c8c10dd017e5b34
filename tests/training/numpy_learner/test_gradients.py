"""Gradients, log-probabilities and entropies are those of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.training.numpy_learner.cases import Case, case, evaluated, gradient, in_float32, torch_loss
from ue_rl.training.numpy_learner.binding import Binding
from ue_rl.training.numpy_learner.losses import normalized_advantages
from ue_rl.training.numpy_learner.parameters import Floats
from ue_rl.training.numpy_learner.updates import MinibatchLoss

PARTS = range(40)


def autograd(given: Case) -> dict[int, Any]:
    """By the parameter's id, in float64."""
    given.policy.zero_grad()
    torch_loss(given).backward()
    return {id(parameter): parameter.grad for parameter in given.policy.parameters()}


def in_order(binding: Binding, gradients: dict[int, Any]) -> Floats:
    return np.concatenate([gradients[id(parameter)].numpy().ravel() for parameter in binding.flat.parameters])


def sum_of_norms(binding: Binding, given: Case) -> float:
    """Of the gradients of the samples, whose mean the gradient is."""
    batch, hyper = given.batch, {**given.hyper, "normalize": False}
    if given.hyper["normalize"]:
        batch = batch._replace(advantages=normalized_advantages(batch.advantages))
    n = len(batch.returns)
    ones = [batch.each(lambda part, k=k: part[k : k + 1]) for k in range(n)]
    return sum(float(np.linalg.norm(gradient(binding, one, hyper))) for one in ones)


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.exhaustive) for k in PARTS[1:])])
def test_a_gradient_is_autograds(part: int) -> None:
    """In float64 to the last digits; in float32 as exactly as its numbers are."""
    for number in range(25 * part, 25 * part + 25):
        given = case(number)
        expected = autograd(given)
        binding = Binding(given.policy)
        assert binding.dtype == np.float64
        wanted = in_order(binding, expected)
        found = gradient(binding, given.batch, given.hyper)
        assert np.linalg.norm(found - wanted) <= 1e-9 * np.linalg.norm(wanted), number
        scale = sum_of_norms(binding, given)
        given.policy.float()
        rounded = gradient(Binding(given.policy), in_float32(given.batch), given.hyper)
        assert rounded.dtype == np.float32
        assert np.linalg.norm(rounded - wanted) <= 1e-5 * scale, number


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.exhaustive) for k in PARTS[1:4])])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_log_probabilities_and_entropies_are_torchs(dtype: Any, part: int) -> None:
    for number in range(25 * part, 25 * part + 25):
        given = case(number)
        values, log_probs, entropies = (each.detach().numpy() for each in evaluated(given.policy, given.batch))
        batch = given.batch
        if dtype == np.float32:
            given.policy.float()
            batch = in_float32(batch)
        binding = Binding(given.policy)
        outputs, found, _ = binding.networks.forward(batch.features)
        mine = binding.distribution.evaluate(outputs, batch.actions, batch.masks)
        for got, want in ((found[:, 0], values), (mine[0], log_probs), (mine[1], entropies)):
            assert got.dtype == dtype
            assert (np.abs(got - want) <= 1e-6 * np.maximum(1, np.abs(want))).all(), number
        np.testing.assert_array_equal(binding.networks.values(batch.features), found)


def test_the_logged_loss_is_torchs() -> None:
    for number in range(25):
        given = case(number)
        want = torch_loss(given).item()
        assert MinibatchLoss(Binding(given.policy), given.batch, **given.hyper).loss == pytest.approx(want, rel=1e-9)
