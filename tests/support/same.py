"""Whether two things are the same to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same(got: Any, want: Any) -> None:
    """The same structure, dtypes, shapes and values; of dicts the same keys in the same order."""
    if isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            assert_same(got[key], want[key])
    elif isinstance(want, (list, tuple)):
        assert type(got) is type(want)
        assert len(got) == len(want)
        for mine, its in zip(got, want, strict=True):
            assert_same(mine, its)
    else:
        mine, its = np.asarray(got), np.asarray(want)
        assert mine.dtype == its.dtype
        np.testing.assert_array_equal(mine, its)
        if its.dtype != object:
            assert mine.tobytes() == its.tobytes(), "they differ in the sign of a zero"
