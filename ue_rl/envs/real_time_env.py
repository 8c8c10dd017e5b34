"""RealTimeEnv: a game that does not stop as a gymnasium.Env, after rtgym (https://github.com/yannbouteiller/rtgym).

The action of a step takes effect while the agent computes the next one. So what is seen does not yet show it, and the
action is part of the observation.
"""

from __future__ import annotations

import time
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError, UnsupportedByEngine
from ue_rl.system.game_clock import GameClock

_KEY = "last_action"


class RealTimeEnv(gym.Wrapper[Any, Any, Any, Any]):
    """One env of a game that goes on between two steps.

    Observations are a Dict of "observation" (of an env whose own are a Dict: its keys) and "last_action". The infos
    have "late_steps", how many so far, and what the engine says: tick, ticks_advanced, dropped_observations,
    dropped_actions, late_ticks. Without a step time a step is late where more than one tick has passed since the last.

    Args:
        env: the URL of an engine with FEATURES=REALTIME (`ue-rl sessions GAME --tick-rate 25 --tcp PORT --num-envs 1`),
            or a gymnasium.Env.
        step_time: seconds from step to step: a step that comes sooner waits. None: each tick of the game is a step.
        elastic: a late step moves those behind it; False: they follow the grid, closer together, until it is kept.
        tolerance: part of a step time that a step may be late without being counted.
        options: of the connection, see ue_rl.connect.

    Raises:
        UnsupportedByEngine: the engine waits for each step. ConfigurationError: no such step time, or an env that has
            "last_action" in its observations already. Also what connecting raises.
    """

    def __init__(
        self, env: str | gym.Env[Any, Any], *, step_time: float | None = None, elastic: bool = True,
        tolerance: float = 0.1, **options: Any,
    ) -> None:  # fmt: skip
        if step_time is not None and not 0 < step_time < float("inf"):
            raise ConfigurationError("no such step time", field="step_time", expected="seconds above 0", got=step_time)
        if isinstance(env, str):
            env = gym.make("ue_rl/Engine-v0", url=env, disable_env_checker=True, **options).unwrapped
        super().__init__(env)
        spec = getattr(env.unwrapped, "engine_spec", None)
        if isinstance(spec, EnvSpec) and "REALTIME" not in spec.features and step_time is None:
            env.close()
            raise UnsupportedByEngine(
                "this engine waits for each step", field="FEATURES", expected="REALTIME", got=sorted(spec.features),
                cure="serve the game with ue-rl sessions --tick-rate, or give a step_time",
            )  # fmt: skip
        seen = env.observation_space
        parts = dict(seen.spaces) if isinstance(seen, spaces.Dict) else {"observation": seen}
        if _KEY in parts:
            raise ConfigurationError(f"the observation has {_KEY!r} already", field="observation_space", got=[*parts])
        self._plain = not isinstance(seen, spaces.Dict)
        self.observation_space = spaces.Dict({**parts, _KEY: env.action_space})
        self._first = _nothing(env.action_space)
        self._clock = None if step_time is None else GameClock(1 / step_time, catch_up=not elastic, tolerance=tolerance)
        self._late = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode; no action has been taken before: "last_action" is 0, brought into its space."""
        seen, info = self.env.reset(seed=seed, options=options)
        if self._clock is not None:
            self._clock.restart()
        return self._with(seen, self._first), {**info, "late_steps": self.late_steps}

    def step(self, action: Any) -> tuple[dict[str, Any], SupportsFloat, bool, bool, dict[str, Any]]:
        """Leaves the action to the game, and takes the newest observation.

        Raises:
            ActionError: see UnrealEnv.
        """
        if self._clock is not None:
            time.sleep(max(0.0, self._clock.due - time.perf_counter()))
            self._clock.tick()
        seen, reward, terminated, truncated, info = self.env.step(action)
        if self._clock is None:
            self._late += info.get("ticks_advanced", 1) > 1
        info = {**info, "late_steps": self.late_steps}
        return self._with(seen, action), reward, terminated, truncated, info

    @property
    def late_steps(self) -> int:
        """So far."""
        if self._clock is None:
            return self._late
        return self._clock.late_ticks

    def _with(self, seen: Any, action: Any) -> dict[str, Any]:
        last = np.asarray(action, self.env.action_space.dtype) if self.env.action_space.shape else action
        return {"observation": seen, _KEY: last} if self._plain else {**seen, _KEY: last}


def _nothing(space: spaces.Space[Any]) -> Any:
    """0, brought into the space."""
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)
    if isinstance(space, spaces.Discrete):
        return space.start
    if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        return np.zeros(space.shape, space.dtype) + getattr(space, "start", np.zeros((), space.dtype))
    raise ConfigurationError(
        "the last action cannot be part of the observation", field="action_space", got=str(space),
        expected="numbers or choices, without names",
    )  # fmt: skip
