"""Transport: what an env needs of a connection, whatever carries it; connections/base has what carriers have in common.

Life of a transport: made -> `connect()` (connects, handshakes, returns the spec) -> any number of
{`send_actions` or `reset`, then `receive`} -> `close()`. At most one request is under way per env.
Whatever escapes while a connection waits or sends (Ctrl-C too) makes it dead: every later call raises
ConnectionUnusable with the reason. A caller's mistake that is found before anything was sent costs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec

Envs = Sequence[int] | None  # env ids; None: all in `reset`, none in `send_actions`
Seeds = Sequence[int | None] | None
Options = Sequence[Mapping[str, Any] | None] | None
# The parameters that an env is reset with, drawn for it; None: the game's own.
Draw = Callable[[int], "Mapping[str, float] | None"]

# Of some envs, by env id; see Transport.reset.
Params = Mapping[int, "Mapping[str, float] | None"] | None

_Init = TypeVar("_Init", bound=Callable[..., None])


@runtime_checkable
class Transport(Protocol):
    """Moves actions to the engine and states back.

    Attributes:
        buffers: the arrays of the last answer; after connect().
        handshake: the CONFIG line as the engine sent it, "" where the carrier has none; after connect().
        draw_parameters: asked with an env id before each of its resets, also those within a step: values for the game's
            parameters that go with the reset, None for none. Set by who randomises the game, see
            ue_rl.protocol.calls.parameters. A value that the engine cannot take is a ConfigurationError of that
            request, before anything is sent.
    """

    buffers: StepBuffers
    handshake: str
    draw_parameters: Draw | None

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

    def send_actions(
        self, actions: NDArray[np.float32], resets: Envs = None, parameters: Params = None, resting: Sequence[int] = ()
    ) -> None:
        """Ask every env for one step, or, those in `resets`, for a new episode: one request, one round trip.

        Args:
            actions: float32 [num_rows, act_size], finite, C-contiguous. Rows of envs that are reset or rest are
                ignored, and, with agents, rows of agents that are not there (`buffers.present`) or whose episode is
                over.
            resets: env ids; None or none: every env takes a step. parameters: see `reset`.
            resting: env ids that are asked for nothing and stay where they are; never all of them.

        Raises:
            ActionError: they are not; ConfigurationError: a wrong env id, or, with agents, an env in which nobody can
                act any more and that is not reset. Nothing was sent and the connection is as it was.
        """

    def reset(
        self, env_ids: Envs = None, seeds: Seeds = None, options: Options = None, parameters: Params = None
    ) -> None:
        """Ask for a reset of `env_ids` (None: all). `seeds` and `options` align with `env_ids`.

        Args:
            parameters: of each env that is to have any, in place of what `draw_parameters` draws; None: that.

        Raises:
            ConfigurationError: an env id, a seed or an option is invalid. UnsupportedByEngine: seeds or options were
                given that the engine did not offer to take. In both cases nothing was sent.
        """

    def receive(self) -> StepBuffers:
        """Wait until every asked env has answered; the transport's own buffers (copy what you keep).

        A transport of several engines survives the loss of one of them: see StepBuffers.lost.

        Raises:
            EngineTimeout, EngineDisconnected, ProtocolError.
        """
        ...

    def call(self, line: str) -> str:
        """Send a request beside the steps (ue_rl/protocol/text/calls.py), wait for its answer and return that.

        Raises:
            UnsupportedByEngine: the carrier or the engine has no such requests. CommandFailed: the engine refused, with
                its reason; the connection is as it was.
        """
        ...

    @property
    def commands(self) -> Any:
        """Requests beside the steps and events, see docs/commands.md: a ShmCommands.

        Raises:
            UnsupportedByEngine: over everything but shared memory.
        """

    def fail(self, reason: object) -> None:
        """Make the connection dead because of `reason`: the next use says so."""

    def close(self) -> None:
        """Let go of everything; idempotent, never raises."""

    def describe(self) -> dict[str, str]:
        """Facts for people: address, wiring, kernels, protocol version."""
        ...


@contextmanager
def closed_if_it_fails(transport: Transport) -> Iterator[None]:
    """Closes a transport that what stands in the block cannot take over; what is none of a transport is left alone."""
    try:
        yield
    except BaseException:
        if hasattr(transport, "close"):
            transport.close()
        raise


def owns_transport(init: _Init) -> _Init:
    """Of an `__init__(self, transport, ..)` that takes the transport over: where it raises, the transport is closed."""

    @functools.wraps(init)
    def closing(self: Any, *args: Any, **kwargs: Any) -> None:
        if args:
            transport = args[0]
        else:
            transport = kwargs["transport"]
        with closed_if_it_fails(transport):
            init(self, *args, **kwargs)

    return cast(_Init, closing)
