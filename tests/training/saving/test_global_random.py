"""NumPy's global generator, read quickly."""

from __future__ import annotations

import numpy as np

from ue_rl.training.saving.snapshot import read_state, write_state


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
