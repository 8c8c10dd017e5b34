"""Actions for an engine from its handshake alone: random ones, and those at the bounds. No gymnasium."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import StepBuffers
from ue_rl.compliance.peer import States
from ue_rl.spaces.actions import ActionKind, ActionSpec
from ue_rl.spaces.tree import bounds
from ue_rl.spec import EnvSpec

_FAR = 1e3  # what stands for an infinite bound


def one_specs(spec: EnvSpec) -> list[EnvSpec]:
    """Of each agent of an env; of an env that is one agent, its own."""
    return [group.spec for group in spec.groups for _ in range(group.count)] or [spec]


def limits(action: ActionSpec) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """(lowest, highest, whole), each [size]: what each number may be, infinite bounds made finite."""
    if action.kind is ActionKind.BOX:
        low, high = (side.astype(np.float64) for side in action.bounds)
        whole = np.zeros(action.size, np.bool_)
        if action.space is not None:
            whole[:] = "int" in getattr(action.space, "dtype", "")
    else:
        counts = np.array(action.counts)
        if action.kind is ActionKind.HYBRID and action.space is not None:
            low, high = (side.astype(np.float64) for side in bounds(action.space))
        else:
            low = np.array(action.starts or np.zeros(len(counts)), np.float64)
            high = low + counts - 1
        whole = counts > 0
    low = np.where(np.isfinite(low), low, np.minimum(-_FAR, high))
    return low, np.where(np.isfinite(high), high, np.maximum(_FAR, low)), whole


class Sampler:
    """Draws legal actions for all rows of an engine.

    Args:
        spec: of the engine. seed: of the draws.
    """

    def __init__(self, spec: EnvSpec, seed: int) -> None:
        self._spec = spec
        self._ones = [(one, *limits(one.action_spec)) for one in one_specs(spec)]
        self.rng = np.random.default_rng(seed)

    def random(self, states: States | StepBuffers | None = None) -> NDArray[np.float32]:
        """float32 [num_rows, act_size]: uniform in the space; a choice that is legal in `states` where those say so."""
        rows = np.zeros((self._spec.num_rows, self._spec.act_size), np.float32)
        for row in range(len(rows)):
            one, low, high, whole = self._ones[row % len(self._ones)]
            drawn = self.rng.uniform(low, np.where(whole, high + 1, high))
            rows[row, : len(low)] = np.where(whole, np.minimum(np.floor(drawn), high), drawn)
            if states is not None and states.masks.shape[1]:
                self._obey(rows[row], one.action_spec, low, states.masks[row])
        return rows

    def at(self, side: float) -> NDArray[np.float32]:
        """float32 [num_rows, act_size]: 0 the lowest of each number, 1 the highest, between them where it may be."""
        rows = np.zeros((self._spec.num_rows, self._spec.act_size), np.float32)
        for row in range(len(rows)):
            _, low, high, whole = self._ones[row % len(self._ones)]
            there = low + side * (high - low)
            rows[row, : len(low)] = np.where(whole, np.round(there), there)
        return rows

    def _obey(
        self, action: NDArray[np.float32], spec: ActionSpec, low: NDArray[np.float64], mask: NDArray[np.uint8]
    ) -> None:
        start = 0
        for number, count in enumerate(spec.counts):
            legal = np.flatnonzero(mask[start : start + count])
            start += count
            if count and len(legal) and not mask[start - count + int(action[number] - low[number])]:
                action[number] = low[number] + self.rng.choice(legal)
