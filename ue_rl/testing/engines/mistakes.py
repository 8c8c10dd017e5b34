"""All ways in which a MistakenEngine can be wrong (WAYS), and those in which it is unusual and right (UNUSUAL)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.testing.engines import mistakes_game, mistakes_rows, mistakes_session
from ue_rl.testing.engines.unusual import UNUSUAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ue_rl.testing.engines.ways import Way

__all__ = ["UNUSUAL", "WAYS", "find"]

WAYS: list[Way] = [*mistakes_rows.WAYS, *mistakes_session.WAYS, *mistakes_game.WAYS]


def find(name: str, ways: Sequence[Way] = WAYS) -> Way:
    """The way of this name; of a mistake's name alone the first one.

    Raises:
        KeyError: there is none.
    """
    for way in [*ways, *UNUSUAL]:
        if name in (way.name, way.mistake):
            return way
    raise KeyError(f"no such mistake: {name}; see --list")
