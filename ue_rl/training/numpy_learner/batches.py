"""Rollout buffers of Stable-Baselines3: steps that are put in, and minibatches that are taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from ue_rl.training.numpy_learner.observations import Features
from ue_rl.training.numpy_learner.parameters import Floats
from ue_rl.training.numpy_learner.returns import compute_returns

try:
    from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer

    _MASKABLE: tuple[type[RolloutBuffer], ...] = (MaskableRolloutBuffer, MaskableDictRolloutBuffer)
except ImportError:
    _MASKABLE = ()
# Whose arrays are written and read here; a buffer of another class may do more, and is asked by its methods.
_PLAIN = (RolloutBuffer, DictRolloutBuffer, *_MASKABLE)


class Minibatch(NamedTuple):
    """Steps that are learnt from at once.

    Attributes:
        features: [n, features]. actions: [n, numbers], as the buffer has them. old_values, old_log_probs, advantages,
            returns: [n]. masks: [n, choices]; None where there are none.
    """

    features: Floats
    actions: NDArray[Any]
    old_values: Floats
    old_log_probs: Floats
    advantages: Floats
    returns: Floats
    masks: NDArray[Any] | None

    def each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Minibatch:
        """Another one, with what `change` makes of each array."""
        parts: list[Any] = [None if rows is None else change(rows) for rows in self]
        return Minibatch(*parts)


def add_step(
    buffer: RolloutBuffer,
    observations: Any,
    actions: NDArray[Any],
    rewards: NDArray[Any],
    starts: NDArray[Any],
    values: Floats,
    log_probs: Floats,
    masks: NDArray[Any] | None,
) -> None:
    """Puts a step of all envs into the buffer.

    Args:
        observations: [n_envs, ...], or a dict of them. actions: [n_envs, ...]. rewards, starts, log_probs: [n_envs].
        values: [n_envs, 1]. masks: [n_envs, choices]; None where there are none.
    """
    if type(buffer) not in _PLAIN:
        more = {}
        if masks is not None:
            more = {"action_masks": masks}
        rows = actions.reshape(buffer.n_envs, buffer.action_dim)
        buffer.add(observations, rows, rewards, starts, torch.from_numpy(values), torch.from_numpy(log_probs), **more)
        return
    at = buffer.pos
    if isinstance(buffer, DictRolloutBuffer):
        for name, rows in buffer.observations.items():
            rows[at] = np.reshape(observations[name], rows[at].shape)
    else:
        buffer.observations[at] = observations.reshape(buffer.observations[at].shape)
    buffer.actions[at] = actions.reshape(buffer.n_envs, buffer.action_dim)
    buffer.rewards[at] = rewards
    buffer.episode_starts[at] = starts
    buffer.values[at] = values[:, 0]
    buffer.log_probs[at] = log_probs
    if masks is not None:
        buffer.action_masks[at] = masks  # type: ignore[attr-defined]
    buffer.pos = at + 1
    buffer.full = buffer.pos == buffer.buffer_size


def end_rollout(buffer: RolloutBuffer, last_values: Floats, dones: NDArray[np.bool_]) -> None:
    """Has the buffer's advantages and returns computed.

    Args:
        last_values: [n_envs, 1]. dones: [n_envs].
    """
    if type(buffer) in _PLAIN:
        compute_returns(buffer, last_values[:, 0], dones)
    else:
        buffer.compute_returns_and_advantage(torch.from_numpy(last_values), dones)


class RolloutSteps:
    """The steps of a full buffer, as minibatches.

    Args:
        dtype: of all numbers but actions and masks.
    """

    def __init__(self, buffer: RolloutBuffer, features: Features, dtype: np.dtype[Any]) -> None:
        self._buffer = buffer
        self._features = features
        self._dtype = dtype
        if type(buffer) not in _PLAIN:
            self._whole = None
        else:
            self._whole = self._all()

    def minibatches(self, size: int | None) -> Iterator[Minibatch]:
        """One pass in an order that NumPy's global generator draws; size None: all steps at once."""
        if self._whole is None:
            for samples in self._buffer.get(size):
                yield self._of_samples(samples)
            return
        count = len(self._whole.returns)
        order = np.random.permutation(count)
        # Rows are put in order once for the whole pass: a minibatch is then a part of each array, without a copy.
        shuffled = self._whole.each(lambda rows: np.take(rows, order, axis=0))
        step = size or count
        for start in range(0, count, step):
            yield shuffled.each(lambda rows, start=start: rows[start : start + step])  # type: ignore[misc]

    def _all(self) -> Minibatch:
        buffer = self._buffer
        assert buffer.full
        if isinstance(buffer, DictRolloutBuffer):
            seen: Any = {name: self._rows(part) for name, part in buffer.observations.items()}
        else:
            seen = self._rows(buffer.observations)
        masks = getattr(buffer, "action_masks", None)
        return Minibatch(
            features=self._features(seen),
            actions=self._rows(buffer.actions),
            old_values=self._numbers(buffer.values),
            old_log_probs=self._numbers(buffer.log_probs),
            advantages=self._numbers(buffer.advantages),
            returns=self._numbers(buffer.returns),
            masks=None if masks is None else self._rows(masks) > 0,
        )

    def _rows(self, array: NDArray[Any]) -> NDArray[Any]:
        """[steps, envs, ...] as [steps * envs, ...], which the buffer's own `get` leaves."""
        if self._buffer.generator_ready:
            return array
        return array.reshape(-1, *array.shape[2:])

    def _numbers(self, array: NDArray[Any]) -> Floats:
        return array.reshape(-1).astype(self._dtype, copy=False)

    def _of_samples(self, samples: Any) -> Minibatch:
        """What a buffer's own `get` gives."""
        seen = samples.observations
        if isinstance(seen, dict):
            arrays: Any = {name: part.numpy() for name, part in seen.items()}
        else:
            arrays = seen.numpy()
        masks = getattr(samples, "action_masks", None)
        return Minibatch(
            features=self._features(arrays),
            actions=samples.actions.numpy(),
            old_values=self._numbers(samples.old_values.numpy()),
            old_log_probs=self._numbers(samples.old_log_prob.numpy()),
            advantages=self._numbers(samples.advantages.numpy()),
            returns=self._numbers(samples.returns.numpy()),
            masks=None if masks is None else masks.numpy() > 0,
        )
