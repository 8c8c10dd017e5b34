"""ActionWriter: a policy's actions -> the wire's float32 rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.envs.hybrid_box import HybridBox, part_of
from ue_rl.protocol.spaces.engine_leaf import noted_leaf
from ue_rl.protocol.spaces.forms.base import MAX_EXACT
from ue_rl.protocol.spaces.tree import Leaf, beyond_exact, leaves
from ue_rl.protocol.spec import ActionKind, EnvSpec
from ue_rl.system.compiled import load
from ue_rl.system.errors import ActionError

_INT64 = np.dtype(np.int64)


class ActionWriter:
    """Checks a batch of actions and gives the float32 rows that go over the wire.

    Args:
        spec: of the session.
        zero_based: the actions are of `action_space(spec, zero_based=True)`, as Stable-Baselines3 gives them.
    """

    def __init__(self, spec: EnvSpec, zero_based: bool = False) -> None:
        action = spec.action_spec
        self._wire_shape = (spec.num_envs, spec.act_size)
        self._hybrid = HybridBox(action.space) if action.kind is ActionKind.HYBRID and action.space else None
        self._zero_based = zero_based
        self._parts = [
            (path, _LeafWriter(leaf, spec.num_envs, zero_based, path), slice(at, at + leaf.size))
            for path, leaf, at in leaves(action.tree)
        ]
        self._plain = action.kind is ActionKind.BOX and action.space is None
        self._one = self._parts[0][1]

    def __call__(self, actions: Any, ignored: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        """`actions` as float32 [num_envs, act_size], C-contiguous.

        Args:
            ignored: envs whose actions may be anything, because they begin an episode instead, bool [num_envs].
            actions: as the batched action space: Box: numbers [num_envs, *shape]; Discrete: integers [num_envs];
                MultiDiscrete and MultiBinary: integers [num_envs, *shape]; Dict and Tuple: a dict or tuple of these.

        Raises:
            ActionError: a wrong shape, a type that is not numeric, NaN or infinity, or a choice that does not exist.
        """
        if self._plain:
            array = np.asarray(actions)
            if array.dtype == np.float32 and array.shape == self._wire_shape:
                return np.ascontiguousarray(array)
        if self._hybrid is None:
            return self._one(actions, ignored)
        if self._zero_based:
            rows = self._hybrid.decode(actions)
            if len(rows) != self._wire_shape[0]:
                raise _wrong_shape((self._wire_shape[0], *self._hybrid.low.shape), np.shape(actions), ())
            return rows
        rows = np.empty(self._wire_shape, np.float32)
        for path, writer, columns in self._parts:
            rows[:, columns] = writer(part_of(actions, path), ignored)
        return rows

    def one(self, action: Any) -> NDArray[np.float32]:
        """The row [1, act_size] of one env's action, where the spec has one env; see `__call__`."""
        if self._hybrid is None:
            return self._one(np.asarray(action)[None])
        rows = np.empty(self._wire_shape, np.float32)
        for path, writer, columns in self._parts:
            rows[:, columns] = writer(np.asarray(part_of(action, path))[None])
        return rows


class _LeafWriter:
    """The actions of one leaf, [num_envs, *leaf.shape] -> float32 [num_envs, leaf.size]."""

    def __init__(self, leaf: Leaf, num_envs: int, zero_based: bool, path: tuple[str, ...]) -> None:
        self._path = path
        self._wide = leaf.wide
        seen = leaf
        if zero_based:
            seen = leaf.form.trained(leaf)
        self._shape = (num_envs, *seen.shape)
        self._rows = (num_envs, seen.size)
        self._as_sent = None
        if seen != leaf:
            self._as_sent = leaf.form.from_trained(leaf, np)
        counts = seen.form.counts(seen)
        self._box = not counts.any()
        self._first = np.zeros(1, np.int64)
        self._end = self._first
        self._choices = None
        if not self._box:
            self._first = seen.form.bounds(seen)[0].astype(np.int64)
            self._end = self._first + counts
            added = leaf.form.bounds(leaf)[0].astype(np.int64) - self._first
            self._choices = np.array([self._first, self._end, added])
        self._write_choices = load("kernels").write_choices

    def __call__(self, actions: Any, ignored: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        array = np.asarray(actions)
        if array.shape != self._shape:
            raise _wrong_shape(self._shape, array.shape, self._path)
        if self._choices is not None and array.dtype == _INT64 and ignored is None and array.flags.carray:
            written: NDArray[np.float32] | int = self._write_choices(array, self._choices)
            if not isinstance(written, int):
                return written
        if array.dtype.kind not in "fiub":
            raise ActionError(
                "actions must be numeric", field=_field(self._path), expected="floats or integers", got=str(array.dtype)
            )
        rows = array.reshape(self._rows)
        if ignored is not None:
            rows = np.where(ignored[:, None], self._first, rows)
        if self._wide and (wrong := beyond_exact(rows)) is not None:
            what = "an integer of the action is not exact in float32, which is what travels"
            raise ActionError(what, field=_field(self._path), expected=f"{-MAX_EXACT} to {MAX_EXACT}", got=wrong)
        if self._box:
            if self._as_sent is not None:
                rows = self._as_sent(rows)
            with np.errstate(over="ignore"):
                return np.ascontiguousarray(rows, np.float32)
        fits = (rows >= self._first) & (rows < self._end)
        if rows.dtype.kind == "f":
            fits &= rows == np.floor(rows)
        if not fits.all():
            raise self._no_choice(rows, fits)
        if self._as_sent is not None:
            rows = self._as_sent(rows)
        return np.ascontiguousarray(rows, np.float32)

    def _no_choice(self, rows: NDArray[Any], fits: NDArray[np.bool_]) -> ActionError:
        env, index = np.argwhere(~fits)[0].tolist()
        first, end = (int(np.broadcast_to(ends, self._rows[1:])[index]) for ends in (self._first, self._end))
        return ActionError(
            "the action is not a choice of its space",
            env_id=env,
            field=_field(self._path),
            expected=f"an integer from {first} to {end - 1}",
            got=rows[env, index].item(),
            cure="was the model trained on another action space?",
        )


def _field(path: tuple[str, ...]) -> str:
    return ".".join(("ACT", *path))


class _NoBatch(ActionError, TypeError):
    """One number where a batch belongs: what Gymnasium's own vector envs raise a TypeError for."""


def _wrong_shape(expected: tuple[int, ...], got: tuple[int, ...], path: tuple[str, ...]) -> ActionError:
    kind = ActionError if got else _NoBatch
    return kind(
        "the actions have the wrong shape",
        fault="policy",
        field=_field(path),
        expected=expected,
        got=got,
        cure="one row per env: was the model trained on another action space?",
    )


def as_trained(rows: NDArray[np.float32], space: Any) -> Any:
    """The engine's action rows, float32 [n, ACT], as a policy of `space` gives them: what ActionWriter takes back."""
    if hasattr(space, "from_rows"):  # a HybridBox
        return space.from_rows(rows)
    noted = noted_leaf(space)
    if noted is not None:
        rows = noted.form.to_trained(noted, np)(rows)
    return rows.reshape(len(rows), *space.shape).astype(space.dtype)
