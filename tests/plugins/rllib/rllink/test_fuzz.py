"""A short run of `benchmarks/fuzz.py --rllink`: no foreign exception, nothing imported, opened or called."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fuzzing.run import run
from tests.plugins.rllib.rllink.fuzzing import Guard, rllink_targets

SANITIZED = "ASAN_OPTIONS" in os.environ  # AddressSanitizer is slow, and keeps what was freed


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard()


@pytest.mark.parametrize("each", [200, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_no_message_does_harm(guard: Guard, each: int) -> None:
    pytest.importorskip("onnx", reason="files of policies are made by the extra train")
    targets = rllink_targets(guard)
    assert len(targets) == 5
    outcome = run(targets, 5 * each, seed=20_261_122, block=each // 20)
    assert [fault for fault in outcome.faults if not (SANITIZED and " ms for " in fault)] == []
    assert set(outcome.messages.values()) == {each}
    assert outcome.grown < 16 << 20 or SANITIZED


class Trap:
    def __reduce__(self) -> Any:
        return eval, ("1",)


@pytest.mark.parametrize(
    "harm",
    [
        pickle.loads,
        lambda _: Path("/nowhere").read_bytes(),
        lambda _: compile("1", "x", "eval"),
        lambda _: os.system("true"),
        lambda _: __import__("wave"),
    ],
)
def test_harm_is_seen(guard: Guard, harm: Any) -> None:
    with pytest.raises(AssertionError):
        guard.read(harm, pickle.dumps(Trap()))
    guard.read(lambda _: None, b"")
