"""Attempts: trying again until a time is over."""

from __future__ import annotations

import time

LEAST = 0.2  # seconds that an attempt has
_PAUSE = 0.2  # seconds from an attempt that failed to the next one


def next_attempt(until: float) -> float:
    """Pauses, and returns the seconds that the next attempt has; 0.0: there is to be none.

    One without time would fail for that, and its error would hide why those before it failed.

    Args:
        until: when the last attempt is to be over, in seconds of time.monotonic().
    """
    time.sleep(_PAUSE)
    left = until - time.monotonic()
    if left < LEAST:
        return 0.0
    return left
