"""A short run of benchmarks/fuzz.py, on every reader: no crash, no foreign exception, nothing slow, nothing grows."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.harness.fuzzing.run import run
from tests.harness.fuzzing.targets import targets

SANITIZED = "ASAN_OPTIONS" in os.environ  # AddressSanitizer is slow, and keeps what was freed
TARGETS = targets(Path(__file__).parents[3] / "docs" / "protocol-vectors.json")


@pytest.mark.parametrize("name", TARGETS)
def test_no_message_does_harm(name: str) -> None:
    logging.disable(logging.CRITICAL)
    try:
        outcome = run({name: TARGETS[name]}, 1000, seed=20_261_121)
    finally:
        logging.disable(logging.NOTSET)
    assert [fault for fault in outcome.faults if not (SANITIZED and " ms for " in fault)] == []
    assert outcome.messages == {name: 1000}
    assert outcome.grown < 16 << 20 or SANITIZED
