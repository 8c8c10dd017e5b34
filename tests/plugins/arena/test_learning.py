"""The same scene trained: PPO beats the rules, and behaviour cloning comes near them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra train is not installed: a trainer plays here")

from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.plugins.arena import AgentArena, AgentBehavior, PolicyBehavior, RulesBehavior
from ue_rl.plugins.arena.datasets import demonstrations, record
from ue_rl.plugins.arena.scenes import Foraging, SceneBridge

pytestmark = [pytest.mark.learning, pytest.mark.timeout(1200)]


def learner(seed: int) -> Any:
    from stable_baselines3 import PPO

    env = UnrealVecEnv(MemoryTransport(SceneBridge(Foraging, 8), through_codec=False))
    env.seed(seed)
    return PPO(
        "MlpPolicy", env, seed=seed, n_steps=256, batch_size=512, n_epochs=6, gamma=0.98, ent_coef=0.01,
        learning_rate=lambda left: 1e-3 * left, policy_kwargs={"net_arch": [128, 128]}, device="cpu",
    )  # fmt: skip


def earned(behavior: AgentBehavior) -> np.ndarray:
    """Returns of 50 episodes that nobody has trained on."""
    return np.array([each.score for each in AgentArena.play(Foraging(), behavior, episodes=50, seed=10_000)])


def policy_of(model: Any) -> PolicyBehavior:
    from ue_rl.inference import Sb3Inference

    return PolicyBehavior(Sb3Inference(model), Foraging)


@pytest.mark.exhaustive
def test_ppo_beats_the_rules() -> None:
    model = learner(0).learn(200_000)
    assert earned(policy_of(model)).mean() > earned(RulesBehavior()).mean()


def cloned() -> Any:
    """A policy that was taught 50 episodes of the rules, and has never played."""
    import torch

    seen, choices = demonstrations(record(Foraging, {"forager": RulesBehavior()}, episodes=50))
    model = learner(0)
    policy, rng = model.policy, np.random.default_rng(0)
    optimiser = torch.optim.Adam(policy.parameters(), lr=1e-3, weight_decay=1e-4)
    for _ in range(30):
        for rows in np.array_split(rng.permutation(len(seen)), len(seen) // 128):
            _, log_probability, _ = policy.evaluate_actions(torch.as_tensor(seen[rows]), torch.as_tensor(choices[rows]))
            optimiser.zero_grad()
            (-log_probability.mean()).backward()
            optimiser.step()
    return model


@pytest.mark.exhaustive
def test_behaviour_cloning_of_fifty_episodes_earns_nine_tenths_of_the_rules() -> None:
    assert earned(policy_of(cloned())).mean() >= 0.9 * earned(RulesBehavior()).mean()
