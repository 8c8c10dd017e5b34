"""Numbers that were rounded before they were sent. No I/O."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ENOUGH = 200  # different numbers
_LOOKED_AT = 2000
_DECIMALS, _DIGITS = (3, 4, 5, 6), (3, 4, 5, 6)  # %f has 6 decimals, C++ streams have 6 digits; float32 needs 9
_EXACT = 2.0**22  # units; of greater numbers every float32 is near a multiple


def rounding(values: NDArray[np.float64]) -> str:
    """How all of these different float32 numbers are rounded, for people; "" where nothing says that they are."""
    values = values[:: -(-len(values) // _LOOKED_AT)] if len(values) else values
    for decimals in _DECIMALS:
        unit = 10.0**-decimals
        part = values[np.abs(values) < _EXACT * unit]
        if len(part) < _ENOUGH or 2 * len(part) < len(values):
            continue
        if all_of(part, unit) and not all_of(part, 2 * unit) and not all_of(part, 5 * unit):
            return f"{decimals} decimals at most"
    for digits in _DIGITS:
        if len(values) >= _ENOUGH and _significant(values, digits).all():
            # Of numbers on a grid the small ones have fewer digits than the others.
            small = values[np.abs(values) < 0.1 * np.abs(values).max()]
            if 10 * len(small) >= _ENOUGH and not _significant(small, digits - 1).mean() > 0.5:
                return f"{digits} significant digits at most"
            return ""
    return ""


def all_of(values: NDArray[np.float64], unit: float) -> bool:
    """Is each of these float32 numbers the nearest one to a multiple of the unit?"""
    near = np.round(values / unit) * unit
    return bool((near.astype(np.float32) == values.astype(np.float32)).all())


def _significant(values: NDArray[np.float64], digits: int) -> NDArray[np.bool_]:
    """Which of these float32 numbers are the nearest ones to numbers of so many digits?"""
    near = np.array([float(f"{x:.{digits - 1}e}") for x in values.tolist()], np.float32)
    same: NDArray[np.bool_] = near == values.astype(np.float32)
    return same
