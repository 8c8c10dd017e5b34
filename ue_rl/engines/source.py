"""EngineSource: where a connection to one engine comes from, again and again."""

from __future__ import annotations

from typing import Protocol

from ue_rl.engines.lifecycle import Life
from ue_rl.errors import UeRlError
from ue_rl.transport import Transport


class EngineSource(Protocol):
    """One engine: an address that is dialled, or a command that is started and then dialled.

    Attributes:
        name: for messages, such as "tcp://127.0.0.1:7777" or "./Game.sh --port 7801".
    """

    name: str

    def open(self, life: Life) -> Transport:
        """A connected transport. It is called again after `lost`, for the next life of the same engine.

        Args:
            life: is brought from IDLE or CLEANUP to STREAMING on the way, to TIMEOUT or CONNECTION_LOST on failure.

        Raises:
            UeRlError: no engine within the deadline; nothing of this attempt is left behind.
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
        ...
