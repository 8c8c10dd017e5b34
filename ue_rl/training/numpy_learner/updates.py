"""What is learnt from a rollout: the updates of PPO and A2C, logged under the names that Stable-Baselines3 has."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from stable_baselines3.common.utils import explained_variance

from ue_rl.training.numpy_learner.batches import Minibatch, RolloutSteps
from ue_rl.training.numpy_learner.binding import Binding
from ue_rl.training.numpy_learner.losses import (
    PolicyLoss,
    clipped_policy_loss,
    normalized_advantages,
    plain_policy_loss,
    value_loss,
)


class LossFigures(NamedTuple):
    """What is logged of a minibatch: numbers alone, so that nothing keeps its arrays."""

    entropy_loss: float
    policy_loss: float
    value_loss: float
    loss: float
    clip_fraction: float


class MinibatchLoss:
    """The loss of a minibatch under the policy as it is, whose gradient `backward` writes.

    Args:
        clip_range: PPO's; None: A2C's loss. clip_range_vf: how far values may move; None: any.

    Attributes:
        policy: PolicyLoss. entropy_loss, value_loss, loss: as they are logged.
    """

    def __init__(
        self,
        binding: Binding,
        batch: Minibatch,
        *,
        normalize: bool,
        clip_range: float | None,
        clip_range_vf: float | None,
        ent_coef: float,
        vf_coef: float,
    ) -> None:
        self._binding = binding
        self._ent_coef = float(ent_coef)
        self._vf_coef = float(vf_coef)
        self._outputs, values, self._layers = binding.networks.forward(batch.features)
        log_probs, entropies, self._backward = binding.distribution.evaluate(self._outputs, batch.actions, batch.masks)
        advantages = batch.advantages
        if normalize and len(advantages) > 1:
            advantages = normalized_advantages(advantages)
        if clip_range is None:
            self.policy: PolicyLoss = plain_policy_loss(log_probs, advantages)
        else:
            self.policy = clipped_policy_loss(log_probs, batch.old_log_probs, advantages, clip_range)
        self.value_loss, self._value_gradient = value_loss(values[:, 0], batch.old_values, batch.returns, clip_range_vf)
        self.entropy_loss = -float(np.add.reduce(entropies)) / len(entropies)
        self.loss = self.policy.loss + self._ent_coef * self.entropy_loss + self._vf_coef * self.value_loss

    def figures(self) -> LossFigures:
        """For the log."""
        policy = self.policy
        return LossFigures(self.entropy_loss, policy.loss, self.value_loss, self.loss, policy.clip_fraction)

    def backward(self) -> None:
        """Writes the gradient into the flat parameters' one; once, before the next loss is made."""
        count = len(self._outputs)
        action_gradient = self._backward(self.policy.gradient, -self._ent_coef / count)
        value_gradient = self._value_gradient
        value_gradient *= self._vf_coef
        self._binding.networks.backward(self._layers, action_gradient, value_gradient[:, None])


def train_ppo(model: Any, binding: Binding) -> None:
    """As `train` of PPO and MaskablePPO."""
    model.policy.set_training_mode(True)
    model._update_learning_rate(model.policy.optimizer)
    optimizer = binding.optimizer()
    clip_range = model.clip_range(model._current_progress_remaining)
    clip_range_vf = None
    if model.clip_range_vf is not None:
        clip_range_vf = model.clip_range_vf(model._current_progress_remaining)
    steps = RolloutSteps(model.rollout_buffer, binding.features, binding.dtype)
    figures: list[LossFigures] = []
    divergences: list[float] = []
    goes_on = True
    for epoch in range(model.n_epochs):
        divergences = []
        for batch in steps.minibatches(model.batch_size):
            loss = MinibatchLoss(
                binding,
                batch,
                normalize=model.normalize_advantage,
                clip_range=clip_range,
                clip_range_vf=clip_range_vf,
                ent_coef=model.ent_coef,
                vf_coef=model.vf_coef,
            )
            figures.append(loss.figures())
            divergence = loss.policy.approx_kl
            divergences.append(divergence)
            if model.target_kl is not None and divergence > 1.5 * model.target_kl:
                goes_on = False
                if model.verbose >= 1:
                    print(f"epoch {epoch} ends early: the policy has moved by a KL divergence of {divergence:.2f}")
                break
            loss.backward()
            optimizer.step(model.max_grad_norm)
        model._n_updates += 1
        if not goes_on:
            break
    record = model.logger.record
    record("train/entropy_loss", np.mean([each.entropy_loss for each in figures]))
    record("train/policy_gradient_loss", np.mean([each.policy_loss for each in figures]))
    record("train/value_loss", np.mean([each.value_loss for each in figures]))
    record("train/approx_kl", np.mean(divergences))
    record("train/clip_fraction", np.mean([each.clip_fraction for each in figures]))
    record("train/loss", figures[-1].loss)
    record("train/explained_variance", _explained_variance(model))
    _record_deviation(model)
    record("train/n_updates", model._n_updates, exclude="tensorboard")
    record("train/clip_range", clip_range)
    if clip_range_vf is not None:
        record("train/clip_range_vf", clip_range_vf)


def train_a2c(model: Any, binding: Binding) -> None:
    """As `train` of A2C: one update with all steps."""
    model.policy.set_training_mode(True)
    model._update_learning_rate(model.policy.optimizer)
    optimizer = binding.optimizer()
    steps = RolloutSteps(model.rollout_buffer, binding.features, binding.dtype)
    loss = MinibatchLoss(
        binding,
        next(steps.minibatches(None)),
        normalize=model.normalize_advantage,
        clip_range=None,
        clip_range_vf=None,
        ent_coef=model.ent_coef,
        vf_coef=model.vf_coef,
    )
    loss.backward()
    optimizer.step(model.max_grad_norm)
    model._n_updates += 1
    record = model.logger.record
    record("train/n_updates", model._n_updates, exclude="tensorboard")
    record("train/explained_variance", _explained_variance(model))
    record("train/entropy_loss", loss.entropy_loss)
    record("train/policy_loss", loss.policy.loss)
    record("train/value_loss", loss.value_loss)
    _record_deviation(model)


def _explained_variance(model: Any) -> float:
    buffer = model.rollout_buffer
    return float(explained_variance(buffer.values.flatten(), buffer.returns.flatten()))


def _record_deviation(model: Any) -> None:
    """Where actions are drawn from Gaussians."""
    log_deviations = getattr(model.policy, "log_std", None)
    if log_deviations is not None:
        model.logger.record("train/std", float(np.exp(log_deviations.detach().numpy()).mean()))
