"""Session: which message may come now, as one table. No I/O."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from ue_rl.errors import ConnectionUnusable, UnexpectedMessage


class State(Enum):
    """Where a trainer's session stands."""

    NEW = auto()
    HANDSHAKE = auto()
    READY = auto()
    ASKED = auto()
    CLOSED = auto()
    FAILED = auto()


class Event(Enum):
    """What may happen to a trainer's session."""

    CONNECT = auto()
    CONFIG = auto()
    ASK = auto()
    ANSWERED = auto()
    CLOSE = auto()
    FAIL = auto()


_TABLE: dict[tuple[State, Event], State] = {
    (State.NEW, Event.CONNECT): State.HANDSHAKE,
    (State.HANDSHAKE, Event.CONFIG): State.READY,
    (State.READY, Event.ASK): State.ASKED,
    (State.ASKED, Event.ANSWERED): State.READY,
}


class Session:
    """The order of a trainer's messages, as one table; CLOSE and FAIL may come at any time.

    A session that has failed or was closed takes nothing any more.
    """

    def __init__(self) -> None:
        self.state = State.NEW
        self.reason: str | None = None

    def on(self, event: Event, reason: Any = None) -> None:
        """Takes an event.

        Raises:
            ConnectionUnusable: after close() or a failure, or before connect().
            UnexpectedMessage: the event cannot come now.
        """
        following = _TABLE.get((self.state, event))
        if following is not None:
            self.state = following
        elif event is Event.FAIL:
            if self.state not in (State.CLOSED, State.FAILED):
                self.state, self.reason = State.FAILED, str(reason)
        elif event is Event.CLOSE:
            self.state = State.CLOSED
        elif self.state is State.FAILED:
            raise ConnectionUnusable(
                f"this connection failed before: {self.reason}", fault="caller", cure="connect again"
            )
        elif self.state is State.CLOSED:
            raise ConnectionUnusable("this connection was closed", fault="caller", cure="connect again")
        elif self.state in (State.NEW, State.HANDSHAKE):
            raise ConnectionUnusable("this connection is not open yet", fault="caller", cure="call connect() first")
        else:
            raise UnexpectedMessage(
                f"{event.name} while {self.state.name}", fault="caller",
                cure="receive the answers of one request before the next one is sent",
            )  # fmt: skip
