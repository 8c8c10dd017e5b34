"""What the tests of the behavioural checks share: a small engine to be made wrong, and the checks alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl import compliance
from ue_rl.bridges import VectorBridge, run_in_thread
from ue_rl.compliance import Options, Outcome, Report
from ue_rl.compliance.checks import CHECKS
from ue_rl.spec import Channel, EnvSpec

HANGS = 60  # seconds, where a check takes a few: it must not wait for ever, and a machine may be busy
MODULES = ("resets", "episodes", "seeds", "spaces", "envs", "reach", "carriers")
ALL = tuple(each.name for each in CHECKS if each.run.__module__.rsplit(".", 1)[-1] in MODULES)


def checked(url: str, seed: int = 0, only: Sequence[str] = ALL, patience: float = 3.0) -> Report:
    """The behavioural checks alone."""
    return compliance.check(url, Options(timeout=3.0, patience=patience, seed=seed), only=only)


def found(report: Report, outcome: Outcome) -> set[str]:
    """The names of what is wrong."""
    return {one.mistake.name for one in report.findings if one.outcome is outcome and one.mistake is not None}


class Walk(VectorBridge):
    """A walk without seeds: two positions, moved by two numbers; an episode takes 12 to 20 steps.

    Attributes:
        place: float64 [num_envs, 2]. left: steps until the end, [num_envs].
    """

    def __init__(self, num_envs: int = 3, **spec: Any) -> None:
        spec = {"channel": Channel.SHARED, **spec}
        super().__init__(EnvSpec(spec.pop("obs_size", 2), spec.pop("act_size", 2), num_envs=num_envs, **spec))
        self.rng = np.random.default_rng(3)
        self.place, self.left = np.zeros((num_envs, 2)), np.ones(num_envs, np.intp)

    def start(self, env: int, seed: int | None) -> None:
        """Puts an env back."""
        self.place[env], self.left[env] = self.rng.uniform(-1, 1, 2), self.rng.integers(12, 20)

    def show(self, env: int) -> Any:
        """Its observation."""
        return self.place[env]

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        """See VectorBridge."""
        for env, seed in zip(env_ids.tolist(), seeds, strict=True):
            self.start(env, seed)
            self.outbox.obs[env] = self.show(env)

    def move(self, env: int, action: NDArray[np.float32]) -> None:
        """One step."""
        self.place[env] += 0.1 * np.clip(action[:2], -1, 1)

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """See VectorBridge."""
        self.left[env_ids] -= 1
        for env in env_ids.tolist():
            self.move(env, actions[env])
            self.outbox.obs[env] = self.show(env)
            self.outbox.rewards[env] = -np.abs(self.place[env]).sum()
            self.outbox.dones[env] = self.left[env] <= 0


def report_of(bridge: VectorBridge, only: Sequence[str] = ALL, seed: int = 0, patience: float = 3.0) -> Report:
    """Of a bridge that is hosted for it."""
    with run_in_thread(bridge) as engine:
        return checked(engine.url, seed, only, patience)
