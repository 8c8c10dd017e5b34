"""A reward that chance does not find: PPO alone, after cloning, and with RND: the table of docs/demonstrations.md.

    python benchmarks/demonstrations.py            # nine runs of 120,000 env-steps

Long: it is not part of the suite.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import ue_rl
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.training import TrainOptions, train
from ue_rl.training.demonstrations.recording import RecordingVecEnv

NAME, STEPS = "SparseReach-v0", 120_000


class SparseReach(gymnasium.Env[Any, Any]):
    """From one corner of a square to the other, 80 steps of 0.05 at most in 120; 1 on arrival, else nothing."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, -0.9, 2)
        return self.at.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at = np.clip(self.at + 0.05 * np.clip(action, -1, 1), -1, 1)
        there = bool(np.all(self.at > 0.8))
        return self.at.astype(np.float32), float(there), there, False, {}


gymnasium.register(NAME, SparseReach, max_episode_steps=120)


def demonstrate(folder: Path) -> None:
    """Fifty episodes of a script that goes there by a way that bends."""
    with run_in_thread(GymnasiumBridge(NAME, 5)) as engine:
        env = ue_rl.connect(engine.url)
        env.seed(0)
        with RecordingVecEnv(env, folder, 50) as recording:
            seen = recording.reset()
            while not recording.done:
                seen, *_ = recording.step(np.stack([0.9 * np.ones(len(seen)), 0.5 + 0.4 * seen[:, 0]], 1).astype("f4"))
        env.close()


def main() -> None:
    """Trains, and prints the table."""
    with tempfile.TemporaryDirectory() as folder:
        demonstrate(Path(folder) / "demos")
        print("| seed | PPO | BC + PPO | RND + PPO |\n|---|---|---|---|")
        for seed in range(3):
            shares = []
            for name, more in (("ppo", {}), ("bc", {"bc": f"{folder}/demos"}), ("rnd", {"rnd": 0.02})):
                with run_in_thread(GymnasiumBridge(NAME, 8)) as engine:
                    outcome = train(
                        TrainOptions(
                            url=engine.url, seed=seed, timesteps=STEPS, threads=1, log_dir=folder,
                            run_id=f"{name}-{seed}", export=False, eval_episodes=50,
                            hyperparameters={"n_steps": 128, "batch_size": 256, "n_epochs": 6, "learning_rate": 5e-4},
                            **more,
                        )
                    )  # fmt: skip
                assert outcome.evaluation is not None
                shares.append(f"{100 * outcome.evaluation[0]:.0f} %")
                print(f"{name}-{seed}: {shares[-1]}", file=sys.stderr, flush=True)
            print(f"| {seed} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
