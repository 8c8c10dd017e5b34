"""Streams of random numbers of their own, for what is drawn beside an env that was given the same seed."""

from __future__ import annotations

import numpy as np


def own_stream(seed: int | None, use: str, number: int = 0) -> np.random.SeedSequence:
    """What makes a generator of its own: np.random.default_rng(own_stream(seed, "actions")).

    default_rng(seed) and space.seed(seed) would draw the very numbers that an env draws which was given `seed`, and so
    would default_rng((seed, 0)): NumPy fills up with zeros.

    Args:
        seed: of the run; None: another one each time. use: what is drawn, such as "actions". number: of several such.
    """
    key = (*use.encode(), number)
    return np.random.SeedSequence(seed, spawn_key=key)


def own_seed(seed: int | None, use: str) -> int | None:
    """As `own_stream`, as a number below 2**32, for what takes only such; None of None."""
    if seed is None:
        return None
    return int(own_stream(seed, use).generate_state(1, np.uint32)[0])


def env_seed(seed: int) -> int:
    """The seed of a run's env 0; env i gets the i-th number behind it.

    Runs with neighbouring seeds would otherwise play each other's episodes: env 1 of seed 0 is env 0 of seed 1. It is
    below 10**9, so that what is added for workers and evaluations stays within an int32, which some engines read.
    """
    return int(own_stream(seed, "envs").generate_state(1, np.uint32)[0]) % 1_000_000_000
