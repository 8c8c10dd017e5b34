"""What each recipe's library counts on at a time limit: the value of what the episode showed last.

An env shows how far it is, 0 to 3; each step earns 1, and its limit is 3 steps. The critic of the tests says ten times
as much as what it sees, so each advantage is known: with gamma 1 and lambda 1 it is the rewards to the limit, and 30 of
what is seen there, less what is said now. A library that joins two episodes, or looks at the next episode's first
observation (worth 0), comes to something else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from gymnasium.wrappers.vector import NormalizeReward

from ue_rl.bridges import GymnasiumBridge, run_in_thread

RECIPES = Path(__file__).resolve().parents[2] / "samples" / "recipes"
LIMIT, ENVS = 3, 2
# of the steps from 0, 1 and 2: rewards to the limit, and the value there, less the value of what was seen
ADVANTAGES = [3 + 30 - 0, 2 + 30 - 10, 1 + 30 - 20]


class HowFar(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(0, LIMIT, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at += 1
        return self.seen(), 1.0, False, self.at == self.limit, {}

    def seen(self) -> Any:
        return np.array([self.at], np.float32)


@pytest.fixture
def url() -> Any:
    with run_in_thread(GymnasiumBridge(lambda: HowFar(LIMIT), ENVS)) as server:
        yield server.url


def check(observations: Any, advantages: Any) -> None:
    """Of at least two episodes of each env, whatever their order."""
    seen = np.asarray(observations).reshape(-1).astype(int)
    found = np.asarray(advantages).reshape(-1)
    assert len(seen) >= 2 * LIMIT * ENVS
    assert set(seen) == set(range(LIMIT))
    np.testing.assert_allclose(found, np.array(ADVANTAGES)[seen], rtol=1e-5)


def test_skrl(url: str, load_script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("skrl", reason="skrl is not installed")
    recipe = load_script(RECIPES / "skrl_ppo.py")
    kept: dict[str, Any] = {}

    made = recipe.deterministic_model

    def ten_times(**given: Any) -> Any:
        model = made(**given)
        act = model.act
        # 0 times its own, so that there is something to learn from
        model.act = lambda inputs, role="": (10 * inputs["observations"] + 0 * act(inputs, role=role)[0], {})
        return model

    class Kept(recipe.BootstrappedPPO):  # type: ignore[misc,name-defined]
        def update(self, **given: Any) -> None:
            super().update(**given)
            for name in ("observations", "returns", "values"):
                kept[name] = self.memory.get_tensor_by_name(name).clone()

    monkeypatch.setattr(recipe, "BootstrappedPPO", Kept)
    monkeypatch.setattr(recipe, "deterministic_model", ten_times)
    monkeypatch.setattr(recipe, "N", ENVS)
    monkeypatch.setattr(recipe, "T", 2 * LIMIT)
    monkeypatch.setattr(recipe, "HOW", {**recipe.HOW, "discount_factor": 1.0, "gae_lambda": 1.0, "learning_epochs": 1})
    recipe.train(url, 2 * LIMIT * ENVS)
    check(kept["observations"], kept["returns"] - kept["values"])


def test_tianshou(url: str, load_script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tianshou", reason="tianshou is not installed")
    monkeypatch.syspath_prepend(RECIPES)
    recipe = load_script(RECIPES / "tianshou_ppo.py")
    kept: list[tuple[Any, Any]] = []

    class Kept(recipe.PPO):  # type: ignore[misc,name-defined]
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **{**more, "gamma": 1.0, "gae_lambda": 1.0})

        def _add_returns_and_advantages(self, *given: Any, **more: Any) -> Any:
            batch = super()._add_returns_and_advantages(*given, **more)
            kept.append((batch.obs, batch.adv))
            return batch

    class TenTimes(recipe.DiscreteCritic):  # type: ignore[misc,name-defined]
        def forward(self, obs: Any, *given: Any, **more: Any) -> Any:
            value = super().forward(obs, *given, **more)
            return 10 * torch.as_tensor(np.asarray(obs), dtype=torch.float32).reshape(-1, 1) + 0 * value

    monkeypatch.setattr(recipe, "PPO", Kept)
    monkeypatch.setattr(recipe, "DiscreteCritic", TenTimes)
    monkeypatch.setattr(recipe, "N", ENVS)
    monkeypatch.setattr(recipe, "T", 2 * LIMIT)
    recipe.train(url, 2 * LIMIT * ENVS)
    check(*kept[0])


def test_torchrl(url: str, load_script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchrl", reason="torchrl is not installed")
    recipe = load_script(RECIPES / "torchrl_ppo.py")
    kept: list[tuple[Any, Any]] = []

    def gae(gamma: float, lmbda: float, value_network: Any) -> Any:
        class TenTimes(torch.nn.Module):
            def forward(self, observation: torch.Tensor) -> torch.Tensor:
                return 10 * observation

        made = real(gamma=1.0, lmbda=1.0, value_network=recipe.ValueOperator(TenTimes(), ["observation"]))

        def call(data: Any) -> Any:
            found = made(data)
            kept.append((found["observation"], found["advantage"]))
            return found

        return call

    real = recipe.GAE
    monkeypatch.setattr(recipe, "GAE", gae)
    monkeypatch.setattr(recipe, "N", ENVS)
    monkeypatch.setattr(recipe, "T", 2 * LIMIT)
    recipe.train(url, 2 * LIMIT * ENVS)
    check(*kept[0])


@pytest.mark.skipif(gym.__version__ != "1.4.0", reason="docs/recipes.md says what 1.4.0 does")
def test_rewards_that_gymnasium_normalises() -> None:
    scaled = {}
    # The first is still rising where the page looks at it; the other has been the same since its 500th step.
    for mode, steps in ((AutoresetMode.NEXT_STEP, 5000), (AutoresetMode.SAME_STEP, 1000)):
        envs = NormalizeReward(SyncVectorEnv([lambda: TimeLimit(HowFar(), 5)] * 4, autoreset_mode=mode))
        envs.reset()
        for _ in range(steps):
            envs.step(np.zeros(4, np.int64))
        scaled[mode] = 1 / np.sqrt(envs.return_rms.var)
    assert round(scaled[AutoresetMode.NEXT_STEP], 2) == 0.09
    assert round(scaled[AutoresetMode.SAME_STEP], 2) == 0.73
