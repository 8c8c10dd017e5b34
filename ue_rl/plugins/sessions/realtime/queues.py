"""What stands between a world that moves and an agent that thinks: Mailbox of one observation, ActionQueue of 16."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from ue_rl.plugins.sessions.realtime.observation import ObservationColumns, SessionObservation

_T = TypeVar("_T")
ACTIONS = 16


class Mailbox:
    """The newest observation, for one reader. What is overwritten unread is counted, and its reward is kept.

    Attributes:
        unread: there is one that nobody has taken.
        dropped: observations that nobody has read.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: SessionObservation | tuple[ObservationColumns, int] | None = None
        self.unread = self._closed = False
        self.dropped = 0

    def put(self, observation: SessionObservation, wanted: bool = True) -> None:
        """Takes the place of what was there.

        Args:
            wanted: what is overwritten counts as dropped. False: the reader has asked for a later one.
        """
        with self._changed:
            old = self.newest
            if self.unread and old is not None:
                self.dropped += wanted
                tools = [*old.info.get("tools", ()), *observation.info.get("tools", ())]
                if not tools:
                    info = observation.info
                else:
                    info = {**observation.info, "tools": tools}
                observation = observation._replace(
                    reward=observation.reward + old.reward,
                    ticks_advanced=observation.ticks_advanced + old.ticks_advanced,
                    dropped_observations=self.dropped,
                    info=info,
                )
            self._newest = observation
            self.unread = True
            self._changed.notify_all()

    def give(self, seen: ObservationColumns, number: int) -> None:
        """As `put`, of one of several that its reader gets at once, by another way."""
        self._newest = (seen, number)
        self.unread = False

    def forget(self) -> None:
        """What is unread is of an episode that nobody plays any more."""
        self.unread = False

    @property
    def newest(self) -> SessionObservation | None:
        """The last one, read or not; None before the first."""
        newest = self._newest
        return newest if newest is None or isinstance(newest, SessionObservation) else newest[0][newest[1]]

    def take(self, timeout: float | None = 0.0) -> SessionObservation | None:
        """The newest, once; waits `timeout` seconds for it (None: for ever). None: there is none, or it was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self.unread or self._closed, timeout)
            if not self.unread:
                return None
            self.unread = False
            return self.newest

    def wait(self) -> None:
        """Until there is an observation, or it was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest is not None or self._closed)

    def close(self) -> None:
        """Wakes whoever waits; what is unread can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class ActionQueue(Generic[_T]):
    """Actions that wait for the next tick; of more than 16 the oldest are dropped and counted.

    Attributes:
        dropped: actions that were never applied.
    """

    def __init__(self, capacity: int = ACTIONS) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_T] = deque(maxlen=capacity)
        self.dropped = 0

    def put(self, action: _T) -> None:
        """At the end."""
        with self._lock:
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(action)

    def drain(self) -> list[_T]:
        """All of them, oldest first; the queue is empty then."""
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
            return taken
