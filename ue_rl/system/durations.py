"""Durations as people write them: 500ms, 30s, 5min, 2h; a number alone is seconds."""

from __future__ import annotations

import re

FORM = "a duration such as 500ms, 30s, 5min or 2h"
MOST = 1e8  # seconds, three years: beyond that some system's clock runs over
_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def read_duration(text: str | float) -> float:
    """Seconds of "5min", of "300", or of 300; raises ValueError: not a duration, or longer than MOST."""
    found = re.fullmatch(r"(\d+|\d*\.\d+|\d+(?:\.\d*)?e[+-]?\d+)\s*([a-z]*)", str(text).strip().lower(), re.ASCII)
    if isinstance(text, bool) or found is None or found[2] not in _UNITS:
        raise ValueError(f"not {FORM}: {text!r}")
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > MOST:
        raise ValueError(f"more than {MOST:g} seconds: {text!r}")
    return seconds


def duration_text(seconds: float) -> str:
    """As `read_duration` reads it back: "90s" of 90, "5min" of 300."""
    unit = next((unit for unit in ("h", "min") if seconds >= 2 * _UNITS[unit] and seconds % _UNITS[unit] == 0), "s")
    return f"{seconds / _UNITS[unit]:.15g}{unit}"
