"""A Godot scene plays foraging over HTTP, with an agent of each tier and with a policy."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra arena is not installed")

from tests.samples.godot_engine import GODOT, PROJECT, godot_environment, needs_godot
from ue_rl.plugins.arena import AgentArena, AgentBehavior, PolicyBehavior, RulesBehavior, SimpleAgentBehavior
from ue_rl.plugins.arena.scenes import Foraging

pytestmark = needs_godot


class TierOne(SimpleAgentBehavior):
    def decide(self, context: Any) -> str:
        berry = context.nearest_resource
        return "collect" if berry is not None and berry.distance < 1.5 else "move_to"


class TierTwo(RulesBehavior):
    """Rules; keeps what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[Any] = []
        self.ended: Any = None

    def on_tool_result(self, result: Any) -> None:
        self.results.append(result)

    def on_episode_end(self, success: bool, metrics: Any) -> None:
        self.ended = success, metrics


class Trained:
    """Stands for a trained policy: from the numbers of the observation to the number of a choice."""

    def run_inference(self, observations: Any) -> Any:
        reach = observations[0, Foraging.obs_names.index("in reach")]
        return np.array([[Foraging.choices.index("collect" if reach else "nearest berry")]], np.float32)


def played(behavior: AgentBehavior, home: Path) -> dict[str, float]:
    """An episode of the scene in a Godot process; its metrics."""
    arena = AgentArena.connect(port=0, deadline=20)
    arena.register("forager", behavior)
    arena.start()
    command = [str(GODOT), "--path", str(PROJECT), "foraging/foraging.tscn", "--fixed-fps", "60"]
    try:
        said = subprocess.run([*command, f"--port={arena.port}", "--seed=1"], capture_output=True, text=True,
                              env=godot_environment(home), timeout=100, check=True).stdout  # fmt: skip
    finally:
        arena.stop()
    (line,) = [line for line in said.splitlines() if line.startswith("foraging: ")]
    metrics: dict[str, float] = json.loads(line.removeprefix("foraging: "))
    return metrics


@pytest.mark.exhaustive
def test_tier_one(tmp_path: Path) -> None:
    assert played(TierOne(), tmp_path)["resources"] >= 3


def test_tier_two_hears_of_its_calls_and_of_the_end(tmp_path: Path) -> None:
    behavior = TierTwo()
    metrics = played(behavior, tmp_path)
    assert metrics["resources"] >= 3
    assert len(behavior.results) == metrics["time"] - 1
    assert behavior.results[0].tool == "move_to"
    assert behavior.ended == (metrics["resources"] == 10, metrics)


@pytest.mark.exhaustive
def test_a_policy(tmp_path: Path) -> None:
    assert played(PolicyBehavior(Trained(), Foraging), tmp_path)["resources"] >= 3
