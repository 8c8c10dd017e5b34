"""Waiting for what another thread or process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


def eventually(condition: Callable[[], Any], seconds: float = 30.0, said: str = "it did not happen") -> Any:
    """The first true value of it; an AssertionError that says `said` where there is none in time."""
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        assert waited < seconds, said
        time.sleep(min(max(0.005, waited / 10), 0.05))  # some conditions look at all processes
    return value


def when(condition: Callable[[], Any], act: Callable[[], object], seconds: float = 60.0) -> threading.Thread:
    """Acts in a thread of its own as soon as the condition is true; where that takes longer, its test fails."""

    def wait() -> None:
        eventually(condition, seconds)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread
