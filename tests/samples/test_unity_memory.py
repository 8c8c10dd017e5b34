"""samples/unity: engines in C# over shared memory, against the same over text, and what a step allocates."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samples.programs import Trainer, carrier, connect
from tests.samples.unity_engine import MARKS, NUM_ENVS, SAMPLE, compiled, played, started
from tests.support.steps import advance, begin
from tests.support.waiting import eventually
from ue_rl.system.errors import EngineDisconnected, UnsupportedByEngine

pytestmark = MARKS


def test_it_needs_no_shared_memory() -> None:
    console = sorted((SAMPLE / "console").glob("*.cs"))
    exe = compiled("alone.exe", SAMPLE / "UeRlBridge.cs", SAMPLE / "UeRlHeuristic.cs", *console)
    with started([exe, "--port", "0", "--num-envs", "2"]) as port, Trainer(port) as trainer:
        assert "SHM=" not in trainer.handshake
        assert trainer.ask("ACT=RESET;ENV=1").startswith("OBS=")


def test_an_offer_that_is_not_taken_is_withdrawn(reach: int) -> None:
    with Trainer(reach) as trainer:
        name = trainer.handshake.partition("SHM=")[2].partition(":")[0]
        file = Path("/dev/shm", name)
        assert file.stat().st_mode & 0o777 == 0o600
        assert trainer.ask("ACT=RESET;ENV=0").startswith("OBS=")
        assert not file.exists()
    with Trainer(reach) as trainer:
        assert trainer.ask("SHM=ACCEPT;PROOF=" + "0" * 32).startswith("SHM=REFUSED;WHY=the%20proof")
        assert trainer.ask("ACT=RESET;ENV=0").startswith("OBS=")  # and it goes on in text


def test_what_travels_in_text_alone_is_not_offered(sink: int) -> None:
    env = connect(sink, transport="auto")
    assert env.reset().shape == (NUM_ENVS, 4)
    env.close()
    with pytest.raises(UnsupportedByEngine, match="does not offer it"):
        connect(sink, transport="shm")


def trajectory(port: int, transport: str, steps: int = 45, **options: Any) -> list[list[Any]]:
    """Of the game plain: every array of the buffers, the masks among them, and actions that take several ticks."""
    line, rng, seen = carrier(port, transport, **options), np.random.default_rng(5), []
    buffers = begin(line, seeds=[1, 1000, 2, 1000])
    for k in range(steps):
        arrays = (buffers.obs, buffers.rewards, buffers.dones, buffers.truncated, buffers.masks)
        seen.append([array.tolist() for array in arrays])
        if k % 10 == 9:
            buffers = begin(line, [1, 3], seeds=[1000, 7])
        else:
            buffers = advance(line, rng.integers([-1, 0], 2, (NUM_ENVS, 2)))
    line.close()
    return seen


def test_masks_partial_resets_and_long_actions_are_those_of_the_text(plain: int) -> None:
    expected = trajectory(plain, "tcp", channel="shared")
    assert trajectory(plain, "shm") == expected
    assert {flag for step in expected for row in step[4] for flag in row} == {0, 1}
    assert any(step[3][0] for step in expected)


def test_agents_are_those_of_the_text(agents: int) -> None:
    def history(transport: str) -> list[list[Any]]:
        line, seen = carrier(agents, transport), []
        buffers = begin(line)
        for _ in range(6):
            there = buffers.present.astype(bool)
            arrays = (buffers.obs, buffers.rewards, buffers.dones, buffers.truncated)
            seen.append([buffers.present.tolist(), *(array[there].tolist() for array in arrays)])
            buffers = advance(line, np.tile([[0.5, 1], [1, 1], [2, 0]], (2, 1)))
        line.close()
        return seen

    expected = history("tcp")
    assert history("shm") == expected
    assert [step[0][:3] for step in expected] == [[1, 0, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 0]]


@pytest.mark.parametrize(
    ("seed", "why"),
    [
        (1001, "the game cannot go on: the level is missing"),
        (1002, "the game cannot go on: a bug of the game"),
        (1003, "observation 2 of env 1 is NaN"),
        (1004, "the mask of env 1 leaves number 0 without any choice"),
    ],
)
def test_a_game_that_fails_says_why_in_memory_too(plain: int, seed: int, why: str) -> None:
    line = carrier(plain, "shm")
    with pytest.raises(EngineDisconnected, match=why):
        begin(line, seeds=[1, seed, 1, 1])
        advance(line, 0)
    line.close()
    assert len(trajectory(plain, "shm", steps=1)) == 1


Write = Callable[[Any], object]
BROKEN: dict[str, tuple[Write, str]] = {
    "an action that is not finite": (lambda memory: memory.actions.fill(np.nan), "ACT of env 0 is not a finite number"),
    "no choice": (lambda memory: memory.actions.fill(0.5), "ACT of env 0 is no choice of -1 to 1"),
    "ask": (lambda memory: memory.ask.fill(3), "ask of env 0 is neither 0, 1 nor 2"),
    "twice": (lambda memory: memory.words.increment_u64(memory.buffer, 40), "it asked before its answer"),
    "back": (lambda memory: memory.store_u64(40, 2**63 + 5), "it asked before its answer"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_trainer_that_breaks_the_rules_in_memory_is_told(plain: int, kind: str) -> None:
    write, why = BROKEN[kind]
    line = carrier(plain, "shm")
    memory = line.memory
    memory.ask.fill(1)
    write(memory)
    memory.words.increment_u64(memory.buffer, 40)
    assert eventually(lambda: memory.end_of(os.getpid())) == f"the trainer broke the protocol: {why}"
    eventually(lambda: memory.load_u32(12) == 0, said="freed")
    line.close()


@pytest.mark.parametrize("wiring", ["SHARED", pytest.param("PER_ENV", marks=pytest.mark.exhaustive), "MEMORY"])
def test_steps_allocate_nothing(probe: Path, wiring: str) -> None:
    said = played(probe, "alloc", wiring, "10000", "8", MONO_GC_PARAMS="nursery-size=512k")
    collections, in_use, seen_by_the_meter = map(int, " ".join(said).split())
    assert collections == 0
    assert in_use == 0
    assert seen_by_the_meter >= 64 * 20_000  # it does see 20 000 small objects
