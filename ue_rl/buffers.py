"""StepBuffers and ActionBatch: the arrays of one step, allocated once and written in place.

The codec writes rows of them, transports and bridges own them, nobody gives them out: whoever hands an
observation to a user copies it first (SB3 keeps a reference to the last observation).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class StepBuffers:
    """What the engine answers in one step, for all envs (client's side).

    Attributes:
        obs: float32 [num_envs, obs_size].
        rewards: float32 [num_envs].
        dones: uint8 [num_envs]; 1 = the episode is over, for whatever reason.
        truncated: uint8 [num_envs]; 1 = it is over by a limit only, not by a terminal state.
        pending: uint8 [num_envs]; 1 = an answer of this env is awaited. The decoder accepts only awaited rows.
        image: uint8 [num_envs, *image shape]; None where there are no images.
        infos: env id -> info dict, only for rows that carried INFO; cleared by whoever asks for the next step.
    """

    __slots__ = ("dones", "image", "infos", "obs", "pending", "rewards", "truncated")

    def __init__(self, num_envs: int, obs_size: int, image: tuple[int, ...] | None = None) -> None:
        self.image: NDArray[np.uint8] | None = None if image is None else np.zeros((num_envs, *image), np.uint8)
        self.obs: NDArray[np.float32] = np.zeros((num_envs, obs_size), np.float32)
        self.rewards: NDArray[np.float32] = np.zeros(num_envs, np.float32)
        self.dones: NDArray[np.uint8] = np.zeros(num_envs, np.uint8)
        self.truncated: NDArray[np.uint8] = np.zeros(num_envs, np.uint8)
        self.pending: NDArray[np.uint8] = np.zeros(num_envs, np.uint8)
        self.infos: dict[int, dict[str, Any]] = {}


class ActionBatch:
    """What the trainer asks for, for all envs (engine's side).

    Attributes:
        actions: float32 [num_envs, act_size].
        command: uint8 [num_envs]; 0 = nothing asked, 1 = step with `actions`, 2 = reset.
        seeds: int64 [num_envs]; the seed of a reset, -1 = none given.
        options: env id -> options dict of a reset.
    """

    __slots__ = ("actions", "command", "options", "seeds")

    NOTHING = 0
    STEP = 1
    RESET = 2

    def __init__(self, num_envs: int, act_size: int) -> None:
        self.actions: NDArray[np.float32] = np.zeros((num_envs, act_size), np.float32)
        self.command: NDArray[np.uint8] = np.zeros(num_envs, np.uint8)
        self.seeds: NDArray[np.int64] = np.full(num_envs, -1, np.int64)
        self.options: dict[int, dict[str, Any]] = {}

    def clear(self) -> None:
        """Forget all requests; the arrays stay."""
        self.command[:] = self.NOTHING
        self.seeds[:] = -1
        self.options.clear()
