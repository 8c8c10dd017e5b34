"""The reach demos of C++ and C# in heuristic mode: what they show, against what a trainer gets of the same game."""

from __future__ import annotations

from typing import Any

import numpy as np

import ue_rl


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
