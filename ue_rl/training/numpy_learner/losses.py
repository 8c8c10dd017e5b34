"""The losses of A2C and PPO over a minibatch, and their gradients; all arrays are [n], of one float dtype."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ue_rl.training.numpy_learner.parameters import Floats


class PolicyLoss(NamedTuple):
    """What the policy's part says.

    Attributes:
        loss: its mean. gradient: [n], with respect to the log-probabilities.
        clip_fraction: share of the ratios that were clipped. approx_kl: divergence from the policy that acted.
    """

    loss: float
    gradient: Floats
    clip_fraction: float = 0.0
    approx_kl: float = 0.0


def normalized_advantages(advantages: Floats) -> Floats:
    """Advantages with mean 0 and standard deviation 1 (of a sample: n - 1)."""
    centered: Floats = advantages - np.add.reduce(advantages) / len(advantages)
    deviation = np.sqrt(np.dot(centered, centered) / (len(centered) - 1))
    centered /= deviation + 1e-8
    return centered


def clipped_policy_loss(log_probs: Floats, old: Floats, advantages: Floats, clip_range: float) -> PolicyLoss:
    """PPO's: minus the smaller of advantage times ratio and advantage times clipped ratio.

    Args:
        log_probs: of the actions now. old: when they were drawn. clip_range: how far the ratio may be from 1.
    """
    count = len(log_probs)
    log_ratios = log_probs - old
    ratios = np.exp(log_ratios)
    gains = advantages * ratios
    clipped = advantages * np.minimum(np.maximum(ratios, 1 - clip_range), 1 + clip_range)
    smaller = np.minimum(gains, clipped)
    # Where the clipped one is the smaller, it does not change with the ratio. Within the range both are the same.
    gradient = np.where(gains <= clipped, gains, 0)
    gradient *= -1 / count
    changes = ratios - 1
    clip_fraction = np.count_nonzero(np.abs(changes) > clip_range) / count
    approx_kl = float(np.add.reduce(changes - log_ratios)) / count
    return PolicyLoss(-float(np.add.reduce(smaller)) / count, gradient, clip_fraction, approx_kl)


def plain_policy_loss(log_probs: Floats, advantages: Floats) -> PolicyLoss:
    """A2C's: minus advantage times log-probability."""
    count = len(log_probs)
    return PolicyLoss(-float(np.dot(advantages, log_probs)) / count, advantages * (-1 / count))


def value_loss(values: Floats, old: Floats, returns: Floats, clip_range: float | None) -> tuple[float, Floats]:
    """(mean of the squared errors, its gradient [n] with respect to the values).

    Args:
        values: now. old: when the actions were drawn. clip_range: how far a value may move from the old one; None: any.
    """
    count = len(values)
    moves = values - old
    if clip_range is None:
        errors = values - returns
    else:
        errors = old + np.minimum(np.maximum(moves, -clip_range), clip_range) - returns
    loss = float(np.dot(errors, errors)) / count
    errors *= 2 / count
    if clip_range is not None:
        errors[np.abs(moves) > clip_range] = 0
    return loss, errors
