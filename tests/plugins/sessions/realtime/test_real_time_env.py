"""RealTimeEnv: games that do not stop, as Gymnasium envs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra train is not installed: a trainer plays here")

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env

import ue_rl
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.realtime.engine import serve
from ue_rl.system.errors import ConfigurationError, UnsupportedByEngine


def test_a_learner_trains_on_a_game_that_does_not_stop() -> None:
    with SessionPool("CartPole-v1", max_sessions=1, workers=1, tick_rate=500) as pool:
        with serve(pool, "127.0.0.1", 0) as server:
            env = ue_rl.RealTimeEnv(server.url)
            check_env(env)
            PPO("MultiInputPolicy", env, n_steps=32, batch_size=16, n_epochs=1, device="cpu").learn(64)
            seen, info = env.reset(seed=3)
            assert (seen["last_action"], info["late_steps"] >= 0) == (0, True)
            ticks = 0
            for _ in range(5):
                seen, _, terminated, _, info = env.step(1)
                assert seen["last_action"] == 1
                assert env.observation_space.contains(seen)
                assert info["tick"] == ticks + info["ticks_advanced"]
                ticks = info["tick"]
                if terminated:
                    break
            env.close()


class Counts(gym.Env[Any, Any]):
    """Counts its steps."""

    observation_space = gym.spaces.Dict({"n": gym.spaces.Box(0, np.inf, (1,))})
    action_space = gym.spaces.Box(1, 2, (2,))
    n = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.n = 0
        return {"n": np.zeros(1, np.float32)}, {}

    def step(self, action: Any) -> Any:
        self.n += 1
        return {"n": np.full(1, self.n, np.float32)}, 0.0, False, False, {}


def test_steps_follow_a_clock_and_late_ones_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    for elastic, after in ((True, 101.05), (False, 100.95)):
        now[0] = 100.0
        env = ue_rl.RealTimeEnv(Counts(), step_time=0.1, elastic=elastic)
        seen, _ = env.reset()
        assert seen["last_action"].tolist() == [1, 1]
        for _ in range(3):
            seen, _, _, _, info = env.step(np.ones(2))
        assert now[0] == pytest.approx(100.3)
        assert (info["late_steps"], seen["n"]) == (0, 3)
        now[0] = 100.95  # the agent has thought for long
        assert env.step(np.ones(2))[4]["late_steps"] == 1
        env.step(np.ones(2))
        assert now[0] == pytest.approx(after)


def test_what_cannot_be_played_so() -> None:
    with run_in_thread(GymnasiumBridge("CartPole-v1", 1)) as engine:
        with pytest.raises(UnsupportedByEngine, match="this engine waits for each step"):
            ue_rl.RealTimeEnv(engine.url)
        ue_rl.RealTimeEnv(engine.url, step_time=0.001).close()
    with pytest.raises(ConfigurationError, match="no such step time"):
        ue_rl.RealTimeEnv(Counts(), step_time=0)
    with pytest.raises(ConfigurationError, match="already"):
        ue_rl.RealTimeEnv(ue_rl.RealTimeEnv(Counts()))
