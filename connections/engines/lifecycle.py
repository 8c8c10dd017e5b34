"""The life of one engine as its trainer sees it: the states, which may follow which, and who is told.

IDLE -> LAUNCHING -> LOADING -> CONNECTING -> STREAMING -> PLAYING <-> EPISODE_OVER; an engine that the trainer did not
start goes from IDLE to CONNECTING. What goes wrong is TIMEOUT or CONNECTION_LOST; CLEANUP follows, then another start,
QUOTA_SPENT, or IDLE again at the end of the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

_log = logging.getLogger("ue_rl.connections.engines")


class LifeState(Enum):
    """What an engine is doing."""

    IDLE = "idle"  # not started, or ended in good order
    LAUNCHING = "launching"  # its process is being started
    LOADING = "loading"  # its process runs, and does not answer yet
    CONNECTING = "connecting"  # it is dialled, or shakes hands
    STREAMING = "streaming"  # connected; no episode was begun
    PLAYING = "playing"  # its envs take steps
    EPISODE_OVER = "episode over"  # an env of it waits for its reset
    TIMEOUT = "timeout"  # it did not answer, start or connect in time
    CONNECTION_LOST = "connection lost"  # it went away, or sent what the protocol does not allow
    CLEANUP = "cleanup"  # its socket is closed, and its process ended if we started it
    QUOTA_SPENT = "quota spent"  # it was lost too often; it is not started again


_S = LifeState
_ALIVE = (_S.LAUNCHING, _S.LOADING, _S.CONNECTING, _S.STREAMING, _S.PLAYING, _S.EPISODE_OVER)
FOLLOWS: dict[LifeState, frozenset[LifeState]] = {
    _S.IDLE: frozenset((_S.LAUNCHING, _S.CONNECTING)),
    _S.LAUNCHING: frozenset((_S.LOADING,)),
    _S.LOADING: frozenset((_S.CONNECTING,)),
    _S.CONNECTING: frozenset((_S.STREAMING,)),
    _S.STREAMING: frozenset((_S.PLAYING,)),
    _S.PLAYING: frozenset((_S.EPISODE_OVER,)),
    _S.EPISODE_OVER: frozenset((_S.PLAYING,)),
    _S.TIMEOUT: frozenset((_S.CLEANUP,)),
    _S.CONNECTION_LOST: frozenset((_S.CLEANUP,)),
    _S.CLEANUP: frozenset((_S.LAUNCHING, _S.CONNECTING, _S.QUOTA_SPENT, _S.IDLE)),
    _S.QUOTA_SPENT: frozenset((_S.CLEANUP,)),
}
for _state in _ALIVE:
    FOLLOWS[_state] |= {_S.TIMEOUT, _S.CONNECTION_LOST, _S.CLEANUP}
# An engine that comes and goes thousands of times a minute between these two is no news.
_EPISODES = frozenset((_S.PLAYING, _S.EPISODE_OVER))


@dataclass(frozen=True)
class Change:
    """An engine goes from one state to another.

    Attributes:
        engine: its number, from 0. reason: a sentence, "" where there is nothing to say. at: time.time() seconds.
    """

    engine: int
    before: LifeState
    after: LifeState
    reason: str = ""
    at: float = field(default_factory=time.time)

    @property
    def of_episodes(self) -> bool:
        """Only an episode that ended, or began: many of these come each second."""
        return self.before in _EPISODES and self.after in _EPISODES


Listener = Callable[[Change], object]


class Life:
    """The state of one engine.

    Args:
        engine: its number. listener: called at each change, in the trainer's thread; what it raises ends the run.

    Attributes:
        state: where it stands; only this class sets it.
        alive: it is being started, connected or played.
    """

    __slots__ = ("_listener", "engine", "state")

    def __init__(self, engine: int, listener: Listener | None = None) -> None:
        self.engine = engine
        self._listener = listener
        self.state = LifeState.IDLE

    @property
    def alive(self) -> bool:
        """See the class."""
        return self.state in _ALIVE

    @contextmanager
    def told_by(self, listener: Listener) -> Iterator[Listener | None]:
        """Within the block `listener` is called instead of the own one, which is given."""
        own = self._listener
        self._listener = listener
        try:
            yield own
        finally:
            self._listener = own

    def episode(self, over: bool) -> None:
        """To EPISODE_OVER, or to PLAYING, where it is not there; costs next to nothing if nobody listens."""
        if over:
            state = _S.EPISODE_OVER
        else:
            state = _S.PLAYING
        if state is self.state:
            return
        if self._listener is None and self.state in _EPISODES and not _log.isEnabledFor(logging.DEBUG):
            self.state = state
            return
        if self.state is _S.STREAMING and over:  # a step before any reset
            self.to(_S.PLAYING)
        self.to(state)

    def to(self, state: LifeState, reason: str = "") -> None:
        """Goes on to `state`; one log line, at DEBUG for episodes and at INFO for anything else.

        Raises:
            ValueError: `state` cannot follow: a mistake of the caller's in this library.
        """
        before = self.state
        if state not in FOLLOWS[before]:
            raise ValueError(f"{state.value} cannot follow {before.value}")
        self.state = state
        change = Change(self.engine, before, state, reason)
        if change.of_episodes:
            level = logging.DEBUG
        else:
            level = logging.INFO
        if _log.isEnabledFor(level):
            text = ""
            if reason:
                text = f": {reason}"
            _log.log(
                level, "engine %d: %s -> %s%s", self.engine, before.value, state.value, text, extra={"change": change}
            )
        if self._listener is not None:
            self._listener(change)
