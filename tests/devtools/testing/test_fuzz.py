"""A short run of benchmarks/fuzz.py, on every reader: no crash, no foreign exception, nothing slow, nothing grows."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.harness.fuzzing.run import Outcome, run
from tests.harness.fuzzing.targets import targets

SANITIZED = "ASAN_OPTIONS" in os.environ  # AddressSanitizer is slow, and keeps what was freed
TARGETS = targets(Path(__file__).parents[3] / "docs" / "protocol-vectors.json")


def fed(names: Iterable[str], messages: int) -> Outcome:
    """What came of so many messages for each of these readers."""
    names = list(names)
    logging.disable(logging.CRITICAL)
    try:
        chosen = {name: TARGETS[name] for name in names}
        outcome = run(chosen, messages * len(names), seed=20_261_121, block=10)
    finally:
        logging.disable(logging.NOTSET)
    assert [fault for fault in outcome.faults if not (SANITIZED and " ms for " in fault)] == []
    assert outcome.messages == dict.fromkeys(names, messages)
    return outcome


def test_no_message_does_harm() -> None:
    """All readers in one run: to begin one takes as long as its messages."""
    assert fed(TARGETS, 200).grown < 16 << 20 or SANITIZED


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TARGETS)
def test_no_message_of_a_thousand_does_harm(name: str) -> None:
    assert fed([name], 1000).grown < 16 << 20 or SANITIZED
