"""LifeCycle: where a session of a game that does not wait stands, as one table. Nobody else sets a phase."""

from __future__ import annotations

import threading
import time
from enum import Enum, auto

from ue_rl.system.errors import UnexpectedMessage


class Phase(str, Enum):
    """The phases of a session; the names go over every carrier."""

    IDLE = "IDLE"  # before it begins, and after it has been cleaned up
    LAUNCHING = "LAUNCHING"  # the game is being made
    LOADING = "LOADING"  # an episode is being made
    CONNECTING = "CONNECTING"  # it could be played; nobody is there yet
    STREAMING = "STREAMING"  # an agent is there, and the world stands still: it plans
    PLAYING = "PLAYING"  # the world moves
    GAME_OVER = "GAME_OVER"  # the episode has ended; a reset begins the next one
    CLEANUP = "CLEANUP"
    LOADING_REPLAY = "LOADING_REPLAY"
    REPLAYING = "REPLAYING"
    REPLAY_ENDED = "REPLAY_ENDED"
    TIMEOUT = "TIMEOUT"  # it took too long to load, or was idle for too long
    CONNECTION_LOST = "CONNECTION_LOST"  # the agent or the game has gone


class SessionEvent(Enum):
    """What may happen to a session."""

    LAUNCH = auto()
    LAUNCHED = auto()
    LOADED = auto()
    ATTACH = auto()  # an agent is there
    START = auto()  # the world moves from now on
    OVER = auto()  # the episode, or the replay, has ended
    RESET = auto()
    LOAD_REPLAY = auto()
    EXPIRE = auto()
    LOSE = auto()
    DESTROY = auto()
    CLEANED = auto()


_P = Phase
_E = SessionEvent
_LIVE = (
    _P.LAUNCHING, _P.LOADING, _P.CONNECTING, _P.STREAMING, _P.PLAYING, _P.GAME_OVER,
    _P.LOADING_REPLAY, _P.REPLAYING, _P.REPLAY_ENDED,
)  # fmt: skip
_LOST = (_P.TIMEOUT, _P.CONNECTION_LOST)
TABLE: dict[tuple[Phase, SessionEvent], Phase] = {
    (_P.IDLE, _E.LAUNCH): _P.LAUNCHING,
    (_P.LAUNCHING, _E.LAUNCHED): _P.LOADING,
    (_P.LOADING, _E.LOADED): _P.CONNECTING,
    (_P.LOADING, _E.OVER): _P.GAME_OVER,  # what was asked of the reset cannot be done: another one may
    (_P.CONNECTING, _E.ATTACH): _P.STREAMING,
    (_P.CONNECTING, _E.START): _P.PLAYING,
    (_P.STREAMING, _E.START): _P.PLAYING,
    (_P.PLAYING, _E.OVER): _P.GAME_OVER,
    **{(phase, _E.RESET): _P.LOADING for phase in (_P.CONNECTING, _P.STREAMING, _P.PLAYING, _P.GAME_OVER)},
    (_P.IDLE, _E.LOAD_REPLAY): _P.LOADING_REPLAY,
    (_P.LOADING_REPLAY, _E.LOADED): _P.REPLAYING,
    (_P.REPLAYING, _E.OVER): _P.REPLAY_ENDED,
    (_P.REPLAY_ENDED, _E.LOAD_REPLAY): _P.LOADING_REPLAY,
    **{(phase, _E.EXPIRE): _P.TIMEOUT for phase in _LIVE},
    **{(phase, _E.LOSE): _P.CONNECTION_LOST for phase in _LIVE},
    **{(phase, _E.DESTROY): _P.CLEANUP for phase in (*_LIVE, *_LOST)},
    (_P.CLEANUP, _E.CLEANED): _P.IDLE,
}


class LifeCycle:
    """Where one session stands; safe to use from several threads.

    Attributes:
        phase: only this class sets it. since: when that was, time.monotonic(). live: can it still be used?
        reason: why the session ends; "" while it lives.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.phase = Phase.IDLE
        self.since = time.monotonic()
        self.live = False
        self.reason = ""

    def on(self, event: SessionEvent, reason: str = "") -> None:
        """Takes an event; the first `reason` is kept.

        Raises:
            UnexpectedMessage: it cannot come in this phase.
        """
        if not self.may(event, reason):
            raise UnexpectedMessage(
                f"{event.name} cannot happen to a session that is {self.phase.value}",
                fault="caller",
                expected=", ".join(sorted(each.name for phase, each in TABLE if phase is self.phase)),
                got=event.name,
            )

    def may(self, event: SessionEvent, reason: str = "") -> bool:
        """As `on`, where the event may have come too late: whether it was taken."""
        with self._lock:
            following = TABLE.get((self.phase, event))
            if following is not None:
                self.phase = following
                self.since = time.monotonic()
                self.live = following in _LIVE
                self.reason = self.reason or reason
            return following is not None
