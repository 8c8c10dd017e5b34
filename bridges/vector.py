"""VectorBridge: callbacks that take and give arrays for all envs; for simulations that are vectorised themselves."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.reset_options import blames_options
from ue_rl.buffers import ActionBatch
from ue_rl.spec import EnvSpec

EnvIds = NDArray[np.intp]


class VectorBridge(BaseBridge):
    """N envs in arrays; implement two callbacks, which write into `self.outbox` in place.

    With MASK among the features of the spec both write `outbox.masks` too, uint8 [num_envs, mask_size], 1 for legal.
    A host may lay `inbox` and `outbox` over shared memory: write into the arrays (`self.outbox.obs[env_ids] = ..`),
    never replace them.
    """

    def configure(self, spec: EnvSpec) -> None:
        """See BaseBridge.configure."""
        super().configure(spec)
        self._all: EnvIds = np.arange(spec.num_envs)
        self._over = np.zeros(spec.num_envs, np.bool_)

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

    def tick_step_all(self, delta: float) -> bool:
        """See BaseBridge."""
        if self.check.has_choices:
            return super().tick_step_all(delta)
        self._step(self.inbox.actions, self._all)
        return True

    def tick_training(self, delta: float) -> None:
        """See BaseBridge. Every request is answered in the tick that sees it."""
        inbox = self.inbox
        command = inbox.command
        steps = command == ActionBatch.STEP
        stepping = np.count_nonzero(steps)
        if stepping == len(command):
            self._step(inbox.actions, self._all)
            command[:] = ActionBatch.NOTHING
            self.answered[:] = 1
            return
        resets = np.flatnonzero(command == ActionBatch.RESET)
        if stepping:
            ids = np.flatnonzero(steps)
            self._step(inbox.actions, ids)
            self.answered[ids] = 1
        if len(resets):
            seeds = [None if seed < 0 else seed for seed in inbox.seeds[resets].tolist()]
            self._reset(resets, seeds, [inbox.options.pop(env, None) for env in resets.tolist()])
            inbox.seeds[resets] = -1
            self.answered[resets] = 1
        command[:] = ActionBatch.NOTHING

    def tick_inference(self, delta: float) -> None:
        """See BaseBridge: one batched call for all envs, one step."""
        over = np.flatnonzero(self._over)
        if len(over):
            self._reset(over, [self.first_seed(env) for env in over.tolist()], [None] * len(over))
            self._over[:] = False
            self.new_episodes(over.tolist())
        actions = self.decide(self.outbox.obs, range(self.num_envs))
        self._step(actions, self._all)
        self._over[:] = self.outbox.dones != 0

    def begin_episodes(self) -> None:
        """See BaseBridge."""
        self._over[:] = True

    def _step(self, actions: NDArray[np.float32], ids: EnvIds) -> None:
        self.step_envs(actions, ids)
        out = self.outbox
        np.bitwise_or(out.dones, out.truncated, out=out.dones)

    def _reset(self, ids: EnvIds, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]) -> None:
        self.outbox.rewards[ids] = 0
        self.outbox.dones[ids] = 0
        self.outbox.truncated[ids] = 0
        with blames_options(next(filter(None, options), None), int(ids[0]) if len(ids) == 1 else None):
            self.reset_envs(ids, seeds, options)
