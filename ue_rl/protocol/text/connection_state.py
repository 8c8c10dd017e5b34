"""ConnectionState: which message may come now, as one table for each role. No I/O. Nobody else sets a state."""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import Any

from ue_rl.system.errors import ConnectionUnusable, UeRlError, UnexpectedMessage


class Role(Enum):
    """Whose session it is."""

    TRAINER = auto()
    ENGINE = auto()


class ConnectionPhase(IntEnum):
    """Where a session stands. Of a trainer: NEW before it connects, HANDSHAKE until CONFIG has come."""

    NEW = 0
    HANDSHAKE = 1
    READY = 2
    ASKED = 3
    CLOSED = 4
    FAILED = 5


class ConnectionEvent(IntEnum):
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


_TRAINER: dict[tuple[ConnectionPhase, ConnectionEvent], ConnectionPhase] = {
    (ConnectionPhase.NEW, ConnectionEvent.CONNECT): ConnectionPhase.HANDSHAKE,
    (ConnectionPhase.HANDSHAKE, ConnectionEvent.CONFIG): ConnectionPhase.READY,
    (ConnectionPhase.READY, ConnectionEvent.ASK): ConnectionPhase.ASKED,
    (ConnectionPhase.ASKED, ConnectionEvent.ANSWERED): ConnectionPhase.READY,
    (ConnectionPhase.ASKED, ConnectionEvent.WITHDRAW): ConnectionPhase.READY,
}
_ENGINE: dict[tuple[ConnectionPhase, ConnectionEvent], ConnectionPhase] = {
    **_TRAINER,
    (
        ConnectionPhase.ASKED,
        ConnectionEvent.ASK,
    ): ConnectionPhase.ASKED,  # per-env sockets: one env may be asked while another one still acts
}


_PARTS = ("message", "fault", "env_id", "field", "expected", "got", "cure")
_ENDED = (ConnectionPhase.CLOSED, ConnectionPhase.FAILED)


def _rows(table: dict[tuple[ConnectionPhase, ConnectionEvent], ConnectionPhase]) -> list[list[ConnectionPhase | None]]:
    """The table as a list of rows, one for each state; CLOSE and FAIL may come at any time."""
    rows: list[list[ConnectionPhase | None]] = [
        [table.get((state, event)) for event in ConnectionEvent] for state in ConnectionPhase
    ]
    for state in ConnectionPhase:
        rows[state][ConnectionEvent.CLOSE] = ConnectionPhase.CLOSED
        if state in _ENDED:
            rows[state][ConnectionEvent.FAIL] = state
        else:
            rows[state][ConnectionEvent.FAIL] = ConnectionPhase.FAILED
    return rows


_TABLES = {Role.TRAINER: _rows(_TRAINER), Role.ENGINE: _rows(_ENGINE)}


class ConnectionState:
    """The order of one session's messages; CLOSE and FAIL may come at any time.

    A session that has failed or was closed takes nothing any more.

    Attributes:
        state: where it stands; only this class sets it. reason: why it failed; None where it has not.
    """

    __slots__ = ("_cause", "_role", "_row", "_rows", "reason", "state")

    def __init__(self, role: Role = Role.TRAINER) -> None:
        self._role = role
        self._rows = _TABLES[role]
        self._row = self._rows[ConnectionPhase.NEW]  # that of `state`: this lookup is in every step
        self.state = ConnectionPhase.NEW
        self.reason: str | None = None
        self._cause: dict[str, Any] = {}  # the parts of the first error; not the error, whose traceback holds frames

    @property
    def ended(self) -> bool:
        """Was it closed, or has it failed?"""
        return self.state in _ENDED

    def on(self, event: ConnectionEvent, reason: object = None) -> None:
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

    def require(self, event: ConnectionEvent) -> None:
        """Raises as `on` does where `event` cannot come now; changes nothing."""
        if self._row[event] is None:
            raise self._refusal(event)

    def _refusal(self, event: ConnectionEvent) -> ConnectionUnusable | UnexpectedMessage:
        state = self.state
        fault = "trainer"
        if self._role is Role.TRAINER:
            fault = "caller"
        if state is ConnectionPhase.FAILED:
            cause: dict[str, Any] = {"message": self.reason, **self._cause}
            cause["fault"] = cause.get("fault") or fault
            if cause.get("cure"):
                cause["cure"] = f"{cause['cure']}. Connect again"
            else:
                cause["cure"] = "connect again"
            return ConnectionUnusable(f"this connection failed before: {cause.pop('message')}", **cause)
        if state is ConnectionPhase.CLOSED:
            return ConnectionUnusable("this connection was closed", fault=fault, cure="connect again")
        if state in (ConnectionPhase.NEW, ConnectionPhase.HANDSHAKE):
            return ConnectionUnusable("this connection is not open yet", fault=fault, cure="call connect() first")
        if event in (ConnectionEvent.CONNECT, ConnectionEvent.CONFIG):
            return UnexpectedMessage("this connection is open already", fault=fault, cure="connect only once")
        if state is ConnectionPhase.ASKED:
            return UnexpectedMessage("a request is still unanswered", fault=fault, cure="call receive() first")
        if self._role is Role.ENGINE:
            return UnexpectedMessage("an answer was given, but nothing was asked", fault=fault)
        return UnexpectedMessage(
            "receive() was called, but nothing was asked", fault=fault, cure="call send_actions() or reset() first"
        )
