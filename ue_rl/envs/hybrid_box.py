"""HybridBox: an action that is a Dict or Tuple as one Box, for Stable-Baselines3, which knows no hybrid actions.

The numbers stand in the order of the tree's leaves:

    BOX             its own numbers, as they are, with their bounds
    DISCRETE(n)     n numbers -10..10: the greatest one is the choice, of equals the first
    MULTI_DISCRETE  the same for each of its numbers, one after the other
    MULTI_BINARY    a number -1..1 for each flag: on where it is greater than 0

Stable-Baselines3 clips what a Gaussian policy draws to the bounds, and clipped numbers are equal: the bounds of a
choice's numbers must lie far outside of what is drawn, or the first choices would be preferred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.protocol.spaces.tree import LeafKind, Space, leaves
from ue_rl.system.errors import ActionError

CHOICE_BOUND = 10.0  # ten standard deviations of a policy that has not learnt; finite, as SAC and TD3 need it


@dataclass(frozen=True)
class HybridPart:
    """Where one stretch of numbers stands.

    Attributes:
        kind: BOX (`size` numbers as they are), MULTI_BINARY (`size` flags) or DISCRETE (one choice of `size`).
        box: index of the first number in the Box. row: of the first one in the wire's row.
        size: numbers in the Box. start: the lowest choice of a DISCRETE.
    """

    kind: LeafKind
    box: int
    row: int
    size: int
    start: int = 0


def hybrid_parts(tree: Space) -> tuple[HybridPart, ...]:
    """The stretches of a hybrid action, in the Box's order; what an exported model needs to do as `decode` does."""
    parts: list[HybridPart] = []
    at = 0
    for _, leaf, row in leaves(tree):
        if leaf.kind in (LeafKind.BOX, LeafKind.MULTI_BINARY):
            parts.append(HybridPart(leaf.kind, at, row, leaf.size))
            at += leaf.size
            continue
        for index, count in enumerate(leaf.counts):
            start = 0
            if leaf.starts:
                start = leaf.starts[index]
            parts.append(HybridPart(LeafKind.DISCRETE, at, row + index, count, start))
            at += count
    return tuple(parts)


class HybridBox(spaces.Box):
    """A Box float32 [size] that remembers which hybrid action it stands for.

    Args:
        tree: a Branch, as the handshake's ACT_SPACE has it.

    Attributes:
        tree: the same. parts: what each stretch of numbers means.
    """

    def __init__(self, tree: Space) -> None:
        self.tree = tree
        self.parts = hybrid_parts(tree)
        size = sum(part.size for part in self.parts)
        low = np.full(size, -1, np.float32)
        high = np.full(size, 1, np.float32)
        at = 0
        for _, leaf, _ in leaves(tree):
            count = sum(leaf.counts) or leaf.size
            if leaf.kind is LeafKind.BOX:
                low[at : at + count] = leaf.low
                high[at : at + count] = leaf.high
            elif leaf.counts:
                low[at : at + count] = -CHOICE_BOUND
                high[at : at + count] = CHOICE_BOUND
            at += count
        super().__init__(low, high, dtype=np.float32)

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
        for part in self.parts:
            numbers = given[:, part.box : part.box + part.size]
            if part.kind is LeafKind.DISCRETE:
                rows[:, part.row] = numbers.argmax(axis=1) + part.start
            else:
                rows[:, part.row : part.row + part.size] = numbers > 0 if part.kind is not LeafKind.BOX else numbers
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
        encoded = np.full((len(rows), *self.low.shape), -1, np.float32)
        for part in self.parts:
            if part.kind is LeafKind.DISCRETE:
                choices = rows[:, part.row].astype(np.int64) - part.start
                encoded[np.arange(len(rows)), part.box + choices] = 1
            else:
                numbers = rows[:, part.row : part.row + part.size]
                flags = np.where(numbers > 0, np.float32(1), np.float32(-1))
                encoded[:, part.box : part.box + part.size] = numbers if part.kind is LeafKind.BOX else flags
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
