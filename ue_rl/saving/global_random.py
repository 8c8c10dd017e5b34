"""The state of NumPy's global random generator, read in 2 us.

np.random.get_state() takes 100 us, because it copies the 624 words of the Mersenne Twister one by one as Python
objects; too much for what an algorithm does once in a step. Here they are copied out of the generator's memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_WORDS = 624
_BYTES = 4 * (_WORDS + 1)  # mt19937_state of numpy/random/src/mt19937: uint32 key[624], int pos


def read_state() -> tuple[Any, ...]:
    """As np.random.get_state(), for np.random.set_state(); its key is an array of its own."""
    one: Any = np.random.mtrand._rand
    generator = getattr(one, "_bit_generator", None)
    if not isinstance(generator, np.random.MT19937):  # somebody has set another one
        return tuple(np.random.get_state())
    words = np.frombuffer(ctypes.string_at(generator.ctypes.state_address, _BYTES), np.uint32)
    # get_state() adds what is left of the last pair of normal numbers to what its bit generator says of itself.
    one._bit_generator = _Said(words)
    try:
        said = one.get_state(legacy=False)
    finally:
        one._bit_generator = generator
    return "MT19937", words[:_WORDS], int(words[_WORDS]), said["has_gauss"], said["gauss"]


class _Said:
    """Stands in for a bit generator that is asked for its state."""

    def __init__(self, words: np.ndarray[Any, Any]) -> None:
        self.state = {"bit_generator": "MT19937", "state": {"key": words[:_WORDS], "pos": int(words[_WORDS])}}
