"""From a network's numbers to actions and their log-probabilities, as RLlib computes them; NumPy only.

Source: ray.rllib.core.distribution.torch.torch_distribution and the connectors of the new API stack (Ray 2.60). What an
episode stores is the action as it was drawn; the engine gets it stretched or cut to its bounds.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ue_rl.action_spec import ActionKind, ActionSpec
from ue_rl.errors import UnsupportedNetwork

Array = NDArray[np.float32]
_LOG_STD = (-5.0, 2.0)  # of a squashed Gaussian: MIN_LOG_NN_OUTPUT, MAX_LOG_NN_OUTPUT
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Distribution(Protocol):
    """Of N envs' actions.

    Attributes:
        num_logits: numbers of a row that it is made of.
    """

    num_logits: int

    def draw(self, logits: Array, rng: np.random.Generator) -> tuple[NDArray[Any], Array]:
        """(actions as an episode stores them, their log-probabilities float32 [N]) of float32 [N, num_logits]."""
        ...

    def likeliest(self, logits: Array) -> tuple[NDArray[Any], Array]:
        """As `draw`, without chance: what RLlib does with explore=False."""
        ...

    def to_engine(self, actions: NDArray[Any]) -> Array:
        """float32 [N, act_size]: what the engine gets."""
        ...


class Categorical:
    """Of DISCRETE and MULTI_DISCRETE: one choice for each number. See Distribution."""

    def __init__(self, action: ActionSpec) -> None:
        self._counts = action.counts
        self._ends = np.cumsum(action.counts).tolist()
        self._starts = np.array(action.starts or (0,) * len(action.counts), np.int64)
        self._one = action.kind is ActionKind.DISCRETE
        self.num_logits = self._ends[-1]

    def draw(self, logits: Array, rng: np.random.Generator) -> tuple[NDArray[Any], Array]:
        """See Distribution: the largest of log-probability plus Gumbel noise, for each number."""
        noise = rng.gumbel(size=logits.shape).astype(np.float32)
        return self._choose(logits, logits + noise)

    def likeliest(self, logits: Array) -> tuple[NDArray[Any], Array]:
        """See Distribution."""
        return self._choose(logits, logits)

    def to_engine(self, actions: NDArray[Any]) -> Array:
        """See Distribution."""
        rows: Array = (actions.reshape(len(actions), -1) + self._starts).astype(np.float32)
        return rows

    def _choose(self, logits: Array, scores: Array) -> tuple[NDArray[Any], Array]:
        chosen = np.empty((len(logits), len(self._counts)), np.int64)
        logp = np.zeros(len(logits), np.float32)
        rows = np.arange(len(logits))
        for number, (end, count) in enumerate(zip(self._ends, self._counts, strict=True)):
            part = logits[:, end - count : end]
            best = scores[:, end - count : end].argmax(axis=1)
            chosen[:, number] = best
            top = part.max(axis=1)
            logp += part[rows, best] - top - np.log(np.exp(part - top[:, None]).sum(axis=1))
        return (chosen[:, 0] if self._one else chosen), logp


class Gaussian:
    """Of a BOX: mean and log of the standard deviation of each number. See Distribution.

    Args:
        normalize: actions are stretched from -1..1 to the bounds of a bounded box. clip: they are cut to the bounds.
    """

    def __init__(self, action: ActionSpec, normalize: bool, clip: bool) -> None:
        self.num_logits = 2 * action.size
        low, high = action.bounds
        bounded = bool(np.isfinite(low).all() and np.isfinite(high).all())
        self._low, self._high = low, high
        self._stretch, self._clip = normalize and bounded, clip

    def draw(self, logits: Array, rng: np.random.Generator) -> tuple[NDArray[Any], Array]:
        """See Distribution."""
        mean, log_std = np.split(logits, 2, axis=1)
        noise = rng.standard_normal(mean.shape, np.float32)
        return mean + np.exp(log_std) * noise, self._logp(noise, log_std)

    def likeliest(self, logits: Array) -> tuple[NDArray[Any], Array]:
        """See Distribution."""
        mean, log_std = np.split(logits, 2, axis=1)
        return mean.copy(), self._logp(np.zeros_like(mean), log_std)

    def to_engine(self, actions: NDArray[Any]) -> Array:
        """See Distribution."""
        if self._stretch:
            stretched = self._low + (actions + 1) * (self._high - self._low) / 2
            stretched = np.clip(stretched, self._low, self._high)
            return np.ascontiguousarray(stretched, np.float32)
        if self._clip:
            return np.ascontiguousarray(np.clip(actions, self._low, self._high), np.float32)
        return np.ascontiguousarray(actions, np.float32)

    @staticmethod
    def _logp(noise: Array, log_std: Array) -> Array:
        """Of mean + exp(log_std) * noise."""
        each: Array = -0.5 * noise * noise - log_std - np.float32(_HALF_LOG_2PI)
        logp: Array = each.sum(axis=1, dtype=np.float32)
        return logp


class SquashedGaussian(Gaussian):
    """Of SAC: a Gaussian behind a tanh. See Distribution."""

    def draw(self, logits: Array, rng: np.random.Generator) -> tuple[NDArray[Any], Array]:
        """See Distribution."""
        mean, log_std = self._parts(logits)
        noise = rng.standard_normal(mean.shape, np.float32)
        raw = np.asarray(mean + np.exp(log_std) * noise, np.float32)
        return self._squashed(raw, self._logp(noise, log_std))

    def likeliest(self, logits: Array) -> tuple[NDArray[Any], Array]:
        """See Distribution. RLlib's own takes the mean without the tanh, which may lie outside of -1 to 1."""
        mean, log_std = self._parts(logits)
        return self._squashed(mean, self._logp(np.zeros_like(mean), log_std))

    @staticmethod
    def _parts(logits: Array) -> tuple[Array, Array]:
        mean, log_std = np.split(logits, 2, axis=1)
        return mean, np.clip(log_std, *_LOG_STD)

    @staticmethod
    def _squashed(raw: Array, logp: Array) -> tuple[NDArray[Any], Array]:
        slope = 2 * (math.log(2) - raw - np.logaddexp(0, -2 * raw))
        return np.tanh(raw), (logp - slope.sum(axis=1)).astype(np.float32)


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
    raise UnsupportedNetwork(
        "there is no distribution for this action space", fault="engine", field="ACT_SPACE",
        expected="BOX for SAC; else BOX, DISCRETE or MULTI_DISCRETE, in one row", got=action.kind.value,
    )  # fmt: skip
