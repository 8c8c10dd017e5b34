"""EngineSource: where a connection to one engine comes from, again and again."""

from __future__ import annotations

from typing import Protocol

from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.engines.lifecycle import Life
from ue_rl.system.errors import UeRlError


class EngineSource(Protocol):
    """One engine: an address that is dialled, or a command that is started and then dialled.

    Attributes:
        name: for messages, such as "tcp://127.0.0.1:7777" or "./Game.sh --port 7801".
    """

    name: str

    # def start(self, life: Life) -> None: optional. Called just before `open`, of all engines that are to be opened
    # before the first of those `open`s, and returns at once: begin with the start here, and wait for it in `open`.

    def open(self, life: Life) -> BaseTransport:
        """A connected transport. It is called again after `lost`, for the next life of the same engine.

        Args:
            life: is brought from IDLE or CLEANUP to STREAMING on the way, to TIMEOUT or CONNECTION_LOST on failure.

        Raises:
            TransportError, ProtocolError: no engine within the deadline; nothing of this attempt is left behind. Of a
                further life that is a loss again, followed by another attempt within the quota.
            RestartsSpent: of a further life: it is no use to try again. Any other UeRlError ends the run, too.
        """
        ...

    def lost(self, error: UeRlError) -> UeRlError:
        """The engine failed: ends what is left of it, a process that we started and all its children.

        Returns:
            `error`, with what is known beside it: the exit code or signal, the engine's last words.
        """
        ...

    def close(self) -> None:
        """Ends the engine if we started it; idempotent, never raises."""
