"""State on the disk without pickles, and NumPy's global generator read quickly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ue_rl.saving.global_random import read_state, write_state
from ue_rl.saving.packing import read_packed, write_packed


def test_what_is_written_is_read(tmp_path: Path) -> None:
    value = {
        "numbers": [1, 2.5, float("inf"), 2**127, -0.0, None, True, "text"],
        "arrays": (np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 4), np.int8), np.array([True, False])),
        "by id": {0: "zero", 7: {"$array": "not one"}},
        "scalar": np.float64(0.1),
        "nested": [{"a": [np.array([1], np.uint32)]}, ()],
    }
    write_packed(tmp_path, "state", value)
    read = read_packed(tmp_path, "state")
    np.testing.assert_equal(read, {**value, "scalar": np.array(0.1)})
    assert read["arrays"][0].dtype == np.float32
    read["arrays"][0][:] = 0  # an array of its own


@pytest.mark.parametrize("value", [object(), {"a": np.array([object()])}, b"bytes"])
def test_what_cannot_be_written(tmp_path: Path, value: object) -> None:
    with pytest.raises(TypeError, match="cannot be saved"):
        write_packed(tmp_path, "state", value)


def test_the_state_of_the_global_generator() -> None:
    for k in range(700):
        np.random.normal(size=k % 3)
        np.random.random(k % 7)
        quick, slow = read_state(), np.random.get_state()
        np.testing.assert_array_equal(quick[1], slow[1])
        assert (quick[0], *quick[2:]) == (slow[0], *slow[2:])
        if k % 5 == 0:
            kept = quick
        if k % 5 == 3:  # back to where a normal number was left, or none
            write_state(kept)
            assert read_state()[3:] == np.random.get_state()[3:] == kept[3:]
    np.random.set_state(quick)
    one = np.random.normal(size=3)
    np.random.set_state(slow)
    np.testing.assert_array_equal(one, np.random.normal(size=3))
