"""Interrupts: events that a game names, which end an advance early. GAME_OVER is not among them: it always does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ue_rl.system.errors import ConfigurationError, nearest

GAME_OVER = "game_over"
ALL = "*"
_MOST = 64


class Interrupts:
    """What a game raises in a tick.

    Args:
        names: of the events, 64 at most. num_envs: of the bridge.

    Attributes:
        bits: uint64 [num_envs]; bit i is set where event i was raised in the last tick. Cleared before each tick of an
            env by who ticks it.

    Raises:
        ConfigurationError: too many names, a name twice, or "game_over" among them.
    """

    def __init__(self, names: Sequence[str], num_envs: int = 1) -> None:
        if len(names) > _MOST or len(set(names)) != len(names) or {GAME_OVER, ALL} & set(names):
            raise ConfigurationError(
                "these cannot be the names of interrupts",
                field="interrupts",
                got=list(names),
                expected=f"at most {_MOST} names, each once, without {GAME_OVER} and {ALL}",
            )
        self.names = tuple(names)
        self._bits = {name: np.uint64(1 << number) for number, name in enumerate(names)}
        self.bits: NDArray[np.uint64] = np.zeros(num_envs, np.uint64)

    def raise_in(self, env_ids: int | NDArray[np.intp] | Sequence[int], name: str) -> None:
        """Raises an event in these envs, in the tick that runs."""
        self.bits[env_ids] |= self._bits[name]

    def wanted(self, names: Sequence[str]) -> int:
        """The bits of `names`; "*": of all.

        Raises:
            ConfigurationError: the game has no such event.
        """
        bits = 0
        for name in names:
            if name == ALL:
                bits |= (1 << len(self.names)) - 1
            elif name != GAME_OVER:
                if name not in self._bits:
                    known = [*self.names, GAME_OVER]
                    raise ConfigurationError(
                        "the game raises no such interrupt",
                        field="interrupts",
                        expected=", ".join(known),
                        got=name,
                        cure=nearest(name, known),
                    )
                bits |= int(self._bits[name])
        return bits

    def first(self, bits: int) -> str:
        """The name of the lowest of `bits`; "" for none."""
        if bits:
            return self.names[(bits & -bits).bit_length() - 1]
        return ""


@runtime_checkable
class NamesInterrupts(Protocol):
    """A game with events that end an advance early."""

    @property
    def interrupts(self) -> Interrupts:
        """Their names, and in which envs each was raised in the last tick."""
        ...
