"""Engines that are lost when a test says so, two of them, with 2 envs each: the second one is to be broken."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.harness.several import FragileSource, Walk
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.system.timing import SYSTEM_TIMING, Timing

A = np.zeros(4, np.int64)


def two(
    kind: Any = Walk, restarts: Restarts | None = None, timing: Timing = SYSTEM_TIMING, **options: Any
) -> tuple[EnginesTransport, FragileSource]:
    """Both, and the source of the second; options: of the game."""
    sources = [FragileSource(lambda life, at=at: kind(2, at, **options), f"m{at}") for at in (0, 2)]  # type: ignore[misc]
    return EnginesTransport(sources, restarts=restarts or Restarts(), timing=timing), sources[1]


def played(*args: Any, **options: Any) -> tuple[UnrealVecEnv, FragileSource]:
    """Those of `two`, reset, as an env of Stable-Baselines3."""
    transport, fragile = two(*args, **options)
    env = UnrealVecEnv(transport)
    env.reset()
    return env, fragile


def steps_of(observations: Any) -> list[float]:
    """Which step of its episode each env is at."""
    return [float(row[2]) for row in observations]
