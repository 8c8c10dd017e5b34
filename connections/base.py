"""BaseConnection: the life of a transport, whatever carries it: made, connected, closed or failed for good."""

from __future__ import annotations

import abc
from typing import TypeVar

from ue_rl.errors import UeRlError
from ue_rl.session import Event, Session
from ue_rl.spec import EnvSpec

_Self = TypeVar("_Self", bound="BaseConnection")


class BaseConnection(abc.ABC):
    """See ue_rl/transport.py for what each call promises."""

    def __init__(self) -> None:
        self._session = Session()
        self._spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec:
        """What the handshake, or the segment, says."""
        if self._spec is None:
            self._session.on(Event.ASK)  # says why not
        assert self._spec is not None
        return self._spec

    @abc.abstractmethod
    def connect(self) -> EnvSpec:
        """See Transport.connect."""

    @abc.abstractmethod
    def _drop(self) -> None:
        """Lets go of everything; idempotent, never raises."""

    def close(self) -> None:
        """See Transport.close. Arrays that were given out stay readable."""
        self._session.on(Event.CLOSE)
        self._drop()

    def fail(self, error: UeRlError) -> None:
        """Makes the connection dead because of `error`: the next use says so."""
        self._session.on(Event.FAIL, error)
        self._drop()

    def __enter__(self: _Self) -> _Self:
        """Connects."""
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()
