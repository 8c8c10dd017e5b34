"""ActionCheck: validates the actions of a model or a trainer before anything is applied."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.compiled import load
from ue_rl.system.errors import MalformedMessage, ModelMismatch, ModelOutputError

_log = logging.getLogger("ue_rl.bridges")


class ActionCheck:
    """For one spec. A row is an env's, or an agent's, which has as many numbers and choices as its own group.

    Attributes:
        has_choices: some numbers of an action are choices. masked: not all of them are always legal.
        illegal: how many actions the masks that they answered did not allow, each counted once however long it runs;
            the first one is logged, none is refused.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self._size = spec.act_size
        agents = [group.spec.action_spec for group in spec.groups for _ in range(group.count)]
        if agents:
            self._actions = agents
        else:
            self._actions = [spec.action_spec]
        counts = np.zeros((len(self._actions), spec.act_size), np.int64)
        starts = np.zeros_like(counts)
        for row, action in enumerate(self._actions):
            if action.counts:
                counts[row, : action.size] = action.counts
                starts[row, : action.size] = action.lowest
        self.has_choices = bool(counts.any())
        self._is_choice = counts > 0
        self._flags = np.cumsum(counts, axis=1) - counts - starts  # of choice c the mask's flag is c + this
        low = np.where(self._is_choice, starts, -np.inf).astype(np.float32)
        high = np.where(self._is_choice, starts + counts - 1, np.inf).astype(np.float32)
        self._per_row = bool(agents) and bool((low != low[0]).any() or (high != high[0]).any())
        if self._per_row:
            copies = (spec.num_envs, 1)
            rows = slice(None)
        else:
            copies = (1, 1)
            rows = slice(1)
        self._low = np.tile(low[rows], copies)
        self._high = np.tile(high[rows], copies)
        free = ~self._is_choice[rows]
        if not free.any():
            self._free = None
        else:
            self._free = np.tile(free, copies)
        self.masked = self.has_choices and spec.mask_size > 0
        self.illegal = 0
        self._mask_at: NDArray[np.int64] | None = None  # as _flags, in the masks of all rows as one array
        if self.masked and self._is_choice.all():
            agent = np.arange(spec.num_rows) % len(self._actions)
            self._mask_at = self._flags[agent] + spec.mask_size * np.arange(spec.num_rows)[:, None]
        self._under_way = np.zeros(spec.num_rows, np.bool_)
        self._find_no_choice = load("kernels").find_no_choice

    def of_model(self, given: Any, env_ids: Sequence[int]) -> NDArray[np.float32]:
        """A model's actions for the rows `env_ids` as float32 [n, act_size].

        Raises:
            ModelMismatch: a wrong shape. ModelOutputError: not real and finite, or outside a discrete space.
        """
        actions = np.asarray(given)
        expected = (len(env_ids), self._size)
        if actions.shape == expected[:1] and self._size == 1:
            actions = actions.reshape(expected)
        if actions.shape != expected:
            what = "the model's actions do not fit the bridge"
            raise ModelMismatch(what, fault="model", field="ACT", expected=expected, got=actions.shape)
        if actions.dtype.kind not in "fiub":
            raise ModelOutputError("the model's actions are not real numbers", field="ACT", got=str(actions.dtype))
        told = actions
        with np.errstate(over="ignore"):  # beyond float32 it is infinite, and refused below
            actions = np.ascontiguousarray(actions, np.float32)
        problem = "the model gave an action that is not a finite number"
        expected_row = None
        fits = np.isfinite(actions)
        if self.has_choices and fits.all():
            problem = "the model's action is not a choice of its space"
            expected_row = ""
            if not self._per_row:
                rows = None
            else:
                rows = np.asarray(env_ids, np.intp)
            fits = self._are_choices(actions, rows)
        if not fits.all():
            row = int(fits.all(axis=1).argmin())
            raise ModelOutputError(
                problem,
                env_id=int(env_ids[row]) // len(self._actions),
                field="ACT",
                expected=None if expected_row is None else self._choices_of(int(env_ids[row])),
                got=told[row].tolist(),
            )
        return actions

    def of_trainer(self, inbox: ActionBatch, states: StepBuffers | None = None) -> None:
        """Discrete actions of a trainer: 0.5 is not a choice and must not become one by rounding.

        Args:
            states: what the trainer was answered last; with masks, actions that they do not allow are counted.

        Raises:
            MalformedMessage: a choice that does not exist.
        """
        if not self.has_choices:
            return
        if not self.all_choices(inbox.actions):
            wrong = (inbox.command == ActionBatch.STEP) & ~self._are_choices(inbox.actions).all(axis=1)
            if wrong.any():
                row = int(wrong.argmax())
                raise MalformedMessage(
                    "the action is not a choice of its space",
                    fault="trainer",
                    env_id=row // len(self._actions),
                    field="ACT",
                    expected=self._choices_of(row),
                    got=inbox.actions[row].tolist(),
                )
        if self.masked and states is not None:
            self._count_illegal(inbox, states)

    def all_choices(self, actions: NDArray[np.float32]) -> bool:
        """Is every number of all rows, float32 [num_rows, act_size], a choice where it must be one?"""
        return bool(self._find_no_choice(actions, self._low, self._high) < 0)

    def after_tick(self, inbox: ActionBatch) -> None:
        """What is still asked is under way: the next tick sees the same actions again."""
        if self.masked:
            np.equal(inbox.command, ActionBatch.STEP, out=self._under_way)

    def _are_choices(self, actions: NDArray[np.float32], rows: NDArray[np.intp] | None = None) -> NDArray[np.bool_]:
        """For each number: does it equal its nearest choice?"""
        if rows is None:
            low = self._low
            high = self._high
        else:
            low = self._low[rows]
            high = self._high[rows]
        nearest = np.minimum(actions, high)
        np.maximum(nearest, low, out=nearest)
        np.rint(nearest, out=nearest)
        fits: NDArray[np.bool_] = nearest == actions
        if self._free is not None:
            if rows is None:
                fits |= self._free
            else:
                fits |= self._free[rows]
        return fits

    def _count_illegal(self, inbox: ActionBatch, states: StepBuffers) -> None:
        if self._mask_at is not None:  # in nearly every tick all are legal, and few array operations show it
            with np.errstate(invalid="ignore"):  # in the row of an env that takes no step anything may stand
                flags = inbox.actions.astype(np.int64)
            flags += self._mask_at
            if states.masks.take(flags, mode="clip").all():
                return
        rows = np.flatnonzero((inbox.command == ActionBatch.STEP) & ~self._under_way)
        agents = rows % len(self._actions)
        chosen = self._is_choice[agents]
        flags = np.where(chosen, inbox.actions[rows].astype(np.int64) + self._flags[agents], 0)
        wrong = chosen & (states.masks[rows[:, None], flags] == 0)
        bad = np.flatnonzero(wrong.any(axis=1))
        if not len(bad):
            return
        if not self.illegal:
            row = int(rows[bad[0]])
            _log.warning(
                "env %d: the action %s is not legal under the mask of the state that it answers; the trainer does not "
                "use the masks, or not those of the last state (said once)",
                row // len(self._actions),
                inbox.actions[row].tolist(),
            )
        self.illegal += len(bad)

    def _choices_of(self, row: int) -> str:
        action = self._actions[row % len(self._actions)]
        ranges = zip(action.lowest, action.counts, strict=True)
        return " and ".join(
            f"an integer from {start} to {start + count - 1}" if count else "a number" for start, count in ranges
        )
