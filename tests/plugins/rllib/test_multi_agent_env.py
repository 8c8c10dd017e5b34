"""RLlib's MultiAgentEnv over one env with its agents as dicts."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.harness.scripted_agents import ACTS, CUT, ENDS, GONE, World, lives, spec_of


def act(names: list[str]) -> dict[str, Any]:
    return {name: np.full(2, 0.5, np.float32) for name in names}


@pytest.fixture
def rllib() -> Iterator[ModuleType]:
    """ue_rl.plugins.rllib.multi_agent_env over a stand-in of ray's base class; where ray is installed, over the real
    one.
    """
    try:
        importlib.import_module("ray.rllib.env.multi_agent_env")
        yield importlib.import_module("ue_rl.plugins.rllib.multi_agent_env")
        return
    except ImportError:
        names = ["ray", "ray.rllib", "ray.rllib.env", "ray.rllib.env.multi_agent_env"]

    class MultiAgentEnv(gym.Env[Any, Any]):
        """What RLlib's says of itself: spaces and agents are looked at after __init__, by these names."""

        observation_spaces: Any = None
        action_spaces: Any = None
        agents: Any = ()
        possible_agents: Any = ()

        def get_observation_space(self, agent_id: str) -> Any:
            return self.observation_spaces[agent_id]

        def get_action_space(self, agent_id: str) -> Any:
            return self.action_spaces[agent_id]

    modules = {name: ModuleType(name) for name in names}
    modules[names[-1]].MultiAgentEnv = MultiAgentEnv  # type: ignore[attr-defined]
    sys.modules.update(modules)
    try:
        yield importlib.import_module("ue_rl.plugins.rllib.multi_agent_env")
    finally:
        for name in [*names, "ue_rl.plugins.rllib.multi_agent_env"]:
            sys.modules.pop(name, None)


def test_rllibs_env_keeps_its_contract(rllib: ModuleType) -> None:
    """As MultiAgentEnvRunner uses it: infos' keys are among the observations', "__all__" once, no step afterwards."""
    env = rllib.UnrealMultiAgentEnv(World(spec_of(1, {"a": 2}), lives(1, 3)))
    observations, infos = env.reset(seed=3, options={"x": 1})
    assert set(infos) <= set(observations) == {"a_0", "a_1"}
    over = []
    while True:
        given = {name: env.get_action_space(name).sample() for name in observations}
        observations, rewards, terminateds, truncateds, infos = env.step(given)
        for name, obs in observations.items():
            assert env.get_observation_space(name).contains(obs)
        assert set(infos) <= set(observations)
        assert set(rewards) == set(observations)
        assert isinstance(terminateds["__all__"], bool)
        assert isinstance(truncateds["__all__"], bool)
        over.append((terminateds["__all__"], truncateds["__all__"]))
        observations = {name: obs for name, obs in observations.items() if name in env.agents}
        if any(over[-1]):
            break
    assert over == [(False, False), (False, False), (True, False)]
    assert env.agents == []


def test_an_episode_that_is_cut_for_everybody_is_truncated(rllib: ModuleType) -> None:
    script = [[ACTS, ACTS], [CUT, CUT]]
    env = rllib.UnrealMultiAgentEnv(World(spec_of(1, {"a": 2}), lambda env, episode, time: script[time]))
    env.reset()
    _, _, terminateds, truncateds, _ = env.step(act(["a_0", "a_1"]))
    assert terminateds == {"a_0": False, "a_1": False, "__all__": False}
    assert truncateds == {"a_0": False, "a_1": False, "__all__": True}  # else RLlib makes it a terminated one


def test_one_that_is_cut_as_the_last_is_bootstrapped(rllib: ModuleType) -> None:
    """One ended before, one ends beside it: that makes no terminated one of it."""
    script = [[ACTS, ACTS, ACTS], [ENDS, ACTS, ACTS], [GONE, ENDS, CUT]]
    env = rllib.UnrealMultiAgentEnv(World(spec_of(1, {"a": 3}), lambda env, episode, time: script[time]))
    env.reset()
    assert env.step(act(["a_0", "a_1", "a_2"]))[2] == {"a_0": True, "a_1": False, "a_2": False, "__all__": False}
    _, _, terminateds, truncateds, _ = env.step(act(["a_1", "a_2"]))
    assert terminateds == {"a_1": True, "a_2": False, "__all__": False}
    assert truncateds == {"a_1": False, "a_2": False, "__all__": True}


def test_an_agent_that_comes_back_begins_an_episode_of_rllibs(rllib: ModuleType) -> None:
    does = [[ACTS, ACTS], [ENDS, ACTS], [ACTS, ACTS], [ACTS, ENDS], [ENDS, GONE]]
    world = World(spec_of(1, {"a": 2}), lambda env, episode, time: does[time])
    env = rllib.UnrealMultiAgentEnv(world)
    env.reset()
    env.step(act(["a_0", "a_1"]))
    observations, rewards, terminateds, truncateds, infos = env.step(act(["a_1"]))
    assert set(observations) == set(rewards) == set(infos) == {"a_1"}
    assert (terminateds, truncateds) == ({"a_1": False, "__all__": False}, {"a_1": False, "__all__": True})
    observations, infos = env.reset()
    assert set(observations) == set(infos) == {"a_0", "a_1"}
    assert {name: obs[3] for name, obs in observations.items()} == {"a_0": 2, "a_1": 2}  # of the engine's step 2
    assert world.requests.count("reset") == 1
    env.step(act(["a_0", "a_1"]))
    assert env.step(act(["a_0"]))[2] == {"a_0": True, "__all__": True}
    env.reset()
    assert world.requests.count("reset") == 2


def test_others_come_as_the_last_one_ends(rllib: ModuleType) -> None:
    does = [[ACTS, GONE], [ENDS, ACTS], [GONE, ENDS]]
    world = World(spec_of(1, {"a": 2}), lambda env, episode, time: does[time])
    env = rllib.UnrealMultiAgentEnv(world)
    env.reset()
    observations, _, terminateds, _, _ = env.step(act(["a_0"]))
    assert set(observations) == {"a_0"}
    assert terminateds == {"a_0": True, "__all__": True}
    assert set(env.reset()[0]) == {"a_1"}
    env.step(act(["a_1"]))
    env.reset()
    env.step(act(["a_0"]))
    env.reset(seed=3)  # asked for: the engine is reset
    assert world.requests.count("reset") == 3
