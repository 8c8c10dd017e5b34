"""Engines of samples/cpp/ue_rl_bridge.hpp built for Windows: their text, under Wine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samples import cpp_engine, programs
from tests.samples.test_cpp_lines import check_answers, vector_lines
from tests.windows import wine
from ue_rl.system.errors import UeRlError

pytestmark = wine.MARKS

SAMPLES = wine.ROOT / "samples" / "cpp"
TESTS = wine.ROOT / "tests" / "samples" / "cpp"
STEPS = 200


@contextlib.contextmanager
def reach(*words: str) -> Iterator[int]:
    """The port of samples/cpp/reach.cpp, for Windows."""
    with wine.start(
        wine.program(SAMPLES / "reach.cpp", reads=[*SAMPLES.glob("*.hpp")]), "--port", "0", *words
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().split()[-1])
            assert process.poll() is None, "the engine has ended"
        finally:
            process.terminate()
            process.communicate()


def rollout(port: int, **options: Any) -> list[Any]:
    env = programs.connect(port, **options)
    env.seed(3)
    seen = [env.reset().tolist()]
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        obs, rewards, dones, _ = env.step(rng.uniform(-1, 1, (8, 2)).astype(np.float32))
        seen.append((obs.tolist(), rewards.tolist(), dones.tolist()))
    env.close()
    return seen


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    with programs.running(cpp_engine.made("reach"), "--port", "0") as port:
        return rollout(port, transport="tcp", channel="shared")


@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_a_rollout_over_text_is_linuxs(expected: list[Any], channel: str) -> None:
    with reach() as port:
        assert rollout(port, transport="tcp", channel=channel) == expected


def test_a_trainer_that_cannot_open_the_offered_mapping_goes_on_in_text(expected: list[Any]) -> None:
    """As one in WSL, whose game runs on Windows."""
    with reach("--shm") as port:
        with programs.Trainer(port) as trainer:
            assert ";SHM=ue_rl_" in trainer.handshake
        assert rollout(port, transport="auto") == expected
        with pytest.raises(UeRlError, match="there is no shared memory named"):
            programs.connect(port, transport="shm")


def test_golden_vectors() -> None:
    headers: list[Path] = [*SAMPLES.glob("*.hpp"), *TESTS.glob("*.hpp")]
    binary = wine.program(TESTS / "vectors.cpp", "-I", str(SAMPLES), reads=headers)
    asked, _ = vector_lines()
    check_answers(wine.run(binary, stdin="".join(f"{line}\n" for line in asked).encode()).decode().split("\n"))
