"""ActionCheck: validates the actions of a model or a trainer before anything is applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import ActionBatch
from ue_rl.errors import MalformedMessage, ModelMismatch, ModelOutputError
from ue_rl.spec import EnvSpec


class ActionCheck:
    """For one spec.

    Attributes:
        has_choices: the action space is discrete.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self._size = spec.act_size
        self._last = np.array(spec.action_spec.counts, np.float32) - np.float32(1)
        self._space = " and ".join(f"an integer from 0 to {count - 1}" for count in spec.action_spec.counts)
        self.has_choices = len(self._last) > 0

    def of_model(self, given: Any, env_ids: Sequence[int]) -> NDArray[np.float32]:
        """A model's actions for `env_ids` as float32 [n, act_size].

        Raises:
            ModelMismatch: a wrong shape. ModelOutputError: not real and finite, or outside a discrete space.
        """
        actions = np.asarray(given)
        expected = (len(env_ids), self._size)
        if actions.shape == expected[:1] and self._size == 1:
            actions = actions.reshape(expected)
        if actions.shape != expected:
            raise ModelMismatch(
                "the model's actions do not fit the bridge", fault="model", field="ACT",
                expected=expected, got=actions.shape,
            )  # fmt: skip
        if actions.dtype.kind not in "fiub":
            raise ModelOutputError(
                "the model's actions are not real numbers", fault="model", field="ACT", got=str(actions.dtype)
            )
        actions = np.ascontiguousarray(actions, np.float32)
        problem, expected_row, fits = "the model gave an action that is not a finite number", None, np.isfinite(actions)
        if self.has_choices and fits.all():
            problem, expected_row = "the model's action is not a choice of its space", self._space
            fits = self._are_choices(actions)
        rows = fits.all(axis=1)
        if not rows.all():
            row = int(rows.argmin())
            raise ModelOutputError(
                problem, fault="model", env_id=int(env_ids[row]), field="ACT", expected=expected_row,
                got=actions[row].tolist(),
            )  # fmt: skip
        return actions

    def of_trainer(self, inbox: ActionBatch) -> None:
        """Discrete actions of a trainer: 0.5 is not a choice and must not become one by rounding.

        Raises:
            MalformedMessage: a choice that does not exist.
        """
        if not self.has_choices:
            return
        fits = self._are_choices(inbox.actions)
        if np.count_nonzero(fits) == fits.size:
            return
        wrong = (inbox.command == ActionBatch.STEP) & ~fits.all(axis=1)
        if wrong.any():
            env = int(wrong.argmax())
            raise MalformedMessage(
                "the action is not a choice of its space", fault="trainer", env_id=env, field="ACT",
                expected=self._space, got=inbox.actions[env].tolist(),
            )  # fmt: skip

    def _are_choices(self, actions: NDArray[np.float32]) -> NDArray[np.bool_]:
        """For each number: does it equal its nearest choice? Few array operations, because every tick calls it."""
        nearest = np.minimum(actions, self._last)
        np.maximum(nearest, 0, out=nearest)
        np.rint(nearest, out=nearest)
        fits: NDArray[np.bool_] = nearest == actions
        return fits
