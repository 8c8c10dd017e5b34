"""From a network's numbers to actions and their log-probabilities, as RLlib computes them; NumPy only.

Source: ray.rllib.core.distribution.torch.torch_distribution and the connectors of the new API stack (Ray 2.60). What an
episode stores is the action as it was drawn; the engine gets it stretched or cut to its bounds.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spec import ActionKind, ActionSpec
from ue_rl.system.errors import UnsupportedNetwork

Array = NDArray[np.float32]
_LOG_STD = (-5.0, 2.0)  # of a squashed Gaussian: MIN_LOG_NN_OUTPUT, MAX_LOG_NN_OUTPUT
_SMALL = np.float32(1e-6)  # SMALL_NUMBER
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Distribution(abc.ABC):
    """Of N envs' actions.

    Attributes:
        num_logits: numbers of a row that it is made of.
    """

    num_logits: int

    def draw(self, logits: Array, rng: np.random.Generator | None) -> tuple[NDArray[Any], Array]:
        """(actions as an episode stores them, their `logp`) of float32 [N, num_logits].

        Without `rng` the likeliest: what RLlib does with explore=False. RLlib itself then says 0 for the
        log-probability, and takes SAC's mean without its tanh.
        """
        actions = self._choose(logits, rng)
        return actions, self.logp(logits, actions)

    @abc.abstractmethod
    def _choose(self, logits: Array, rng: np.random.Generator | None) -> NDArray[Any]: ...

    @abc.abstractmethod
    def logp(self, logits: Array, actions: NDArray[Any]) -> Array:
        """float32 [N]: log-probabilities of actions as an episode stores them.

        RLlib computes them once more from the stored float32 actions, and learns from the difference: it matters that
        rounding and limits are the same, not that they are exact.
        """

    @abc.abstractmethod
    def to_engine(self, actions: NDArray[Any]) -> Array:
        """float32 [N, act_size]: what the engine gets."""


class Categorical(Distribution):
    """Of DISCRETE and MULTI_DISCRETE: one choice for each number."""

    def __init__(self, action: ActionSpec) -> None:
        self._counts = action.counts
        self._ends = np.cumsum(action.counts).tolist()
        first = action.starts
        if not first:
            first = (0,) * len(action.counts)
        self._starts = np.array(first, np.int64)
        self._one = action.kind is ActionKind.DISCRETE
        self.num_logits = self._ends[-1]

    def _choose(self, logits: Array, rng: np.random.Generator | None) -> NDArray[Any]:
        # the largest of log-probability plus Gumbel noise, for each number
        if rng is None:
            scores = logits
        else:
            scores = logits + rng.gumbel(size=logits.shape).astype(np.float32)
        parts = zip(self._ends, self._counts, strict=True)
        chosen = np.stack([scores[:, end - count : end].argmax(axis=1) for end, count in parts], axis=1)
        if self._one:
            return chosen[:, 0]
        return chosen

    def logp(self, logits: Array, actions: NDArray[Any]) -> Array:
        """See Distribution."""
        chosen = actions.reshape(len(actions), -1)
        rows = np.arange(len(logits))
        logp = np.zeros(len(logits), np.float32)
        for number, (end, count) in enumerate(zip(self._ends, self._counts, strict=True)):
            part = logits[:, end - count : end]
            top = part.max(axis=1)
            logp += part[rows, chosen[:, number]] - top - np.log(np.exp(part - top[:, None]).sum(axis=1))
        return logp

    def to_engine(self, actions: NDArray[Any]) -> Array:
        """See Distribution."""
        rows: Array = (actions.reshape(len(actions), -1) + self._starts).astype(np.float32)
        return rows


class Gaussian(Distribution):
    """Of a BOX: mean and log of the standard deviation of each number.

    Args:
        normalize: actions are stretched from -1..1 to the bounds of a bounded box. clip: without `normalize` they are
            cut to the bounds; with it RLlib does not look at `clip`.
    """

    def __init__(self, action: ActionSpec, normalize: bool, clip: bool) -> None:
        self.num_logits = 2 * action.size
        low, high = action.bounds
        bounded = bool(np.isfinite(low).all() and np.isfinite(high).all())
        self._low = low
        self._high = high
        self._stretch = normalize and bounded
        self._clip = clip and not normalize

    def _choose(self, logits: Array, rng: np.random.Generator | None) -> NDArray[Any]:
        mean, log_std = self._parts(logits)
        if rng is None:
            return mean.copy()
        noise = np.exp(log_std) * rng.standard_normal(mean.shape, np.float32)
        actions: NDArray[Any] = np.add(mean, noise, dtype=np.float32)
        return actions

    def logp(self, logits: Array, actions: NDArray[Any]) -> Array:
        """See Distribution."""
        mean, log_std = self._parts(logits)
        noise = (actions - mean) / np.exp(log_std)
        logp: Array = (-0.5 * noise * noise - log_std - np.float32(_HALF_LOG_2PI)).sum(axis=1, dtype=np.float32)
        return logp

    def to_engine(self, actions: NDArray[Any]) -> Array:
        """See Distribution."""
        if self._stretch:
            with np.errstate(over="ignore"):  # it is cut then
                actions = self._low + (actions + 1) * (self._high - self._low) / 2
        if self._stretch or self._clip:
            actions = np.clip(actions, self._low, self._high)
        return np.ascontiguousarray(actions, np.float32)

    def _parts(self, logits: Array) -> tuple[Array, Array]:
        mean, log_std = np.split(logits, 2, axis=1)
        return mean, log_std


class SquashedGaussian(Gaussian):
    """Of SAC: a Gaussian behind a tanh."""

    def _choose(self, logits: Array, rng: np.random.Generator | None) -> NDArray[Any]:
        actions: NDArray[Any] = np.tanh(super()._choose(logits, rng))
        return actions

    def logp(self, logits: Array, actions: NDArray[Any]) -> Array:
        """See Distribution. An action at its limit counts as one that is RLlib's SMALL_NUMBER away from it."""
        within = (actions + 1) / 2 * 2 - 1  # as RLlib scales it: near the limits the rounding counts
        raw = np.arctanh(np.clip(within, -1 + _SMALL, 1 - _SMALL))
        slope = 2 * (np.float32(math.log(2)) - raw - np.logaddexp(np.float32(0), -2 * raw))
        logp: Array = super().logp(logits, raw) - slope.sum(axis=1, dtype=np.float32)
        return logp

    def _parts(self, logits: Array) -> tuple[Array, Array]:
        mean, log_std = super()._parts(logits)
        return mean, np.clip(log_std, *_LOG_STD)


def distribution(action: ActionSpec, *, squashed: bool, normalize: bool, clip: bool) -> Distribution:
    """For this action space.

    Args:
        squashed: SAC's, for a BOX. normalize, clip: see Gaussian.

    Raises:
        UnsupportedNetwork: RLlib, or this library, has no distribution for the space.
    """
    plain = action.space is None
    if plain and action.kind in (ActionKind.DISCRETE, ActionKind.MULTI_DISCRETE) and not squashed:
        return Categorical(action)
    if plain and action.kind is ActionKind.BOX:
        return (SquashedGaussian if squashed else Gaussian)(action, normalize, clip)
    what = "there is no distribution for this action space"
    expected = "BOX for SAC; else BOX, DISCRETE or MULTI_DISCRETE, in one row"
    raise UnsupportedNetwork(what, fault="engine", field="ACT_SPACE", expected=expected, got=action.kind.value)
