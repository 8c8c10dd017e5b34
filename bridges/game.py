"""Game: what an author of an engine writes, as its driver sees it (bridges/lockstep.py). No session, no I/O."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ue_rl.bridges.lockstep import LockStep
    from ue_rl.protocol.spec import EnvSpec

EnvIds = NDArray[np.intp]
Envs = Any  # env ids, ascending (EnvIds), of a game that is `together`; else the id of one env (int)
PerEnv = Sequence[Any]  # one for each env of `Envs`, None where the trainer gave none


class Mode(Enum):
    """What a tick does."""

    IDLE = auto()
    TRAINING = auto()
    INFERENCE = auto()


class AgentArrays(NamedTuple):
    """The arrays of `outbox` with one dimension more: env, agent. Views, to be written in place.

    Attributes:
        obs: float32 [num_envs, agents, obs_size]. rewards: float32 [num_envs, agents].
        dones, truncated, present: uint8 [num_envs, agents]. masks: uint8 [num_envs, agents, mask_size].
    """

    obs: NDArray[np.float32]
    rewards: NDArray[np.float32]
    dones: NDArray[np.uint8]
    truncated: NDArray[np.uint8]
    present: NDArray[np.uint8]
    masks: NDArray[np.uint8]


class Game(abc.ABC):
    """Envs that begin episodes, act and are read. What else a game may offer stands in bridges/hosting.py.

    The driver calls `begin_in`, then `read_in`; and for each step `act_in`, `running_in` in this and each later tick
    until it says False, then `read_in`, which writes rows of the outbox. It does so under a lock, in one thread at a
    time. The names leave `begin`, `running` and the like to the author's own attributes.

    A kind of bridge is a class that implements these with callbacks of its own.

    Attributes:
        together: each call is for all envs that are asked, as arrays, and an action ends in the tick in which it
            begins: `begin_in` and `act_in` write the rows themselves, and nothing else is called. Otherwise each call
            is for one env, in the order of their ids.
        lockstep: the session that is served at present.
        observation_names, action_names: what each number means, for a trainer that asks; () where nobody says.
    """

    together: ClassVar[bool] = False
    lockstep: LockStep
    observation_names: Sequence[str] = ()
    action_names: Sequence[str] = ()

    @property
    @abc.abstractmethod
    def spec(self) -> EnvSpec:
        """Sizes, spaces and abilities."""

    @abc.abstractmethod
    def begin_in(self, envs: Envs, seeds: PerEnv, options: PerEnv) -> None:
        """Starts new episodes. What it raises while options are given counts as the trainer's mistake."""

    @abc.abstractmethod
    def act_in(self, envs: Envs, actions: NDArray[np.float32]) -> None:
        """Applies actions, float32 [num_rows, act_size]; only the rows of `envs` mean something."""

    def running_in(self, envs: Envs) -> bool:
        """Does the action still run? Until it does not, the env is not answered for."""
        return False

    def read_in(self, envs: Envs, begun: bool) -> None:  # noqa: B027 - not called where a game is together
        """Writes the rows of `envs`: what is seen now and, after a step, what it brought.

        Args:
            begun: after `begin_in`, where rewards and ends are 0 already. Otherwise after a step.
        """

    def session_ends(self) -> None:  # noqa: B027 - few games hold anything
        """The trainer has gone, or the game was switched: what a trainer has set up for itself ends with it."""
