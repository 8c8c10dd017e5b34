"""samples/cpp in heuristic mode: games that act themselves, what they show, and what they tell a trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.samples import heuristic
from tests.samples.cpp_engine import MARKS, played, reach

pytestmark = MARKS


@pytest.mark.parametrize("bridge", [[], ["--per-env"]], ids=["arrays", "single envs"])
def test_a_heuristic_is_shown_what_a_trainer_gets(built: dict[str, Path], bridge: list[str]) -> None:
    """The demo's script, and the same in Python over a socket: each env's lines are the same."""
    words = ["--num-envs", "2", "--seed", "3", "--max-steps", "15", *bridge]
    shown = played(built["reach"], "--heuristic", "6", *words)
    with reach(built, *words) as port:
        heuristic.compare(shown, port)


def test_a_heuristic_plays_agents_masks_and_actions_of_several_ticks(built: dict[str, Path]) -> None:
    plain = played(built["lab-asan"], "plain", "heuristic")
    assert plain[:6] == [
        *(f"env {env}: position[m]=0 steps=0 | reward 0, return 0, step 0 1" for env in range(3)),
        *(f"env {env}: position[m]=1 steps=1 | reward 1, return 1, step 1 0" for env in range(3)),
    ]
    assert plain[14] == "env 2: position[m]=4 steps=4 | reward 4, return 10, step 4, truncated 1"
    assert plain[15] == "env 0: position[m]=0 steps=0 | reward 0, return 0, step 0 1", "the next episode"
    agents = [line for line in played(built["lab-asan"], "agents", "heuristic") if line.startswith("env 1, agent 2")]
    steps = [line.partition("step ")[2] for line in agents]
    assert steps[:6] == ["0 1", "1 1", "2, done 1", "0 1", "1 1", "2, done 1"], (
        "it leaves, comes back, and the env ends"
    )


def test_a_heuristic_ends_with_its_game(built: dict[str, Path]) -> None:
    assert played(built["lab-asan"], "thrower", "heuristic")[-1].startswith("the game's code failed: no ammunition")
    assert played(built["lab-asan"], "plain", "heuristic")[-1] == "the game's code failed: enough"


@pytest.mark.slow
def test_what_the_demo_s_script_does_is_recorded_and_cloned(built: dict[str, Path], tmp_path: Path) -> None:
    """FEATURES=DEMO over text and shared memory: the game acts, and says with each state what it did."""
    with reach(built, "--num-envs", "2", "--seed", "3", "--demo", "--shm") as port:
        heuristic.record(port, tmp_path / "few", episodes=4)
    with reach(built, "--num-envs", "2", "--seed", "3", "--demo") as port:
        found = heuristic.record(port, tmp_path / "demos", episodes=12)
    with reach(built, "--num-envs", "2", "--seed", "3") as port:
        heuristic.clone_and_play(port, found, tmp_path / "none")
