"""HybridBox: an action that is a Dict or Tuple as one Box, for Stable-Baselines3, which knows no hybrid actions.

The numbers stand in the order of the tree's leaves. What each kind of leaf has for numbers there, and how they become
those of the row, says its form: `LeafForm.box_bounds`, `from_box` and `to_box`.

Stable-Baselines3 clips what a Gaussian policy draws to the bounds, and clipped numbers are equal: the bounds of a
choice's numbers must lie far outside of what is drawn, or the first choices would be preferred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.protocol.spaces.tree import Leaf, LeafKind, Space, leaves
from ue_rl.system.errors import ActionError

_PREPARED = ("stretches", "_from_box", "_to_box")


@dataclass(frozen=True)
class HybridPart:
    """In models of before, which are opened: `HybridBox.parts`. Nothing else makes or reads one."""

    kind: LeafKind
    box: int
    row: int
    size: int
    start: int = 0


class Stretch(NamedTuple):
    """Where one leaf stands in the Box and in the wire's row."""

    leaf: Leaf
    box: slice
    row: slice


def stretches_of(tree: Space) -> tuple[Stretch, ...]:
    """Of each leaf, in the Box's order."""
    found: list[Stretch] = []
    at = 0
    for _, leaf, row in leaves(tree):
        size = len(leaf.form.box_bounds(leaf)[0])
        found.append(Stretch(leaf, slice(at, at + size), slice(row, row + leaf.size)))
        at += size
    return tuple(found)


class HybridBox(spaces.Box):
    """A Box float32 [size] that remembers which hybrid action it stands for.

    Args:
        tree: as the handshake's ACT_SPACE has it.

    Attributes:
        tree: the same. stretches: where each leaf stands; what an exported model needs to do as `decode` does.
    """

    def __init__(self, tree: Space) -> None:
        self._prepare(tree)
        pairs = [leaf.form.box_bounds(leaf) for leaf, _, _ in self.stretches]
        low, high = (np.concatenate(side) for side in zip(*pairs, strict=True))
        super().__init__(low, high, dtype=np.float32)

    def _prepare(self, tree: Space) -> None:
        self.tree = tree
        self.stretches = stretches_of(tree)
        self._from_box = [(box, row, leaf.form.from_box(leaf, np)) for leaf, box, row in self.stretches]
        self._to_box = [(box, row, leaf.form.to_box(leaf)) for leaf, box, row in self.stretches]

    def __getstate__(self) -> dict[str, Any]:
        """A model keeps its spaces: the tree alone, of which the rest is made."""
        return {key: value for key, value in vars(self).items() if key not in _PREPARED}

    def __setstate__(self, state: Any) -> None:
        """Also of models of before, which keep `parts`."""
        kept = {key: value for key, value in dict(state).items() if key != "parts"}
        super().__setstate__(kept)
        self._prepare(kept["tree"])

    def decode(self, actions: Any) -> NDArray[np.float32]:
        """The wire's rows, float32 [n, tree.size], of actions [n, size].

        Raises:
            ActionError: a wrong shape, not numbers, NaN or infinity.
        """
        given = np.asarray(actions)
        size = self.low.shape[0]
        if given.ndim != 2 or given.shape[1] != size or given.dtype.kind not in "fiub":
            raise ActionError(
                "the actions do not fit the Box of this hybrid action space",
                field="ACT",
                expected=f"numbers [n, {size}]",
                got=f"{given.dtype} {list(given.shape)}",
            )
        with np.errstate(over="ignore"):
            given = given.astype(np.float32, copy=False)
        finite = np.isfinite(given)
        if not finite.all():
            env, index = np.argwhere(~finite)[0].tolist()
            raise ActionError(
                "the policy's action is not a finite number",
                env_id=env,
                field="ACT",
                got=given[env, index].item(),
                cure="training has probably diverged: lower the learning rate",
            )
        rows = np.empty((len(given), self.tree.size), np.float32)
        for box, row, read in self._from_box:
            rows[:, row] = read(given[:, box])
        return rows

    def encode(self, action: Any) -> NDArray[np.float32]:
        """One action as Gymnasium has it (a dict or tuple, choices counted as the engine does), float32 [size].

        A choice becomes 1 among -1, a flag 1 or -1; `decode` gives it back.
        """
        row = np.empty(self.tree.size, np.float32)
        for path, leaf, at in leaves(self.tree):
            row[at : at + leaf.size] = np.ravel(part_of(action, path))
        encoded: NDArray[np.float32] = self.from_rows(row[None])[0]
        return encoded

    def from_rows(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The inverse of `decode`: rows of the wire, float32 [n, tree.size], as float32 [n, size], as `encode` does."""
        encoded = np.empty((len(rows), *self.low.shape), np.float32)
        for box, row, write in self._to_box:
            encoded[:, box] = write(rows[:, row])
        return encoded

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HybridBox) and self.tree == other.tree

    __hash__ = None  # type: ignore[assignment]  # as every Box

    def __repr__(self) -> str:
        names = ", ".join(f"{'.'.join(path)}: {leaf.kind.value}" for path, leaf, _ in leaves(self.tree))
        return f"HybridBox({self.low.shape[0]} numbers; {names})"


def part_of(value: Any, path: tuple[str, ...]) -> Any:
    """The part of a nested dict or tuple at `path`; a tuple's parts are named 0, 1, ..

    Raises:
        ActionError: there is none.
    """
    for name in path:
        try:
            if isinstance(value, (tuple, list)):
                value = value[int(name)]
            else:
                value = value[name]
        except (KeyError, IndexError, TypeError, ValueError):
            got = sorted(map(str, value)) if isinstance(value, dict) else type(value).__name__
            raise ActionError(
                "an action lacks a part",
                field="ACT",
                expected=".".join(path),
                got=got,
                cure="give a dict or tuple as the action space says, each part with a row for each env",
            ) from None
    return value
