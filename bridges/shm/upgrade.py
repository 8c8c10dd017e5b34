"""ShmUpgrader: a TCP server that offers each trainer shared memory, as HTTP offers an upgrade (docs/shared-memory.md).

    BridgeServer(bridge, upgrader=ShmUpgrader())
    run_in_thread(bridge, upgrader=ShmUpgrader())

Every session gets a segment of its own, named in the handshake and deleted with the session, or as soon as the trainer
has spoken text. The socket of a trainer that takes the offer carries doorbells from then on, in a thread of its own.
"""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING, Any

from ue_rl.bridges.hosting import UpgradableSession
from ue_rl.bridges.shm.host import ShmHost
from ue_rl.protocol.memory.offer import READY, offer_text, proves, refuse_line
from ue_rl.system.errors import ConfigurationError, UnexpectedMessage

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge

_log = logging.getLogger("ue_rl.bridges.shm")


class ShmUpgrader:
    """Makes the offers, for one server; see bridges/tcp/session.py for what each call means.

    Args:
        options: of ShmHost (ring_size, spin_us, gpu); not `name`: every session has a fresh one.
    """

    def __init__(self, **options: Any) -> None:
        if "name" in options:
            raise ConfigurationError(
                "the segments of an upgrade are named anew for each session",
                field="name",
                cure="to be attached by name, host the bridge with ShmHost(bridge, name=..)",
            )
        self._options = options
        self._host: ShmHost | None = None
        self._told = ""

    def offer(self, bridge: BaseBridge) -> str | None:
        """See Upgrader.offer."""
        try:
            self._host = ShmHost(bridge, guest=True, **self._options)
        except ConfigurationError as error:
            if str(error) != self._told:  # once, not once a session
                self._told = str(error)
                _log.warning("no shared memory to offer, trainers are served over TCP: %s", error)
            return None
        return offer_text(self._host.name, self._host.memory.header.token)

    def accept(self, line: bytes, session: UpgradableSession) -> ShmSession | None:
        """See Upgrader.accept."""
        host = self._host
        self._host = None
        assert host is not None
        if not proves(line, host.memory.header.proof):
            return self._refuse(host, session, "the proof is not this segment's")
        try:
            sock = session.detach()
        except OSError as error:
            return self._refuse(host, session, str(error))
        try:
            sock.sendall(READY)
            return ShmSession(host, sock, session)
        except BaseException as error:
            sock.close()
            host.close()
            if not isinstance(error, OSError):
                raise
            raise UnexpectedMessage(
                "the trainer has gone before its offer was answered", fault="trainer", field="SHM", got=str(error)
            ) from error

    @staticmethod
    def _refuse(host: ShmHost, session: UpgradableSession, why: str) -> None:
        _log.warning("a trainer goes on over TCP: %s", why)
        session.write(refuse_line(why))
        host.close()

    def withdraw(self) -> None:
        """See Upgrader.withdraw."""
        host = self._host
        self._host = None
        if host is not None:
            host.close()


class ShmSession:
    """One trainer's session over its segment, in a thread of its own (an Upgrade of bridges/tcp/session.py)."""

    def __init__(self, host: ShmHost, sock: socket.socket, session: UpgradableSession) -> None:
        self._host = host
        self._session = session
        host.tick_rate = session.tick_rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(sock,), name="ue_rl-shm", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """See Upgrade.close."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self, sock: socket.socket) -> None:
        try:
            self._host.run(self._stop, sock)
        finally:
            self._host.close()
            self._session.finish()
