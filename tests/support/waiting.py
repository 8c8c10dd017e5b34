"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def eventually(condition: Callable[[], Any], seconds: float = 30.0, said: str = "it did not happen") -> Any:
    """The first true value of it; an AssertionError that says `said` where there is none in time."""
    over = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < over, said
        time.sleep(0.005)
    return value
