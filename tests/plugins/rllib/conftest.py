"""What the tests with Ray share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.own_envs import own

__all__ = ["cluster", "own"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster of this process, with two CPUs."""
    import ray  # not beside the tests that need none

    os.environ["OMP_NUM_THREADS"] = "1"
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.shutdown()  # Ray begins by itself where a test of another file needs one and asked for none: it stays there
    ray.init(num_cpus=2, object_store_memory=200_000_000, **quiet)
    yield
    ray.shutdown()
