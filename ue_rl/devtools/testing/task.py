"""TinyTask: one small deterministic env in whole numbers, so that two decimals on the wire lose nothing.

The rules, for env `e` in its episode number `n` (1 is the first one after a reset, 0 the time before any):

- State: `obs_size` positions, whole multiples of the unit u = 10 ** -decimals.
- Reset: n grows by one; position k becomes ((7919 e + 104729 n + 1299709 k) mod (2/u + 1)) u - 1, in [-1, 1].
- Step with action a: numbers are rounded to float32, then clipped to [-1, 1]; a missing one counts as 0, a
  NaN as 1 ("the engine never complains"), one too many is ignored. Position k moves by round(a[k mod
  act_size] / 10 / u) u, and is kept within [-5, 5].
- Reward: minus the mean absolute position, rounded to two decimals (half away from zero).
- The episode ends after `episode_length` + (e + n) mod 4 steps: envs end on different steps. Nothing is
  random, so a seed changes nothing.

`make_tiny_env` gives the same task as a gymnasium.Env: put it into SB3's DummyVecEnv, and a rollout over
the wire must be equal to the bit. No NumPy and nothing of ue_rl's codec is used here: the harness must be
able to find the codec's mistakes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gymnasium


def to_float32(value: float) -> float:
    """`value` rounded to the nearest float32; beyond its range infinity."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


@dataclass(eq=False)
class TinyTask:
    """One env of the task above.

    Args:
        env_id: which env; it decides where the episodes start and how long they are.
        obs_size, act_size: numbers per observation and per action.
        decimals: the resolution of the positions.
        episode_length: the shortest episode, in steps.
    """

    env_id: int = 0
    _: KW_ONLY
    obs_size: int = 4
    act_size: int = 2
    decimals: int = 2
    episode_length: int = 5

    def __post_init__(self) -> None:
        self.units: int = 10**self.decimals
        self.positions = [0] * self.obs_size
        self.episode = 0
        self.steps = 0

    def reset(self) -> list[float]:
        """Starts the next episode; the first observation."""
        self.episode += 1
        self.steps = 0
        span = 2 * self.units + 1
        self.positions = [
            (7919 * self.env_id + 104729 * self.episode + 1299709 * k) % span - self.units for k in range(self.obs_size)
        ]
        return self.observation

    def step(self, action: Sequence[float]) -> tuple[list[float], float, bool]:
        """One step; (observation, reward, done)."""
        self.steps += 1
        for k in range(self.obs_size):
            j = k % self.act_size
            value = 0.0
            if j < len(action):
                value = to_float32(action[j])
            if math.isnan(value):
                value = 1.0
            else:
                value = min(max(value, -1.0), 1.0)
            moved = self.positions[k] + round(value * self.units / 10)
            self.positions[k] = min(max(moved, -5 * self.units), 5 * self.units)
        return self.observation, self.reward, self.done

    @property
    def observation(self) -> list[float]:
        """The positions; the nearest doubles to their decimal text."""
        return [p / self.units for p in self.positions]

    @property
    def reward(self) -> float:
        """The reward of the present state; the nearest double to its two-decimal text."""
        whole = self.obs_size * self.units
        cents = (sum(map(abs, self.positions)) * 200 + whole) // (2 * whole)
        return -(cents / 100)

    @property
    def done(self) -> bool:
        """Whether the present episode is over."""
        return self.steps >= self.episode_length + (self.env_id + self.episode) % 4


def make_tiny_env(env_id: int = 0, **task_options: Any) -> Callable[[], gymnasium.Env[Any, Any]]:
    """A factory of the task as a gymnasium.Env, with Box(-1, 1) actions and unbounded float32 observations.

    Args:
        env_id: which env of the stand-in it is the reference of.
        task_options: as TinyTask's.
    """

    def make() -> gymnasium.Env[Any, Any]:
        import gymnasium
        import numpy as np

        class TinyTaskEnv(gymnasium.Env[Any, Any]):
            def __init__(self) -> None:
                self.task = TinyTask(env_id, **task_options)
                self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.task.act_size,), np.float32)
                self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (self.task.obs_size,), np.float32)

            def reset(
                self, *, seed: int | None = None, options: dict[str, Any] | None = None
            ) -> tuple[Any, dict[str, Any]]:
                super().reset(seed=seed)
                return np.array(self.task.reset(), np.float32), {}

            def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
                obs, reward, done = self.task.step([float(value) for value in np.asarray(action).ravel()])
                return np.array(obs, np.float32), reward, done, False, {}

        return TinyTaskEnv()

    return make
