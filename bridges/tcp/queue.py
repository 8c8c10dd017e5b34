"""Queue: connections that were accepted and belong to no session yet, in the order they came."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ue_rl.bridges.tcp.connection import Connection
from ue_rl.wire.notices import busy_line, error_line

_log = logging.getLogger("ue_rl.bridges.tcp.server")


class Queue:
    """First connections of trainers that wait for the one before them, and env sockets that a session takes next."""

    def __init__(self) -> None:
        self._waiting: list[Connection] = []

    def __iter__(self) -> Iterator[Connection]:
        """In the order they came."""
        return iter([*self._waiting])

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, connection: Connection) -> None:
        """One was accepted."""
        self._waiting.append(connection)

    def remove(self, connection: Connection) -> None:
        """One has gone; nothing happens where it is not here."""
        if connection in self._waiting:
            self._waiting.remove(connection)

    def next(self, first: bool) -> Connection | None:
        """The next first connection of a session (`first`), or env socket; None: what waits is for a later session.

        A socket that was closed again (a port probe, what is left of a trainer that died while it connected) is
        dropped, and so opens no session that the next trainer's sockets would fall into.
        """
        for connection in self:
            if connection.gone or connection.closed_by_peer():
                self.remove(connection)
                connection.drop()
            elif first or not connection.told:
                self.remove(connection)
                return connection
        return None

    def tell_busy(self, since: float, peer: str, speaks: bool) -> None:
        """Tells whoever waits, once, that a trainer at `peer` has been served for `since` seconds.

        Args:
            speaks: may the line be sent, see EngineSession.speaks_notices? They count as told either way.
        """
        for connection in self._waiting:
            if not connection.told:
                connection.told = True
                if speaks:
                    connection.write(busy_line(since, peer))

    def refuse(self, most: int, why: str, speaks: bool) -> None:
        """Closes those that came last, until `most` wait: they are told at once instead of by silence."""
        while len(self._waiting) > most:
            connection = self._waiting.pop()
            _log.warning("a trainer from %s was refused: %s", connection.peer, why)
            if speaks and not connection.told:
                connection.write(error_line(why))
            connection.drop()

    def close(self, why: str, speaks: bool) -> None:
        """Closes all: the server stops."""
        for connection in self._waiting:
            if speaks:
                connection.write(error_line(why))
            connection.drop()
        self._waiting.clear()
