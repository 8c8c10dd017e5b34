"""What each mind earns in the scenes: the tables of docs/arena.md.

OMP_NUM_THREADS=1 python -m benchmarks.arena_minds [--steps 300000] [--seeds 3] [--save FOLDER]

Each plays the same 50 episodes, which no policy was trained on. PPO and behaviour cloning learn as in
tests/plugins/arena/test_learning.py.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tests.plugins.arena.test_learning import cloned, learner, policy_of
from ue_rl.plugins.arena import AgentArena, AgentBehavior, RandomBehavior
from ue_rl.plugins.arena.evals import Score
from ue_rl.plugins.arena.scenes import SCENES, Foraging
from ue_rl.plugins.arena.scenes.rules import RULES


def row(label: str, scene: str, minds: dict[str, AgentBehavior], took: str = "") -> None:
    """Prints a line of the table."""
    score = Score.of(label, AgentArena.play(SCENES[scene](), minds, episodes=50, seed=10_000))
    metrics = ", ".join(f"{name} {value:.2f}" for name, value in score.metrics.items())
    interval = f"{score.mean:.2f} [{score.low:.2f}, {score.high:.2f}]"
    cells = [scene, label, interval, f"{score.success:.2f}", metrics, took]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--save", type=Path, help="keep the models here")
    options = parser.parse_args()
    print("| scene | mind | return, 95 % | success | means | learned in |\n|---|---|---|---|---|---|")
    for name, scene in SCENES.items():
        row("random", name, {agent: RandomBehavior() for agent in scene.agents})
        row("rules", name, {agent: RULES[name]() for agent in scene.agents})
    (agent,) = Foraging.agents
    began = time.process_time()
    model = cloned()
    row("cloned rules", "foraging", {agent: policy_of(model)}, f"{time.process_time() - began:.0f} s CPU")
    for seed in range(options.seeds):
        began = time.process_time()
        model = learner(seed).learn(options.steps)
        row(f"PPO, seed {seed}", "foraging", {agent: policy_of(model)}, f"{time.process_time() - began:.0f} s CPU")
        if options.save is not None:
            model.save(options.save / f"foraging-{seed}.zip")


if __name__ == "__main__":
    main()
