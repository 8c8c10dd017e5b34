"""EpisodeRecord: the episodes of an env runner, as the game played them, whichever loop asks the envs. No Ray."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.engines.transport import EnginesTransport
from ue_rl.envs.vector_env import UnrealVectorEnv


class Episode(NamedTuple):
    """One that ended.

    Attributes:
        at: env-steps that its env runner had taken when it ended, since the last `take`.
        value: its return. length: in steps. seconds: it took.
    """

    at: int
    value: float
    length: int
    seconds: float


class EpisodeRecord:
    """Adds up rewards and steps of N envs.

    Attributes:
        steps: env-steps since the last `take`. paused: nothing is noted, because this is an evaluation.
    """

    def __init__(self, num_envs: int) -> None:
        self.paused = False
        self.steps = 0
        self._returns = np.zeros(num_envs, np.float64)
        self._lengths = np.zeros(num_envs, np.int64)
        self._begun = np.full(num_envs, time.monotonic())
        self._ended: list[Episode] = []

    def begin(self, envs: NDArray[np.bool_]) -> None:
        """These envs (bool [num_envs]) are at the first observation of an episode."""
        self._returns[envs], self._lengths[envs], self._begun[envs] = 0, 0, time.monotonic()

    def step(self, rewards: NDArray[Any], acted: NDArray[np.bool_] | None, ended: NDArray[np.bool_]) -> None:
        """One step of all envs.

        Args:
            rewards: [num_envs]. acted: who took it; None: all. ended: whose episode is over with it, bool [num_envs].
        """
        self._returns += rewards
        if acted is None:
            self._lengths += 1
        else:
            self._lengths += acted
        if self.paused:
            return
        self.steps += len(rewards) if acted is None else int(np.count_nonzero(acted))
        if np.count_nonzero(ended):
            now = time.monotonic()
            for env in np.flatnonzero(ended).tolist():
                seconds = round(now - self._begun[env], 6)
                self._ended.append(Episode(self.steps, float(self._returns[env]), int(self._lengths[env]), seconds))

    def take(self) -> tuple[int, list[Episode]]:
        """(env-steps, episodes that ended) since the last call."""
        found = self.steps, self._ended
        self.steps, self._ended = 0, []
        return found


class RecordedEnv(UnrealVectorEnv):
    """An UnrealVectorEnv that fills `record`; what an engine's loss cuts short is no episode of it.

    Args:
        on_step: called after each step.
    """

    def __init__(self, transport: EnginesTransport, on_step: Callable[[], object]) -> None:
        super().__init__(transport)
        self.record = EpisodeRecord(self.num_envs)
        self._lost = transport.buffers.lost
        self._on_step = on_step

    def reset(self, **given: Any) -> Any:
        """See UnrealVectorEnv; of all envs, as env runners have it."""
        answer = super().reset(**given)
        self.record.begin(np.ones(self.num_envs, np.bool_))
        return answer

    def step(self, actions: Any) -> Any:
        """See UnrealVectorEnv."""
        begins = self._over if np.count_nonzero(self._over) else None
        answer = super().step(actions)
        if begins is not None:
            self.record.begin(begins)
        ended, lost = self._over, self._lost
        if lost and np.count_nonzero(ended):
            ended = ended.copy()
            ended[sorted(lost)] = False
        self.record.step(answer[1], None if begins is None else ~begins, ended)
        self._on_step()
        return answer
