"""All ways in which a MistakenEngine can be wrong (WAYS), and those in which it is unusual and right (UNUSUAL)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.harness.engines import (
    mistakes_actions,
    mistakes_answers,
    mistakes_handshake,
    mistakes_numbers,
    mistakes_reading,
    mistakes_resets,
    mistakes_rows,
    mistakes_seq,
    mistakes_session,
    mistakes_values,
)
from tests.harness.engines.unusual import UNUSUAL

if TYPE_CHECKING:
    from collections.abc import Sequence

from tests.harness.engines.ways import Way

__all__ = ["UNUSUAL", "WAYS", "find"]

_MODULES = (
    mistakes_handshake,
    mistakes_rows,
    mistakes_numbers,
    mistakes_answers,
    mistakes_seq,
    mistakes_reading,
    mistakes_session,
    mistakes_resets,
    mistakes_actions,
    mistakes_values,
)
WAYS: list[Way] = [way for module in _MODULES for way in module.WAYS]


def find(name: str, ways: Sequence[Way] = WAYS) -> Way:
    """The way of this name; of a mistake's name alone the first one.

    Raises:
        KeyError: there is none.
    """
    for way in [*ways, *UNUSUAL]:
        if name in (way.name, way.mistake):
            return way
    raise KeyError(f"no such mistake: {name}; see --list")
