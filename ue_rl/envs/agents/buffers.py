"""Buffers for Stable-Baselines3 that leave out inactive rows (see GroupVecEnv): only true steps are learnt from.

    PPO("MlpPolicy", env, rollout_buffer_class=ActiveRolloutBuffer).learn(100_000, callback=ActiveRows())
    SAC("MlpPolicy", env, replay_buffer_class=ActiveReplayBuffer).learn(100_000)

A rollout buffer is not given the infos, so the callback tells it; a replay buffer is. An inactive row reports done in
every step, so the advantages of true steps never reach beyond the end of their own episode: nothing of an inactive step
is in what is learnt.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback

from ue_rl.system.errors import ConfigurationError

_ROLLOUT = ("actions", "values", "log_probs", "advantages", "returns")


def active_rows(infos: list[dict[str, Any]]) -> NDArray[np.bool_]:
    """Which rows took part in a step, bool [num_envs]."""
    return np.array([not info.get("inactive", False) for info in infos], np.bool_)


class ActiveRows(BaseCallback):
    """Tells an active rollout buffer which rows the step that it is about to be given is true for."""

    def _on_step(self) -> bool:
        buffer = getattr(self.model, "rollout_buffer", None)
        if isinstance(buffer, ActiveRollout):
            buffer.next_active = active_rows(self.locals["infos"])
        return True


class ActiveRollout:
    """The part that rollout buffers of arrays and of Dicts share; stands before the SB3 class.

    Attributes:
        next_active: bool [n_envs], of the step that is added next. active: bool [buffer_size, n_envs].
    """

    next_active: NDArray[np.bool_] | None
    active: NDArray[np.bool_]

    def reset(self: Any) -> None:
        """See RolloutBuffer.reset."""
        super().reset()  # type: ignore[misc]
        self.active = np.zeros((self.buffer_size, self.n_envs), np.bool_)
        self.next_active = None

    def add(self: Any, *args: Any, **kwargs: Any) -> None:
        """See RolloutBuffer.add.

        Raises:
            ConfigurationError: the callback is missing.
        """
        if self.next_active is None:
            raise ConfigurationError(
                "nobody tells the rollout buffer which rows are active",
                field="callback",
                cure="call learn(.., callback=ue_rl.envs.agents.ActiveRows()), beside your own in a list",
            )
        self.active[self.pos] = self.next_active
        self.next_active = None
        super().add(*args, **kwargs)  # type: ignore[misc]

    def get(self: Any, batch_size: int | None = None) -> Generator[Any, None, None]:
        """Batches of true steps alone; of a rollout without any, none can be made.

        Raises:
            ConfigurationError: no row was active in the whole rollout.
        """
        assert self.full
        if not self.generator_ready:
            true = self.swap_and_flatten(self.active).reshape(-1)
            if not true.any():
                raise ConfigurationError(
                    "no agent of this group could act in the whole rollout",
                    field="n_steps",
                    got=self.buffer_size,
                    cure="take a longer rollout: raise n_steps",
                )
            if isinstance(self.observations, dict):
                for key, rows in self.observations.items():
                    self.observations[key] = self.swap_and_flatten(rows)[true]
            else:
                self.observations = self.swap_and_flatten(self.observations)[true]
            for name in (*_ROLLOUT, *(("action_masks",) if hasattr(self, "action_masks") else ())):
                setattr(self, name, self.swap_and_flatten(getattr(self, name))[true])
            self.generator_ready = True
        count = len(self.actions)
        order = np.random.permutation(count)
        size = batch_size or count
        for start in range(0, count, size):
            yield self._get_samples(order[start : start + size])


class ActiveRolloutBuffer(ActiveRollout, RolloutBuffer):
    """RolloutBuffer without inactive rows; needs the callback ActiveRows. `active` says which rows are true."""


class ActiveDictRolloutBuffer(ActiveRollout, DictRolloutBuffer):
    """ActiveRolloutBuffer for Dict observations."""


class _ActiveReplay:
    """The part that replay buffers of arrays and of Dicts share: transitions one after the other, whosever they are."""

    def __init__(
        self: Any,
        buffer_size: int,
        observation_space: Any,
        action_space: Any,
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
    ) -> None:
        if optimize_memory_usage:
            what = "rows come and go: the next observation is not in the next place"
            raise ConfigurationError(what, field="optimize_memory_usage", expected=False, got=True)
        cast(Any, super()).__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs=1,
            handle_timeout_termination=handle_timeout_termination,
        )
        self.rows = n_envs

    def add(
        self: Any, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]
    ) -> None:
        """Stores the transitions of active rows; shapes as ReplayBuffer.add with n_envs rows."""
        for row in np.flatnonzero(active_rows(infos)).tolist():
            one = slice(row, row + 1)
            super().add(  # type: ignore[misc]
                _cut(obs, one), _cut(next_obs, one), action[one], reward[one], done[one], infos[one]
            )


def _cut(observation: Any, rows: slice) -> Any:
    return {k: v[rows] for k, v in observation.items()} if isinstance(observation, dict) else observation[rows]


class ActiveReplayBuffer(_ActiveReplay, ReplayBuffer):
    """ReplayBuffer without inactive rows; it holds `buffer_size` transitions, of whichever rows they are."""


class ActiveDictReplayBuffer(_ActiveReplay, DictReplayBuffer):
    """ActiveReplayBuffer for Dict observations."""
