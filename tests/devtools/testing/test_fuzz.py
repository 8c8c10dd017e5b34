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


@pytest.mark.parametrize("messages", [200, pytest.param(1000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", TARGETS)
def test_no_message_does_harm(name: str, messages: int) -> None:
    logging.disable(logging.CRITICAL)
    try:
        outcome = run({name: TARGETS[name]}, messages, seed=20_261_121, block=10)
    finally:
        logging.disable(logging.NOTSET)
    assert [fault for fault in outcome.faults if not (SANITIZED and " ms for " in fault)] == []
    assert outcome.messages == {name: messages}
    assert outcome.grown < 16 << 20 or SANITIZED
