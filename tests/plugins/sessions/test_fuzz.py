"""Some spoilt messages to each carrier; `benchmarks/fuzz_sessions.py` sends 100,000."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.plugins.sessions.fuzzing import TARGETS


@pytest.mark.parametrize("count", [120, pytest.param(300, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("carrier", TARGETS)
def test_spoilt_messages_are_answered_and_others_are_served(served: Any, carrier: str, count: int) -> None:
    pool, server = served(carrier)
    neighbour = pool.create(seed=1)
    before = neighbour.advance(1)
    rng = random.Random(7)
    target = TARGETS[carrier](server.url)
    try:
        for _ in range(count):
            target.send(rng)
    finally:
        target.close()
    if carrier != "grpc":  # whose fuzz destroys all where they have run out
        assert neighbour.advance(1).tick == before.tick + 1
    assert pool.create().advance(1).tick == 1
