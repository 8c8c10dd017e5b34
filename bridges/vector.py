"""VectorBridge: callbacks that take and give arrays for all envs; for simulations that are vectorised themselves."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.game import EnvIds, Told


class VectorBridge(BaseBridge):
    """N envs in arrays; implement two callbacks, which write into `self.outbox` in place.

    With MASK among the features of the spec both write `outbox.masks` too, uint8 [num_envs, mask_size], 1 for legal.
    A host may lay `inbox` and `outbox` over shared memory: write into the arrays (`self.outbox.obs[env_ids] = ..`),
    never replace them.
    """

    together = True

    @abc.abstractmethod
    def reset_envs(
        self, env_ids: EnvIds, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """Starts a new episode in `env_ids` and writes `outbox.obs` of them; `seeds` and `options` align with it."""

    @abc.abstractmethod
    def step_envs(self, actions: NDArray[np.float32], env_ids: EnvIds) -> None:
        """Steps `env_ids` and writes `outbox.obs`, `.rewards`, `.dones` and `.truncated` of them.

        `truncated` alone ends an episode too: `dones` need not be set beside it.

        Args:
            actions: float32 [num_envs, act_size]; only the rows of `env_ids` mean something.
            env_ids: ascending; all envs in the usual case.
        """

    # -- for the driver

    def begin_in(self, envs: EnvIds, seeds: Told, options: Told) -> None:
        """See Game."""
        self.reset_envs(envs, seeds, options)

    def act_in(self, envs: EnvIds, actions: NDArray[np.float32]) -> None:
        """See Game."""
        self.step_envs(actions, envs)
        out = self.outbox
        np.bitwise_or(out.dones, out.truncated, out.dones)
