"""Actions for an engine from its handshake alone: random ones, and those at the bounds. No gymnasium."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.peer import AnsweredStates
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spaces.tree import leaves
from ue_rl.protocol.spec import EnvSpec

_FAR = 1e3  # what stands for an infinite bound


def one_specs(spec: EnvSpec) -> list[EnvSpec]:
    """Of each agent of an env; of an env that is one agent, its own."""
    return [group.spec for group in spec.groups for _ in range(group.count)] or [spec]


def limits(action: ActionSpec) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """(lowest, highest, whole), each [size]: what each number may be, infinite bounds made finite."""
    low, high = (side.astype(np.float64) for side in action.bounds)
    parts = [leaf for _, leaf, _ in leaves(action.tree)]
    whole = np.concatenate([np.full(leaf.size, leaf.form.is_whole(leaf)) for leaf in parts])
    low = np.where(np.isfinite(low), low, np.minimum(-_FAR, high))
    return low, np.where(np.isfinite(high), high, np.maximum(_FAR, low)), whole


class Sampler:
    """Draws legal actions for all rows of an engine.

    Args:
        spec: of the engine. seed: of the draws.

    Attributes:
        low, high, whole: [num_rows, act_size], see `limits`; numbers that an agent does not have are 0.
    """

    def __init__(self, spec: EnvSpec, seed: int) -> None:
        self._ones = [one.action_spec for one in one_specs(spec)]
        self.rng = np.random.default_rng(seed)
        shape = len(self._ones), spec.act_size
        low = np.zeros(shape)
        high = np.zeros(shape)
        whole = np.ones(shape, np.bool_)
        for agent, action in enumerate(self._ones):
            low[agent, : action.size], high[agent, : action.size], whole[agent, : action.size] = limits(action)
        envs = spec.num_envs, 1
        self.low = np.tile(low, envs)
        self.high = np.tile(high, envs)
        self.whole = np.tile(whole, envs)

    def random(self, states: AnsweredStates | StepBuffers | None = None) -> NDArray[np.float32]:
        """float32 [num_rows, act_size]: uniform in the space; a choice that is legal in `states` where those say so."""
        drawn = self.rng.uniform(self.low, np.where(self.whole, self.high + 1, self.high))
        rows = np.where(self.whole, np.minimum(np.floor(drawn), self.high), drawn).astype(np.float32)
        if states is not None and states.masks.shape[1]:
            for row, mask in enumerate(states.masks):
                self._obey(rows[row], self._ones[row % len(self._ones)], self.low[row], mask)
        return rows

    def at(self, side: float) -> NDArray[np.float32]:
        """float32 [num_rows, act_size]: 0 the lowest of each number, 1 the highest, between them where it may be."""
        there = self.low + side * (self.high - self.low)
        return np.where(self.whole, np.round(there), there).astype(np.float32)

    def _obey(
        self, action: NDArray[np.float32], spec: ActionSpec, low: NDArray[np.float64], mask: NDArray[np.uint8]
    ) -> None:
        start = 0
        for number, count in enumerate(spec.counts):
            legal = np.flatnonzero(mask[start : start + count])
            start += count
            if count and len(legal) and not mask[start - count + int(action[number] - low[number])]:
                action[number] = low[number] + self.rng.choice(legal)
