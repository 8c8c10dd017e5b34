"""OPTIONS that a game cannot use: one sentence that names them, for the trainer and in the log, and no traceback."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ue_rl
from tests.support.games import Steps, bridge
from ue_rl.bridges import GymnasiumBridge, VectorBridge, run_in_thread, run_shm_in_thread
from ue_rl.system import errors


class Gym(gym.Env[Any, Any]):
    """Wants a number."""

    observation_space = gym.spaces.Box(-100, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.full(1, 1 + (options or {"speed": 0})["speed"], np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Multi(Steps):
    """The same, with callbacks."""

    def handle_reset_for_env(self, env_id: int, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        self.state = [1 + (options or {"speed": 0})["speed"]]

    def show(self, env: int) -> Any:
        return self.state


class Arrays(VectorBridge):
    """The same, with arrays."""

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        for env, option in zip(env_ids.tolist(), options, strict=True):
            self.outbox.obs[env] = 1 + (option or {"speed": 0})["speed"]

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        pass


MAKE = {
    "gymnasium": lambda: GymnasiumBridge(Gym, 1),
    "callbacks": lambda: bridge(1, kind=Multi, features=frozenset({"OPTIONS", "ERROR"})),
    "arrays": lambda: bridge(1, kind=Arrays, features=frozenset({"OPTIONS", "ERROR"})),
}


@pytest.mark.parametrize("host", [run_in_thread, run_shm_in_thread])
@pytest.mark.parametrize("kind", MAKE)
def test_options_of_a_wrong_type_are_named_in_one_sentence(kind: str, host: Any, caplog: Any) -> None:
    with host(MAKE[kind]()) as engine:
        for wrong in ({"speed": "fast"}, {"sped": 3}):
            env: Any = ue_rl.connect(engine.url, timeout=20, wait=20)
            env.set_options(wrong)
            with (
                caplog.at_level(logging.INFO, "ue_rl"),
                pytest.raises(errors.EngineDisconnected, match="cannot use the options of a reset"),
            ):
                env.reset()
            env.close()
        told = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(told) == 2
        assert all("field OPTIONS" in record.getMessage() and not record.exc_info for record in told)
        env = ue_rl.connect(engine.url, timeout=20, wait=20)
        env.set_options({"speed": 3})
        assert env.reset().tolist() == [[4]]
        env.close()
