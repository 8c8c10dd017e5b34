"""Masks: which choices are legal in the observations that were given out last."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec


class Masks:
    """The masks of all envs, as docs/protocol.md, section "Action masks", orders their flags.

    Args:
        spec: of the session; with FEATURES=MASK.

    Attributes:
        current: int8 [num_envs, mask_size], 1 for legal, as Gymnasium's `Space.sample` takes it; a new array in each
            step, which may be kept.
    """

    def __init__(self, spec: EnvSpec) -> None:
        action = spec.action_spec
        self.current: NDArray[np.int8] = np.ones((spec.num_envs, action.mask_size), np.int8)
        counts = np.array(action.counts, np.int64)
        self._numbers = np.flatnonzero(counts)
        first_flags = np.cumsum(counts) - counts
        self._flag_of_zero = (first_flags - action.lowest)[self._numbers]
        self._flags = [(first, first + count) for first, count in zip(first_flags, counts, strict=True) if count]
        self._rows = np.arange(spec.num_envs)[:, None]
        self._told = False

    @classmethod
    def of(cls, spec: EnvSpec) -> Masks | None:
        """None where the engine sends no masks, or no action of it is a choice."""
        if "MASK" in spec.features and spec.action_spec.mask_size:
            return cls(spec)
        return None

    def take(self, buffers: StepBuffers) -> None:
        """Takes over the masks of all envs."""
        size = self.current.shape[1]
        self.current = buffers.masks[:, :size].astype(np.int8)

    def put(self, buffers: StepBuffers, envs: Sequence[int]) -> None:
        """Takes over the masks of these envs, which have just begun an episode."""
        self.current[envs] = buffers.masks[envs, : self.current.shape[1]]

    def action_masks(self, env: int) -> NDArray[np.bool_]:
        """Those of one env, bool [mask_size], as sb3-contrib's MaskablePPO reads them."""
        legal: NDArray[np.bool_] = self.current[env].astype(np.bool_)
        return legal

    def lowest(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """`rows`, the wire's actions, with the lowest legal choice wherever they choose."""
        rows = rows.copy()
        for number, zero, (first, end) in zip(self._numbers, self._flag_of_zero, self._flags, strict=True):
            rows[:, number] = self.current[:, first:end].argmax(axis=1) + first - zero
        return rows

    def check(self, rows: NDArray[np.float32], ignored: NDArray[np.bool_] | None = None) -> None:
        """Warns once where a policy chooses what the mask forbids; the engine gets it all the same.

        Args:
            rows: the wire's actions, float32 [num_envs, act_size]. ignored: bool [num_envs], envs that are reset.
        """
        if self._told:
            return
        flags = rows[:, self._numbers].astype(np.int64) + self._flag_of_zero
        legal = self.current[self._rows, flags]
        if np.count_nonzero(legal) == legal.size:
            return
        wrong = (legal == 0).any(axis=1)
        if ignored is not None:
            wrong &= ~ignored
        if not wrong.any():
            return
        self._told = True
        env = int(wrong.argmax())
        warnings.warn(
            f"the policy ignores the engine's action masks: env {env} was sent {rows[env].tolist()}, which is not "
            "legal now. Use one that reads them, such as sb3-contrib's MaskablePPO. This is said once.",
            stacklevel=5,  # whoever called the env's step
        )
