"""Carrier: what each way to the engine implements. BaseTransport drives it, and has checked what it is to send."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.base.batched_step import BatchedStep
from ue_rl.protocol.buffers import Next, Resets, StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import UnsupportedByEngine


class Carrier(Transport):
    """Needed are `_open`, `_ask`, `_ask_resets`, `_collect`, `_drop` and `describe`; the rest is for who can more.

    Attributes:
        buffers, handshake: see Transport; set by `_open`.
        carries: what it is, for error messages.
    """

    carries = "this connection"
    handshake = ""

    @abc.abstractmethod
    def _open(self) -> EnvSpec:
        """Connects, shakes hands and makes `buffers`."""

    @abc.abstractmethod
    def _ask(self, actions: NDArray[np.float32], resets: Resets | None) -> None:
        """Sends a step of all envs but those that are reset.

        Calls `check_actions` where its encoder does not check them as strictly.

        Args:
            resets: checked, never of all envs; None in the usual case.

        Raises:
            ActionError: only before anything was sent. Anything else makes the connection dead.
        """

    @abc.abstractmethod
    def _ask_resets(self, resets: Resets) -> None:
        """Sends resets; they were checked.

        Raises:
            ConfigurationError, UnsupportedByEngine: only before anything was sent. Anything else makes the connection
                dead.
        """

    @abc.abstractmethod
    def _collect(self) -> None:
        """Waits until every asked env has answered into `buffers`."""

    def _call(self, line: bytes) -> bytes:
        """Sends a request beside the steps, without its line ending, and waits for its answer, which is returned so."""
        raise UnsupportedByEngine(
            f"{self.carries} has no requests beside the steps", field=line[:40].decode("ascii", "replace")
        )

    @abc.abstractmethod
    def _drop(self) -> None:
        """Lets go of everything; idempotent, never raises. It may be called from another thread than the others."""

    @abc.abstractmethod
    def describe(self) -> dict[str, str]:
        """See Transport.describe."""

    # -- resets that are asked ahead (FEATURES=AUTORESET)

    def _ask_ahead(self, following: Mapping[int, Next]) -> None:
        """Notes, for the next request, with what the next episodes of these envs begin."""

    def _take_begun(self, env_ids: list[int]) -> None:
        """Takes the first observations of these envs, and their infos, into `buffers`: they have come already."""

    @property
    def asks_ahead(self) -> bool:
        """Can resets be asked ahead here?"""
        return False

    # -- several of them (connections/engines/)

    @classmethod
    def join(cls, transports: Sequence[Carrier], buffers: StepBuffers) -> BatchedStep | None:
        """What asks and reads these in one go; None where there is no such thing for them.

        Args:
            transports: connected, of this class. buffers: of all their engines, one's rows behind the other's.
        """
        return None

    def _finish_asking(self, left: bytes) -> None:
        """Sends it; where there may be any."""

    # -- after a loss

    @property
    def last_number(self) -> int:
        """The highest number that a request had (FEATURES=SEQ, docs/protocol.md, section 5); 0: none had one."""
        return 0

    def replace(self, last_number: int) -> str:
        """Before the first request: this connection takes the place of one to the same engine, which was lost.

        An answer to that one may still come, and must not be taken for one to this.

        Args:
            last_number: of the lost connection.

        Returns:
            what cannot be told of such answers, as a sentence; "" where each is known by its number.

        Raises:
            EngineTimeout, EngineDisconnected, ProtocolError: the engine answered what this one has not asked.
        """
        return ""
