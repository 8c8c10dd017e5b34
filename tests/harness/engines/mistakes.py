"""All ways in which a MistakenEngine can be wrong (WAYS), and those in which it is unusual and right (UNUSUAL)."""

from __future__ import annotations

from importlib import import_module

from tests.harness.engines import ways
from tests.harness.engines.ways import Way

for _part in (
    "handshake", "rows", "numbers", "answers", "seq", "reading", "session", "resets", "actions", "values",
):  # fmt: skip
    import_module(f"tests.harness.engines.mistakes_{_part}")
import_module("tests.harness.engines.unusual")
WAYS: list[Way] = [way for way in ways.WAYS if way.mistake]
UNUSUAL: list[Way] = [way for way in ways.WAYS if not way.mistake]


def find(name: str) -> Way:
    """The way of this name; of a mistake's name alone the first one.

    Raises:
        KeyError: there is none.
    """
    for way in ways.WAYS:
        if name in (way.name, way.mistake):
            return way
    raise KeyError(f"no such mistake: {name}; see --list")
