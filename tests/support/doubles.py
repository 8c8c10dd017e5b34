"""Doubles that are hard to write and to read: what an engine's side must carry to the bit."""

from __future__ import annotations

import numpy as np


def some_doubles() -> list[float]:
    """The ends of the range, numbers of few and of 17 digits, and numbers of any size."""
    rng = np.random.default_rng(0)
    ends = [5e-324, 2.225073858507201e-308, 2.2250738585072014e-308, 1.7976931348623157e308]
    known = [0.1, 0.1 + 0.2, 9.81, 1 / 3, 4e-7, 1e-7, 1e22, 1e23, 2.0**53 + 2, 123456789.123456789, -0.0]
    any_bits = rng.integers(0, 2**63, 60, dtype=np.uint64).view(np.float64)
    spread = [*rng.normal(0, 1, 60), *(10.0 ** rng.uniform(-20, 20, 60)), *any_bits[np.isfinite(any_bits)]]
    return ends + known + [float(x) for x in spread]
