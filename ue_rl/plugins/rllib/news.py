"""What env runners tell the process that trains, while it waits in RLlib: a named Ray actor between them.

RLlib's own metrics come with an iteration, as means. Here a runner tells of its engines when they are connected, lost
and back, and of each episode, four times a second.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.engines.lifecycle import Change
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.envs.vector_env import UnrealVectorEnv
from ue_rl.protocol.spec import EnvSpec
from ue_rl.training.fleet import EngineStatus, Fleet

_EVERY = 0.25  # seconds between two messages of a runner
_log = logging.getLogger("ue_rl.plugins.rllib")


class Connected(NamedTuple):
    """The engines of a runner answer: what they announce, how many envs, and Transport.describe()."""

    spec: EnvSpec
    num_envs: int
    facts: dict[str, Any]


class RunnerProgress(NamedTuple):
    """What was played since the last message."""

    env_steps: int
    episodes: list[EpisodeSummary]
    engines: list[EngineStatus]


Message = Connected | RunnerProgress | Change


class NewsActor:
    """The actor: keeps messages until they are taken."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, Message]] = []

    def put(self, worker_index: int, message: Message) -> None:
        """A message of an env runner."""
        self._messages.append((worker_index, message))

    def take(self) -> list[tuple[int, Message]]:
        """All since the last call, in order."""
        found = self._messages
        self._messages = []
        return found


class Sender:
    """An env runner's side.

    Args:
        name: of the actor; None or one that does not exist: nothing is told.
    """

    def __init__(self, name: str | None, worker_index: int) -> None:
        self._index = worker_index
        self._sent = 0.0
        self._desk = None
        if name is not None:
            import ray  # here: episodes are counted without it, too

            try:
                self._desk = ray.get_actor(name)
            except ValueError:
                _log.info("the training that made this config has ended: nothing is told of episodes")

    @property
    def heard(self) -> bool:
        """Is there anybody who is told?"""
        return self._desk is not None

    def tell(self, message: Message, *, wait: bool = False) -> None:
        """Sends it; `wait`: until it is there."""
        if self._desk is not None:
            reference = self._desk.put.remote(self._index, message)
            if wait:
                import ray

                ray.get(reference, timeout=30)

    def changed(self, change: Change) -> None:
        """Tells what becomes of an engine, but for its episodes."""
        if not change.of_episodes:
            self.tell(change)

    def played(self, record: EpisodeRecord, transport: Any, *, now: bool = False) -> None:
        """Tells what was played, where it is time for it; `now`: at once, and waits until it is there."""
        at = time.monotonic()
        if self._desk is not None and (now or at - self._sent >= _EVERY):
            self._sent = at
            self.tell(RunnerProgress(*record.take(), Fleet(transport).statuses()), wait=now)


class EpisodeSummary(NamedTuple):
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
        self._ended: list[EpisodeSummary] = []

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
        if acted is None:
            self.steps += len(rewards)
        else:
            self.steps += int(np.count_nonzero(acted))
        if np.count_nonzero(ended):
            now = time.monotonic()
            for env in np.flatnonzero(ended).tolist():
                seconds = round(now - self._begun[env], 6)
                self._ended.append(
                    EpisodeSummary(self.steps, float(self._returns[env]), int(self._lengths[env]), seconds)
                )

    def take(self) -> tuple[int, list[EpisodeSummary]]:
        """(env-steps, episodes that ended) since the last call."""
        found = self.steps, self._ended
        self.steps = 0
        self._ended = []
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
        begins = None
        if np.count_nonzero(self._over):
            begins = self._over
        answer = super().step(actions)
        if begins is not None:
            self.record.begin(begins)
        ended = self._over
        lost = self._lost
        if lost and np.count_nonzero(ended):
            ended = ended.copy()
            ended[sorted(lost)] = False
        valid = None
        if begins is not None:
            valid = ~begins
        self.record.step(answer[1], valid, ended)
        self._on_step()
        return answer
