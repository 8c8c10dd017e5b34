"""PendingConnections: connections that were accepted and belong to no session yet, in the order they came."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ue_rl.bridges.tcp.connection import Connection
from ue_rl.protocol.access.server_access import Refusals
from ue_rl.protocol.text.notices import busy_line, error_line

_log = logging.getLogger("ue_rl.bridges.tcp.server")


class PendingConnections:
    """First connections of trainers that wait for the one before them, and env sockets that a session takes next."""

    def __init__(self) -> None:
        self._waiting: list[Connection] = []
        self._refusals = Refusals(_log, "a trainer")

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

    def next(self) -> Connection | None:
        """The next first connection of a session; None: there is none.

        A socket that was closed again (a port probe, what is left of a trainer that died while it connected) is
        dropped, and so opens no session that the next trainer's sockets would fall into.
        """
        for connection in self:
            self.remove(connection)
            if not connection.gone and not connection.closed_by_peer():
                return connection
            connection.drop()
        return None

    def env_sockets(self, count: int, host: str, patient: bool) -> list[Connection]:
        """The `count` env sockets of a trainer at `host`, in the order they came; none while they are not all there.

        Nothing counts before it has said something: a port probe, or another trainer that waits for its handshake, is
        silent. Trainers say something on every env socket; some engines' own may not, on some of them.

        Args:
            patient: go on waiting for each to speak; otherwise `count` connections are taken for it where one has.
        """
        there = [one for one in self._waiting if not one.told and one.host == host]
        spoken = [one for one in there if one.heard]
        if len(spoken) < count and (patient or not spoken or len(there) != count):
            return []
        if len(spoken) >= count:
            chosen = spoken[:count]
        else:
            chosen = there
        for one in chosen:
            if one.gone or one.closed_by_peer():
                self.remove(one)
                one.drop()
        if any(one.gone for one in chosen):
            return self.env_sockets(count, host, patient)
        for one in chosen:
            self.remove(one)
        return chosen

    def drop_env_sockets(self, host: str) -> None:
        """Closes what a trainer at `host` has connected for its envs: it has gone before all were there."""
        for one in self:
            if one.heard and not one.told and one.host == host:
                self.remove(one)
                one.drop()

    def anybody_spoke(self, host: str) -> bool:
        """Has an env socket of a trainer at `host` been heard?"""
        return any(one.heard and not one.told and one.host == host for one in self._waiting)

    def anybody_from(self, host: str) -> bool:
        """Does anybody at `host` wait who was not told that somebody else is served?"""
        return any(not one.told and one.host == host for one in self._waiting)

    def tell_busy(self, since: float, peer: str, speaks: bool, but: str | None = None) -> None:
        """Tells whoever waits, once, that a trainer at `peer` has been served for `since` seconds.

        Args:
            speaks: may the line be sent, see EngineSession.speaks_notices? They count as told either way.
            but: not those at this address: they may be env sockets.
        """
        for connection in self._waiting:
            if not connection.told and connection.host != but:
                connection.told = True
                if speaks:
                    connection.write(busy_line(since, peer))

    def refuse(self, most: int, why: str, speaks: bool) -> None:
        """Closes those that came last, until `most` wait: they are told at once instead of by silence."""
        while len(self._waiting) > most:
            connection = self._waiting.pop()
            self._refusals.log(connection.peer, why)
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
