"""The Transport protocol: what UnrealVecEnv needs of a connection, whatever carries it.

Life of a transport: made -> `connect()` (connects, handshakes, returns the spec) -> any number of
{`send_actions` or `reset`, then `receive`} -> `close()`. At most one request is under way per env.
After any TransportError or ProtocolError it is dead: every later call raises ConnectionUnusable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import StepBuffers
from ue_rl.spec import EnvSpec


@runtime_checkable
class Transport(Protocol):
    """Moves actions to the engine and states back."""

    @property
    def spec(self) -> EnvSpec:
        """What the handshake agreed on; raises ConnectionUnusable before connect()."""
        ...

    def connect(self) -> EnvSpec:
        """Connect and handshake within the deadline; a second call returns the same spec.

        Raises:
            EngineUnreachable, EngineTimeout, EngineDisconnected, HandshakeError.
        """
        ...

    def send_actions(self, actions: NDArray[np.float32]) -> None:
        """Ask every env for one step. `actions`: float32 [num_envs, act_size], finite, C-contiguous."""
        ...

    def reset(
        self,
        env_ids: Sequence[int] | None = None,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> None:
        """Ask for a reset of `env_ids` (None: all). `seeds` and `options` align with `env_ids`.

        Raises:
            UnsupportedByEngine: seeds or options were given that the engine did not offer to take.
        """
        ...

    def receive(self) -> StepBuffers:
        """Wait until every asked env has answered; the transport's own buffers (copy what you keep).

        Raises:
            EngineTimeout, EngineDisconnected, ProtocolError.
        """
        ...

    def close(self) -> None:
        """Let go of everything; idempotent, never raises."""
        ...

    def describe(self) -> dict[str, str]:
        """Facts for people: address, wiring, kernels, protocol version."""
        ...
