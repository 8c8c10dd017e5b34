"""The reach demos of C++ and C# in heuristic mode: what they show or send, against what a trainer gets and does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

import ue_rl
from ue_rl.devtools import check as compliance
from ue_rl.system.errors import UnsupportedByEngine
from ue_rl.training.demonstrations.cloning import clone
from ue_rl.training.demonstrations.dataset import Demonstrations, read
from ue_rl.training.demonstrations.recording import record_played


def compare(shown: list[str], port: int) -> None:
    """Is each env's part of the lines what the demo on this port gives a trainer with the same script? Of two envs."""
    env = ue_rl.connect(f"tcp://127.0.0.1:{port}", wait=5)
    wanted = followed(env, len(shown))
    env.close()
    for start in ("env 0:", "env 1:"):
        lines = [line for line in shown if line.startswith(start)]
        assert lines
        assert lines == [line for line in wanted if line.startswith(start)][: len(lines)]
    assert {line.rpartition(", ")[2] for line in shown} >= {"done", "truncated", "step 0"}


def followed(env: ue_rl.UnrealVecEnv, steps: int) -> list[str]:
    """What the lines of the demo say of so many steps."""
    names = env.engine_spec.obs_names or ()
    total, length = [0.0, 0.0], [0, 0]
    lines = []

    def show(k: int, numbers: Any, reward: float, end: str) -> None:
        seen = " ".join(f"{name}={float(x):.4g}" for name, x in zip(names, numbers, strict=True))
        lines.append(f"env {k}: {seen} | reward {reward:.4g}, return {total[k]:.4g}, step {length[k]}{end}")

    obs = env.reset()
    for k in range(2):
        show(k, obs[k], 0.0, "")
    for _ in range(steps):
        obs, rewards, dones, infos = env.step(np.clip(4 * obs[:, 4:6] - 2 * obs[:, 2:4], -1, 1))
        for k, info in enumerate(infos):
            total[k] += float(rewards[k])
            length[k] += 1
            end = (", truncated" if info.get("TimeLimit.truncated") else ", done") if dones[k] else ""
            show(k, info["terminal_observation"] if dones[k] else obs[k], float(rewards[k]), end)
            if dones[k]:
                total[k], length[k] = 0.0, 0
                show(k, obs[k], 0.0, "")
    return lines


def record(port: int, folder: Path, channel: str = "auto", episodes: int = 20) -> Demonstrations:
    """So many episodes of the demo on this port, which acts itself: it says with each state what its script did."""
    report = compliance.check(
        f"tcp://127.0.0.1:{port}", compliance.Options(timeout=20.0), only=["steps of all envs", "actions of its own"]
    )
    assert report.mistakes == []
    assert "said what it did" in str(report.findings)
    env = ue_rl.connect(f"tcp://127.0.0.1:{port}", channel=channel)
    assert record_played(env, folder, episodes) == episodes
    env.close()
    found = read(folder)
    seen, acted = found.pairs()
    np.testing.assert_allclose(acted, np.clip(4 * seen[:, 4:6] - 2 * seen[:, 2:4], -1, 1), atol=1e-6)
    assert all(one.terminated and one.rewards[-1] == 5 for one in found.episodes)
    return found


def clone_and_play(port: int, found: Demonstrations, folder: Path) -> None:
    """In the demo on this port, which does not act itself."""
    env = ue_rl.connect(f"tcp://127.0.0.1:{port}")
    with pytest.raises(UnsupportedByEngine, match="does not act itself"):
        record_played(env, folder, 1)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=16, device="cpu", seed=0)
    clone(
        model, found.of(env.observation_space, env.action_space), epochs=60, batch_size=64, learning_rate=3e-3, seed=0
    )
    returns, _ = evaluate_policy(model, env, 20, return_episode_rewards=True, warn=False)
    assert np.mean(np.array(returns) > 2) > 0.9, "it arrives, as the script does"
    env.close()
