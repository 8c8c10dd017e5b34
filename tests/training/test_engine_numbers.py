"""EngineNumbers: the numbers of a game's INFO by name, apart from those that Stable-Baselines3 reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import PPO

from tests.harness.exactness import Drift
from tests.harness.exactness import bridge as bridge_of
from ue_rl.devtools.testing.memory import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.training import EngineNumbers
from ue_rl.training.tables import ProgressTable, columns


def of_a_model(numbers: EngineNumbers) -> EngineNumbers:
    """It records into the logger of a model that has begun to learn."""
    env = UnrealVecEnv(MemoryTransport(bridge_of("box")))
    numbers.model = PPO("MlpPolicy", env, n_steps=8, batch_size=8, device="cpu")
    numbers.model._setup_learn(100, callback=None)
    return numbers


def test_the_game_s_numbers_by_name_apart_from_sb3_s() -> None:
    numbers = of_a_model(EngineNumbers())
    rows: list[dict[str, Any]] = [
        {"speed": 1, "name": "x", "is_success": True, "episode": {"r": 1}, "engine": {"episode": 12}},
        {"inactive": True, "action_mask": np.ones(2)},
        {"speed": np.float32(4), "fuel": float("nan"), "alive": True, "TimeLimit.truncated": True},
    ]  # fmt: skip
    for info in rows:
        numbers.locals = {"infos": [info]}
        numbers.on_step()
    numbers.on_rollout_end()
    logged = {key: value for key, value in numbers.logger.name_to_value.items() if key.startswith("engine/")}
    assert logged == {
        "engine/speed": 2.5,
        "engine/speed_max": 4.0,
        "engine/episode": 12.0,
        "engine/episode_max": 12.0,
        "engine/alive": 1.0,
        "engine/alive_max": 1.0,
    }
    numbers.logger.name_to_value.clear()  # shown
    numbers.on_rollout_start()
    numbers.locals = {"infos": [{"speed": 7}]}
    numbers.on_step()
    numbers.on_rollout_end()
    assert numbers.logger.name_to_value["engine/speed"] == 7.0


def test_an_engine_that_always_has_new_numbers_does_not_widen_the_table_without_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "progress.csv"
    for part in range(2):  # the second one resumes
        table = ProgressTable(path)
        numbers = of_a_model(EngineNumbers(columns(path)))
        for rollout in range(8):
            numbers.on_rollout_start()
            numbers.locals = {"infos": [{f"k{part}-{rollout}-{key}": key for key in range(100)} | {"k0-0-7": 3}]}
            numbers.on_step()
            numbers.on_rollout_end()
            table.write(numbers.logger.name_to_value, {})
            numbers.logger.name_to_value.clear()
        table.close()
    header, *rows = path.read_text().splitlines()
    assert len(header.split(",")) == 400
    assert rows[-1].split(",")[header.split(",").index("engine/k0-0-7")] == "3.0"
    assert caplog.text.count("more than 200 numbers") == 2


class Odd(Drift):
    """Sends anything that JSON can say under a name that Stable-Baselines3 takes the mean of."""

    values: tuple[Any, ...] = ("yes", {}, [[1], [2, 3]], 10**400, True, 1)
    asked = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One after the other."""
        obs, reward, terminated, *_ = super().step(action)
        self.asked += 1
        info = {
            "is_success": self.values[self.asked % len(self.values)],
            "big": 10**400,
            "list": [[1], [2, 3]],
            "inactive": [1, 2],
        }
        return obs, reward, terminated, True, info


def test_an_is_success_that_is_no_number_is_the_engines_own() -> None:
    env = UnrealVecEnv(MemoryTransport(bridge_of("box", Odd)))
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=8, device="cpu")
    numbers = EngineNumbers()
    model.learn(96, callback=numbers)
    assert set(model.ep_success_buffer or ()) == {True}
    assert "engine/big" not in model.logger.name_to_value
    actions = np.zeros((env.num_envs, 2), np.float32)
    seen = [info for _ in range(6) for info in env.step(actions)[3]]
    kinds = {type(info["engine"]["is_success"]) for info in seen if "engine" in info}
    assert kinds == {str, dict, list, int}
    assert {type(info["is_success"]) for info in seen if "is_success" in info} == {bool, int}
