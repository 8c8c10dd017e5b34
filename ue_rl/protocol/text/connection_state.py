"""Session: which message may come now, as one table for each role. No I/O. Nobody else sets a state."""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import Any

from ue_rl.system.errors import ConnectionUnusable, UeRlError, UnexpectedMessage


class Role(Enum):
    """Whose session it is."""

    TRAINER = auto()
    ENGINE = auto()


class State(IntEnum):
    """Where a session stands. Of a trainer: NEW before it connects, HANDSHAKE until CONFIG has come."""

    NEW = 0
    HANDSHAKE = 1
    READY = 2
    ASKED = 3
    CLOSED = 4
    FAILED = 5


class Event(IntEnum):
    """What may happen to a session.

    CONNECT: the first connection is there. CONFIG: both sides know the spec and the wiring. ASK: a request.
    ANSWERED: every env that was asked has answered. CLOSE, FAIL: the end. WITHDRAW: nothing of the request was sent.
    """

    CONNECT = 0
    CONFIG = 1
    ASK = 2
    ANSWERED = 3
    CLOSE = 4
    FAIL = 5
    WITHDRAW = 6


_TRAINER: dict[tuple[State, Event], State] = {
    (State.NEW, Event.CONNECT): State.HANDSHAKE,
    (State.HANDSHAKE, Event.CONFIG): State.READY,
    (State.READY, Event.ASK): State.ASKED,
    (State.ASKED, Event.ANSWERED): State.READY,
    (State.ASKED, Event.WITHDRAW): State.READY,
}
_ENGINE: dict[tuple[State, Event], State] = {
    **_TRAINER,
    (State.ASKED, Event.ASK): State.ASKED,  # per-env sockets: one env may be asked while another one still acts
}


_PARTS = ("message", "fault", "env_id", "field", "expected", "got", "cure")
_ENDED = (State.CLOSED, State.FAILED)


def _rows(table: dict[tuple[State, Event], State]) -> list[list[State | None]]:
    """The table as a list of rows, one for each state; CLOSE and FAIL may come at any time."""
    rows: list[list[State | None]] = [[table.get((state, event)) for event in Event] for state in State]
    for state in State:
        rows[state][Event.CLOSE] = State.CLOSED
        rows[state][Event.FAIL] = state if state in _ENDED else State.FAILED
    return rows


_TABLES = {Role.TRAINER: _rows(_TRAINER), Role.ENGINE: _rows(_ENGINE)}


class Session:
    """The order of one session's messages; CLOSE and FAIL may come at any time.

    A session that has failed or was closed takes nothing any more.

    Attributes:
        state: where it stands; only this class sets it. reason: why it failed; None where it has not.
    """

    __slots__ = ("_cause", "_role", "_row", "_rows", "reason", "state")

    def __init__(self, role: Role = Role.TRAINER) -> None:
        self._role = role
        self._rows = _TABLES[role]
        self._row = self._rows[State.NEW]  # that of `state`: this lookup is in every step
        self.state = State.NEW
        self.reason: str | None = None
        self._cause: dict[str, Any] = {}  # the parts of the first error; not the error, whose traceback holds frames

    @property
    def ended(self) -> bool:
        """Was it closed, or has it failed?"""
        return self.state in _ENDED

    def on(self, event: Event, reason: object = None) -> None:
        """Takes an event; `reason` is for FAIL: the first one is what every later refusal says.

        Raises:
            ConnectionUnusable: after close() or a failure, or before connect().
            UnexpectedMessage: the event cannot come now.
        """
        following = self._row[event]
        if following is None:
            raise self._refusal(event)
        if reason is not None and following is not self.state:
            self.reason = str(reason)
            if isinstance(reason, UeRlError):
                self._cause = {part: getattr(reason, part) for part in _PARTS}
        self.state = following
        self._row = self._rows[following]

    def require(self, event: Event) -> None:
        """Raises as `on` does where `event` cannot come now; changes nothing."""
        if self._row[event] is None:
            raise self._refusal(event)

    def _refusal(self, event: Event) -> ConnectionUnusable | UnexpectedMessage:
        state, fault = self.state, "caller" if self._role is Role.TRAINER else "trainer"
        if state is State.FAILED:
            cause: dict[str, Any] = {"message": self.reason, **self._cause}
            cause["fault"] = cause.get("fault") or fault
            cause["cure"] = f"{cause['cure']}. Connect again" if cause.get("cure") else "connect again"
            return ConnectionUnusable(f"this connection failed before: {cause.pop('message')}", **cause)
        if state is State.CLOSED:
            return ConnectionUnusable("this connection was closed", fault=fault, cure="connect again")
        if state in (State.NEW, State.HANDSHAKE):
            return ConnectionUnusable("this connection is not open yet", fault=fault, cure="call connect() first")
        if event in (Event.CONNECT, Event.CONFIG):
            return UnexpectedMessage("this connection is open already", fault=fault, cure="connect only once")
        if state is State.ASKED:
            return UnexpectedMessage("a request is still unanswered", fault=fault, cure="call receive() first")
        if self._role is Role.ENGINE:
            return UnexpectedMessage("an answer was given, but nothing was asked", fault=fault)
        return UnexpectedMessage(
            "receive() was called, but nothing was asked", fault=fault, cure="call send_actions() or reset() first"
        )
