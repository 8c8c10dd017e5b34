"""Several groups that all learn, in turn, over one transport."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize

from tests.harness.scripted_agents import World, lives, spec_of
from ue_rl.envs.agents import ActiveRolloutBuffer, ActiveRows, GroupVecEnv, learn_in_turn
from ue_rl.system import errors


def model(env: Any) -> PPO:
    return PPO(
        "MlpPolicy", env, n_steps=8, batch_size=16, n_epochs=1, rollout_buffer_class=ActiveRolloutBuffer, device="cpu"
    )


def test_each_learns_while_the_others_play_with_what_they_have_learnt() -> None:
    world = World(spec_of(2, {"a": 2, "b": 1}), lives(3, 3, 2))
    models = {"a": model(GroupVecEnv(world, "a")), "b": model(VecNormalize(GroupVecEnv(world, "b")))}
    before = {name: each.policy.state_dict()["action_net.weight"].clone() for name, each in models.items()}
    learn_in_turn(models, 64, 32, callback=ActiveRows())
    assert {name: each.num_timesteps for name, each in models.items()} == {"a": 64, "b": 64}
    for name, each in models.items():
        assert not np.array_equal(each.policy.state_dict()["action_net.weight"], before[name])
    turns = [k for k, request in enumerate(world.requests) if request == "reset"]
    assert turns[0] == 0
    assert len(turns) >= 4  # each turn begins with new episodes: somebody else has stepped the engine meanwhile
    moves = np.array(world.received)
    assert np.abs(moves).min(axis=(1, 2)).min() > 0  # nobody was left out


def test_what_is_not_a_groups_model_is_refused() -> None:
    world = World(spec_of(1, {"a": 1, "b": 1}), lives(3, 3))
    with pytest.raises(errors.ConfigurationError, match="another group's"):
        learn_in_turn({"b": model(GroupVecEnv(world, "a"))}, 8, 8)
    with pytest.raises(errors.ConfigurationError, match="not a GroupVecEnv"):
        learn_in_turn({"a": model("Pendulum-v1")}, 8, 8)
