"""Actions are drawn as likely as the policy's outputs say."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from ue_rl.training.numpy_learner.distributions import (
    BernoulliActions,
    CategoricalActions,
    GaussianActions,
    SingleChoiceActions,
)

SEEDS = range(10)
DRAWS = 20_000
# A chi-square statistic is beyond these with p = 0.001.
CRITICAL = {1: 10.828, 3: 16.266, 4: 18.467, 9: 27.877}


def statistic(counts: Any, probabilities: Any) -> float:
    expected = np.asarray(probabilities) * np.sum(counts)
    return float(((counts - expected) ** 2 / expected).sum())


def softmax(logits: Any) -> Any:
    weights = np.exp(logits - np.max(logits))
    return weights / weights.sum()


@pytest.mark.parametrize("seed", SEEDS)
def test_choices(seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=5).astype(np.float32)
    np.random.seed(seed)
    actions, log_probs = SingleChoiceActions().draw(np.tile(logits, (DRAWS, 1)))
    assert actions.shape == (DRAWS,)
    assert actions.dtype == np.int64
    assert statistic(np.bincount(actions, minlength=5), softmax(logits)) < CRITICAL[4]
    np.testing.assert_allclose(log_probs, np.log(softmax(logits))[actions], rtol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_choices_among_those_that_are_allowed(seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=9).astype(np.float32)
    masks = np.array([1, 0, 0, 1, 1, 1, 1, 0, 1], bool)
    np.random.seed(seed)
    distribution = CategoricalActions([3, 2, 4])
    actions, _ = distribution.draw(np.tile(logits, (DRAWS, 1)), np.tile(masks, (DRAWS, 1)))
    assert actions.shape == (DRAWS, 3)
    assert (actions[:, 0] == 0).all()
    assert statistic(np.bincount(actions[:, 1], minlength=2), softmax(logits[3:5])) < CRITICAL[1]
    counts = np.bincount(actions[:, 2], minlength=4)
    assert counts[2] == 0
    assert statistic(counts[[0, 1, 3]], softmax(logits[[5, 6, 8]])) < CRITICAL[3]


@pytest.mark.parametrize("seed", SEEDS)
def test_flags(seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=3).astype(np.float32)
    np.random.seed(seed)
    actions, _ = BernoulliActions().draw(np.tile(logits, (DRAWS, 1)))
    assert set(np.unique(actions)) == {0, 1}
    for flag, logit in zip(actions.T, logits, strict=True):
        on = 1 / (1 + np.exp(-logit))
        assert statistic(np.bincount(flag.astype(int), minlength=2), [1 - on, on]) < CRITICAL[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers(seed: int) -> None:
    log_deviations = np.array([-1.0, 0.5], np.float32)
    means = np.array([3.0, -2.0], np.float32)
    np.random.seed(seed)
    distribution = GaussianActions(log_deviations, np.zeros(2, np.float32), (2,))
    actions, _ = distribution.draw(np.tile(means, (DRAWS, 1)))
    assert actions.dtype == np.float32
    for numbers, mean, log_deviation in zip(actions.T, means, log_deviations, strict=True):
        normal = NormalDist(float(mean), float(np.exp(log_deviation)))
        edges = [normal.inv_cdf(k / 10) for k in range(1, 10)]
        counts = np.bincount(np.searchsorted(edges, numbers), minlength=10)
        assert statistic(counts, [0.1] * 10) < CRITICAL[9]


def test_where_nothing_is_allowed_all_is_drawn_and_nothing_is_learnt() -> None:
    distribution = CategoricalActions([3, 2])
    outputs = np.tile(np.array([5, 0, 0, 1, 2], np.float32), (DRAWS, 1))
    masks = np.tile(np.array([0, 0, 0, 1, 1], bool), (DRAWS, 1))
    np.random.seed(0)
    actions, log_probs = distribution.draw(outputs, masks)
    assert statistic(np.bincount(actions[:, 0], minlength=3), [1 / 3] * 3) < CRITICAL[3]
    again, _, backward = distribution.evaluate(outputs, actions, masks)
    np.testing.assert_allclose(again, log_probs, rtol=1e-5)
    gradient = backward(np.ones(DRAWS, np.float32), 1.0)
    assert not gradient[:, :3].any()
    assert gradient[:, 3:].any()


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(
    ("distribution", "numbers"),
    [
        (SingleChoiceActions(), 1),
        (CategoricalActions([2]), 1),
        (BernoulliActions(), 2),
        (GaussianActions(np.zeros(2, np.float32), np.zeros(2, np.float32), (2,)), 2),
    ],
)
def test_outputs_that_are_no_numbers_are_refused(distribution: Any, numbers: int) -> None:
    outputs = np.array([[0, 1], [0, np.nan]], np.float32)
    with pytest.raises(ValueError, match="NaN"):
        distribution.draw(outputs)
    with pytest.raises(ValueError, match="NaN"):
        distribution.evaluate(outputs, np.zeros((2, numbers)))
