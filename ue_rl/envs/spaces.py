"""EnvSpec -> Gymnasium spaces, and a policy's actions -> the wire's float32 rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.errors import ActionError
from ue_rl.spec import ActionKind, EnvSpec


def observation_space(spec: EnvSpec) -> spaces.Box | spaces.Dict:
    """Box float32 [obs_size] with the handshake's bounds, infinite where it has none.

    With an image: Dict {"obs": that, "image": Box uint8 0..255}, or the image alone where the handshake says ONLY.
    """
    low, high = spec.obs_bounds
    numbers = spaces.Box(low, high, dtype=np.float32)
    if spec.image is None:
        return numbers
    image = spaces.Box(0, 255, spec.image.shape, np.uint8)
    return image if spec.image.only else spaces.Dict({"obs": numbers, "image": image})


def action_space(spec: EnvSpec) -> spaces.Space[Any]:
    """The handshake's action space; Box(-1, 1) where it says nothing."""
    action = spec.action_spec
    if action.kind is ActionKind.BOX:
        return spaces.Box(*action.bounds, dtype=np.float32)
    if action.kind is ActionKind.DISCRETE:
        return spaces.Discrete(action.counts[0])
    if action.kind is ActionKind.MULTI_DISCRETE:
        return spaces.MultiDiscrete(list(action.counts))
    return spaces.MultiBinary(len(action.counts))


class ActionWriter:
    """Checks a batch of actions and gives the float32 rows that go over the wire."""

    def __init__(self, spec: EnvSpec) -> None:
        action = spec.action_spec
        self._box = action.kind is ActionKind.BOX
        self._wire_shape = (spec.num_envs, spec.act_size)
        self._shape = (spec.num_envs,) if action.kind is ActionKind.DISCRETE else self._wire_shape
        self._counts = None if self._box else np.array(action.counts, np.int64)

    def __call__(self, actions: Any) -> NDArray[np.float32]:
        """`actions` as float32 [num_envs, act_size], C-contiguous.

        Args:
            actions: Box: floats [num_envs, act_size]; Discrete: integers [num_envs]; MultiDiscrete and
                MultiBinary: integers [num_envs, act_size].

        Raises:
            ActionError: a wrong shape, a type that is not numeric, NaN or infinity, or a choice that does not exist.
        """
        array = np.asarray(actions)
        if array.dtype == np.float32 and self._box and array.shape == self._shape:
            return np.ascontiguousarray(array)
        if array.shape != self._shape:
            raise ActionError(
                "the actions have the wrong shape", fault="policy", field="ACT",
                expected=self._shape, got=array.shape,
                cure="one row per env: was the model trained on another action space?",
            )  # fmt: skip
        if array.dtype.kind not in "fiub":
            raise ActionError(
                "actions must be numeric", fault="policy", field="ACT", expected="floats or integers",
                got=str(array.dtype),
            )  # fmt: skip
        if self._box:
            with np.errstate(over="ignore"):
                return np.ascontiguousarray(array, np.float32)
        return self._choices(array)

    def _choices(self, array: NDArray[Any]) -> NDArray[np.float32]:
        rows = array.reshape(self._wire_shape)
        fits = (rows >= 0) & (rows < self._counts)
        if rows.dtype.kind == "f":
            fits &= rows == np.floor(rows)
        if not fits.all():
            env, index = np.argwhere(~fits)[0]
            assert self._counts is not None
            raise ActionError(
                "the action is not a choice of its space", fault="policy", env_id=int(env), field="ACT",
                expected=f"an integer from 0 to {self._counts[index] - 1}", got=rows[env, index].item(),
                cure="was the model trained on another action space?",
            )  # fmt: skip
        return np.ascontiguousarray(rows, np.float32)
