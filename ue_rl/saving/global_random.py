"""The state of NumPy's global random generator, read in 2 us where nothing was drawn from it.

np.random.get_state() takes 40 us, because it copies the 624 words of the Mersenne Twister one by one as Python objects;
much for what an algorithm does once in a step. Here they are copied out of the generator's memory. What is left of the
last pair of normal numbers is not there, and is asked for; but none is left where none was and nothing was drawn.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_WORDS = 624
_BYTES = 4 * (_WORDS + 1)  # mt19937_state of numpy/random/src/mt19937: uint32 key[624], int pos

_nothing_left = b""  # a state with which no normal number was left


def read_state() -> tuple[Any, ...]:
    """As np.random.get_state(), for `write_state`; its key is an array of its own."""
    global _nothing_left  # noqa: PLW0603 - the generator is one, too
    generator: Any = np.random.get_bit_generator()  # type: ignore[attr-defined]
    if not isinstance(generator, np.random.MT19937):  # somebody has set another one
        return tuple(np.random.get_state())
    memory = ctypes.string_at(generator.ctypes.state_address, _BYTES)
    words = np.frombuffer(memory, np.uint32)
    left, number = 0, 0.0
    if memory != _nothing_left:
        asked: Any = np.random.get_state()
        left, number = asked[3:]
        _nothing_left = b"" if left else memory
    return "MT19937", words[:_WORDS], int(words[_WORDS]), left, number


def write_state(state: tuple[Any, ...]) -> None:
    """As np.random.set_state()."""
    global _nothing_left  # noqa: PLW0603
    np.random.set_state(state)
    _nothing_left = b""
