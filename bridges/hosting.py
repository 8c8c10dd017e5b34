"""Who meets whom on the engine's side, as Protocols: what serves a bridge, what a policy and a game may offer.

A game implements the callbacks of MultiEnvBridge, SingleEnvBridge or VectorBridge. Whatever else it may define stands
here, one Protocol for each ability; a bridge that lacks one answers the command that needs it with a named error.
A policy needs `run_inference`; ChecksSpaces, ChecksSizes, ForgetsEpisodes and ActsPerEnv are optional.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge
    from ue_rl.protocol.buffers import ActionBatch, Next, StepBuffers
    from ue_rl.protocol.spec import EnvSpec


# -- policies


class PolicyInterface(Protocol):
    """What a bridge needs of a policy in inference mode; ue_rl.inference.InferenceInterface is one."""

    def run_inference(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [n, obs_size] -> float32 [n, act_size]."""
        ...


@runtime_checkable
class ChecksSizes(Protocol):
    """A policy that knows its sizes."""

    def require(self, obs_size: int, act_size: int) -> None:
        """Raises ModelMismatch where a bridge of these sizes does not fit it."""


@runtime_checkable
class ChecksSpaces(Protocol):
    """A policy that knows what its numbers mean; asked instead of ChecksSizes."""

    def require_spaces(self, spec: EnvSpec) -> None:
        """Raises ModelMismatch where a bridge of this spec does not fit it."""


@runtime_checkable
class ForgetsEpisodes(Protocol):
    """A policy with a memory of the episode."""

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """A new episode begins in `env_ids`; None: in all."""


