"""StepBuffers and ActionBatch: the arrays of one step, allocated once and written in place.

The codec writes rows of them, transports and bridges own them, nobody gives them out: whoever hands an
observation to a user copies it first (SB3 keeps a reference to the last observation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spec import EnvSpec


class StepBuffers:
    """What the engine answers in one step, for all rows (client's side).

    A row is an env's, or, where the engine has agents, an agent's: see `groups` of ue_rl.protocol.spec.EnvSpec.

    Attributes:
        obs: float32 [num_rows, obs_size].
        rewards: float32 [num_rows].
        dones: uint8 [num_rows]; 1 = the episode is over, for whatever reason.
        truncated: uint8 [num_rows]; 1 = it is over by a limit only, not by a terminal state.
        pending: uint8 [num_rows]; while a request is under way not 0 = an answer of this row is awaited (2: an agent's
            that need not come, because it may not be there). The decoder accepts only awaited rows. Between two
            requests it means nothing: over shared memory it stays as it was asked.
        masks: uint8 [num_rows, mask_size]; 1 = this choice is legal now. mask_size is 0 where the engine sends none.
        present: uint8 [num_rows]; 1 = this agent was there in its env's last answer; without agents always 1.
        image: uint8 [num_rows, *image shape]; None where there are no images.
        infos: row -> info dict, only for rows that carried INFO; cleared by whoever asks for the next step.
        lost: env ids whose engine was lost during the last request, though the connection goes on (several engines, or
            one that is started again): their rows are the last good observation, reward 0, done and truncated. They
            must be reset before anything else is asked of them. Empty in the usual case.
        may_give: a reader may keep `obs` itself in place of a copy, and says so by `given = True`: the transport then
            writes its next answer into another array. For large observations, where a copy costs more than that.
    """

    __slots__ = (
        "dones",
        "given",
        "image",
        "infos",
        "lost",
        "masks",
        "may_give",
        "obs",
        "pending",
        "present",
        "rewards",
        "truncated",
    )

    def __init__(self, num_rows: int, obs_size: int, image: tuple[int, ...] | None = None, mask_size: int = 0) -> None:
        self.image: NDArray[np.uint8] | None
        if image is None:
            self.image = None
        else:
            self.image = np.zeros((num_rows, *image), np.uint8)
        self.obs: NDArray[np.float32] = np.zeros((num_rows, obs_size), np.float32)
        self.rewards: NDArray[np.float32] = np.zeros(num_rows, np.float32)
        self.dones: NDArray[np.uint8] = np.zeros(num_rows, np.uint8)
        self.truncated: NDArray[np.uint8] = np.zeros(num_rows, np.uint8)
        self.pending: NDArray[np.uint8] = np.zeros(num_rows, np.uint8)
        self.masks: NDArray[np.uint8] = np.ones((num_rows, mask_size), np.uint8)
        self.present: NDArray[np.uint8] = np.ones(num_rows, np.uint8)
        self.infos: dict[int, dict[str, Any]] = {}
        self.lost: set[int] = set()
        self.may_give = self.given = False

    @classmethod
    def of(cls, spec: EnvSpec) -> StepBuffers:
        """Those of a session."""
        image_shape = None
        if spec.image is not None:
            image_shape = spec.image.shape
        return cls(spec.num_rows, spec.obs_size, image_shape, spec.mask_size)


@dataclass(frozen=True)
class Resets:
    """Envs that are to begin a new episode, and what goes with it; the lists align with `env_ids`.

    Args:
        env_ids: None: all.
        seeds, options: see Transport.reset. parameters: name to value, set before the episode begins.
        resting: envs that neither begin an episode nor take a step.
    """

    env_ids: Sequence[int] | None = None
    seeds: Sequence[int | None] | None = None
    options: Sequence[Mapping[str, Any] | None] | None = None
    parameters: Sequence[Mapping[str, float] | None] | None = None
    resting: Sequence[int] = ()

    @property
    def not_stepping(self) -> list[int]:
        """The envs that take no step; `env_ids` are named."""
        envs = self.env_ids or ()
        return [*envs, *self.resting]


Next = tuple["int | None", "Mapping[str, float] | None"]  # seed and parameters of an episode that is asked ahead


class ActionBatch:
    """What the trainer asks for, for all rows (engine's side).

    Attributes:
        actions: float32 [num_rows, act_size].
        command: uint8 [num_rows]; 0 = nothing asked, 1 = step with `actions`, 2 = reset. An env with agents is reset as
            a whole: all its rows are 2.
        seeds: int64 [num_rows]; the seed of a reset, -1 = none given. With agents, in the env's first row.
        options: row -> options dict of a reset. With agents, of the env's first row.
        parameters: row -> {name: value}, to be set before this reset. With agents, of the env's first row.
        ahead: env -> (seed, parameters) of its next reset, which follows the end of its episode unasked; None: none.
    """

    __slots__ = ("actions", "ahead", "command", "options", "parameters", "seeds")

    NOTHING = 0
    STEP = 1
    RESET = 2

    def __init__(self, num_rows: int, act_size: int) -> None:
        self.actions: NDArray[np.float32] = np.zeros((num_rows, act_size), np.float32)
        self.command: NDArray[np.uint8] = np.zeros(num_rows, np.uint8)
        self.seeds: NDArray[np.int64] = np.full(num_rows, -1, np.int64)
        self.options: dict[int, dict[str, Any]] = {}
        self.parameters: dict[int, Mapping[str, float]] = {}
        self.ahead: dict[int, Next] = {}

    @classmethod
    def of(cls, spec: EnvSpec) -> ActionBatch:
        """Those of a session."""
        return cls(spec.num_rows, spec.act_size)

    def clear(self) -> None:
        """Forget all requests; the arrays stay."""
        self.command[:] = self.NOTHING
        self.seeds[:] = -1
        self.options.clear()
        self.parameters.clear()
        self.ahead.clear()
