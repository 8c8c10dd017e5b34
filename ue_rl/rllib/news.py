"""What env runners tell the process that trains, while it waits in RLlib: a named Ray actor between them.

RLlib's own metrics come with an iteration, as means. Here a runner tells of its engines when they are connected, lost
and back, and of each episode, four times a second.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import logging
import time
from typing import Any, NamedTuple

import ray

from ue_rl.engines.lifecycle import Change
from ue_rl.rllib.records import Episode, EpisodeRecord
from ue_rl.spec import EnvSpec
from ue_rl.training.fleet import EngineStatus, Fleet

_EVERY = 0.25  # seconds between two messages of a runner
_log = logging.getLogger("ue_rl.rllib")


class Connected(NamedTuple):
    """The engines of a runner answer: what they announce, how many envs, and Transport.describe()."""

    spec: EnvSpec
    num_envs: int
    facts: dict[str, Any]


class Played(NamedTuple):
    """What was played since the last message."""

    env_steps: int
    episodes: list[Episode]
    engines: list[EngineStatus]


Message = Connected | Played | Change


class Desk:
    """The actor: keeps messages until they are taken."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, Message]] = []

    def put(self, worker_index: int, message: Message) -> None:
        """A message of an env runner."""
        self._messages.append((worker_index, message))

    def take(self) -> list[tuple[int, Message]]:
        """All since the last call, in order."""
        found, self._messages = self._messages, []
        return found


class Sender:
    """An env runner's side.

    Args:
        name: of the actor; None or one that does not exist: nothing is told.
    """

    def __init__(self, name: str | None, worker_index: int) -> None:
        self._index, self._sent, self._desk = worker_index, 0.0, None
        if name is not None:
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
            self.tell(Played(*record.take(), Fleet(transport).statuses()), wait=now)