@runtime_checkable
class ActsPerEnv(Protocol):
    """A recurrent policy: it must know which env each row belongs to. Used instead of `run_inference`."""

    def run_inference_for(self, env_ids: Sequence[int], observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Observations float32 [n, obs_size], row i of env `env_ids[i]` -> float32 [n, act_size]."""
        ...


@runtime_checkable
class TakesMasks(Protocol):
    """A policy that may be told which choices are legal."""

    @property
    def takes_masks(self) -> bool:
        """Whether it heeds them."""
        ...

    def run_inference_for(
        self, env_ids: Sequence[int], observations: NDArray[np.float32], *, action_masks: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """As ActsPerEnv; `action_masks` uint8 [n, mask_size], 1 = legal."""
        ...


# -- what a game may offer beside the callbacks


@runtime_checkable
class ListsParameters(Protocol):
    """A game with parameters that a trainer may read."""

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        """Name -> (value, low, high)."""
        ...


@runtime_checkable
class SetsParameters(Protocol):
    """A game with parameters that a trainer may change."""

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        """Of one env; -1: of all. Name, range and env id have been checked."""


@runtime_checkable
class GetsParameters(Protocol):
    """A game whose parameters differ from env to env."""

    def get_parameter(self, name: str, env_id: int) -> float:
        """Of one env."""
        ...


@runtime_checkable
class ScalesTime(Protocol):
    """A game that can run faster or slower than real time."""

    def set_time_scale(self, scale: float) -> None:
        """1: real time. Positive and finite."""


@runtime_checkable
class Pauses(Protocol):
    """A game with a clock of its own that a trainer may stop."""

    def set_paused(self, paused: bool) -> None:
        """False also where the trainer goes without having let the game go on. See also `paused` of LockStep."""


@runtime_checkable
class Renders(Protocol):
    """A game that can show an env."""

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        """uint8 [height, width, 3]; None: there is no picture now. The env id has been checked."""


@runtime_checkable
class ComputesRewards(Protocol):
    """A game with goals: its reward depends on nothing but what was achieved and what was desired (HER)."""

    def compute_reward(self, achieved: NDArray[np.float32], desired: NDArray[np.float32]) -> Any:
        """Goals, float32 [n, k] each -> n rewards."""


Ranges = Mapping[str, "tuple[float, float]"]  # name -> (low, high) to draw from


@runtime_checkable
class BeginsContracts(Protocol):
    """A game that takes seed, parameters and ranges of an episode in one message."""

    def begin_contract(
        self, seed: int | None, parameters: Mapping[str, float], randomization: Ranges, env_ids: Sequence[int]
    ) -> None:
        """For `env_ids`; empty: for all."""


@runtime_checkable
class AnswersCalls(Protocol):
    """A game that answers every call itself, such as a recorded one."""

    def answer_line(self, line: str) -> str:
        """Both without line ending; what it raises is told as a refusal."""
        ...


@runtime_checkable
class Closes(Protocol):
    """A game that holds something to be given back, as GymnasiumBridge its envs."""

    def close(self) -> None:
        """Called by `ue-rl serve` once it has stopped serving."""


# -- what a game may offer to sessions that do not wait (ue_rl/plugins/sessions/realtime)


@runtime_checkable
class HasNoOp(Protocol):
    """A game with an action that does nothing; without it 0 is taken, brought into the action space."""

    @property
    def no_op(self) -> Sequence[float]:
        """act_size numbers: the action of a tick for which nobody gave one."""
        ...


@runtime_checkable
class AppliesActions(Protocol):
    """A game that takes several actions in one tick, such as orders. Otherwise a tick takes the newest."""

    def apply_action(self, env_id: int, action: NDArray[np.float32]) -> None:
        """An action beside the tick's own, float32 [act_size], before that tick. The world does not move."""


@runtime_checkable
class KnowsResults(Protocol):
    """A game that is won, lost or drawn."""

    def result(self, env_id: int) -> str:
        """Asked when an episode has ended: "win", "lose" or "draw", "" where it is none of them."""
        ...


@runtime_checkable
class Describes(Protocol):
    """A game that says in words what is seen."""

    def describe(self, env_id: int) -> str:
        """What the agent of this env sees now, for minds that read."""
        ...


@runtime_checkable
class TellsMap(Protocol):
    """A game with a map that does not change within an episode."""

    def map_info(self, env_id: int) -> dict[str, Any]:
        """What JSON can carry."""
        ...


# -- who watches a session


class RecordsTicks(Protocol):
    """Told by LockStep what is asked and answered, in the thread that ticks; it must not change the arrays."""

    def asked(self, inbox: ActionBatch, command: NDArray[np.uint8]) -> None:
        """Before a tick; `command` uint8 [num_rows], or [num_envs, agents]: what is asked, also what was before."""

    def stepped(self, inbox: ActionBatch, envs: NDArray[np.intp] | None) -> None:
        """All of these envs (None: of all) are asked for a step, which ends in this tick."""

    def answered(self, outbox: StepBuffers, command: NDArray[np.uint8]) -> None:
        """Behind a tick: whatever was asked, and is not any more, has been answered."""

    def begun_ahead(self, envs: Sequence[int], following: Sequence[Next], outbox: StepBuffers) -> None:
        """Behind `answered`: these envs have begun the episodes that were asked ahead, see LockStep.begin_ahead."""

    def called(self, line: str, answer: str) -> None:
        """A request beside the steps."""

    def session_ends(self) -> None:
        """What is asked is void; the next trainer's session may follow."""


# -- upgrades: another carrier for a session that began as text over TCP


class UpgradableSession(Protocol):
    """What an Upgrade sees of the session that it carries on (bridges/tcp/session.py).

    Attributes:
        tick_rate: the server's ticks per second; None: as requests come.
    """

    tick_rate: float | None

    def write(self, data: bytes) -> None:
        """Sends on the first connection."""

    def detach(self) -> socket.socket:
        """Takes the first connection from the server: a blocking socket, which the caller closes.

        Raises:
            OSError: too many files are open; then nothing has changed.
        """
        ...

    def finish(self) -> None:
        """The trainer has gone; from any thread."""


class Upgrade(Protocol):
    """Carries a session from then on, in a thread of its own.

    It takes the socket (`session.detach()`), which stays as doorbell and sign of life, ticks the bridge under
    `bridge.lock`, and calls `session.finish()` when its trainer has gone.
    """

    def close(self) -> None:
        """The session is over, or the server stops: ends the thread before it returns; idempotent."""


class Upgrader(Protocol):
    """Offers another carrier for the same requests and states (shared memory), and makes it. One offer at a time."""

    def offer(self, bridge: BaseBridge) -> str | None:
        """The handshake's SHM value for a new session; None: there is nothing to offer now."""

    def accept(self, line: bytes, session: UpgradableSession) -> Upgrade | None:
        """The trainer's first line was `SHM=..`: answer it with `session.write`.

        Args:
            line: that line, without its ending.

        Returns:
            what carries the session from now on; None: refused, the session goes on in text, and nothing is withdrawn.

        Raises:
            ProtocolError: the line does not fit the offer; ends the session.
        """

    def withdraw(self) -> None:
        """The offer was not taken: the trainer speaks text, or has gone."""
