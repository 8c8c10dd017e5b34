"""One env with its agents as dicts: AgentsEnv, the PettingZoo ParallelEnv and RLlib's MultiAgentEnv over it."""

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
from ue_rl.envs.agents import AgentsEnv
from ue_rl.system import errors


def act(names: list[str], value: float = 0.5) -> dict[str, Any]:
    return {name: np.full(2, value, np.float32) for name in names}


def test_agents_have_the_names_of_the_handshake() -> None:
    env = AgentsEnv(World(spec_of(1, {"striker": 2, "goalie": 1}), lives(3, 3, 3)))
    assert env.possible_agents == ["striker_0", "striker_1", "goalie"]
    observations, infos = env.reset()
    assert {name: obs[1] for name, obs in observations.items()} == {"striker_0": 0, "striker_1": 1, "goalie": 2}
    assert infos["goalie"] == {"place": (0, 2)}
    assert env.action_spaces["striker_0"] is not env.action_spaces["striker_1"]


def test_agents_come_and_go() -> None:
    does = [[ACTS, GONE], [ENDS, ACTS], [GONE, ACTS], [ACTS, CUT], [ENDS, GONE]]
    env = AgentsEnv(World(spec_of(1, {"a": 2}), lambda env, episode, time: does[time]))
    env.reset()
    assert env.agents == ["a_0"]
    first = env.step(act(["a_0"]))
    assert first.terminations == {"a_0": True, "a_1": False}
    assert first.rewards == {"a_0": 0.5, "a_1": 0}
    assert env.agents == ["a_1"]
    second = env.step(act(["a_1"]))
    assert set(second.observations) == {"a_1"}
    third = env.step(act(["a_1"]))
    assert third.truncations == {"a_0": False, "a_1": True}
    assert third.terminations == {"a_0": False, "a_1": False}
    assert env.agents == ["a_0"]
    env.step(act(["a_0"]))
    assert env.agents == []
    with pytest.raises(errors.UnexpectedMessage, match="nobody in this env can act"):
        env.step({})


def test_wrong_actions_are_named_before_anything_is_sent() -> None:
    world = World(spec_of(1, {"a": 2}), lives(3, 3))
    env = AgentsEnv(world)
    env.reset()
    with pytest.raises(errors.ActionError, match=r"one action for each agent.*'a_0', 'a_1'.*got \['a_0'\]"):
        env.step(act(["a_0"]))
    with pytest.raises(errors.ActionError, match="agent a_1: the actions have the wrong shape"):
        env.step({**act(["a_0"]), "a_1": np.zeros(3, np.float32)})
    assert world.requests == ["reset"]
    env.step(act(["a_0", "a_1"]))


@pytest.mark.parametrize(("num_envs", "groups"), [(2, {"a": 1}), (1, {})])
def test_it_is_one_env_with_agents(num_envs: int, groups: dict[str, int]) -> None:
    with pytest.raises(errors.ConfigurationError, match="one env with agents"):
        AgentsEnv(World(spec_of(num_envs, groups), lives(1)))


def test_masks_are_in_the_infos_as_the_spaces_sample_takes_them() -> None:
    from dataclasses import replace

    from ue_rl.protocol.spec import ActionSpec, AgentGroup, EnvSpec

    one = EnvSpec(4, 2, action=ActionSpec.multi_discrete((2, 3)))
    spec = EnvSpec(4, 2, num_envs=1, groups=(AgentGroup("a", 1, one),), features=frozenset({"MASK"}))
    world = World(replace(spec), lives(2))
    env = AgentsEnv(world)
    world.buffers.masks[:] = [1, 0, 0, 1, 1]
    _, infos = env.reset()
    mask = infos["a"]["action_mask"]
    for _ in range(20):
        choice = env.action_spaces["a"].sample(mask=mask)
        assert choice[0] == 0
        assert choice[1] > 0


def test_a_parallel_env_passes_pettingzoos_tests_over_scripted_agents() -> None:
    pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test

    from ue_rl.envs.agents import UnrealParallelEnv

    does = [[ACTS, ACTS, GONE], [ACTS, ENDS, ACTS], [ENDS, GONE, ACTS], [GONE, GONE, CUT]]
    env = UnrealParallelEnv(World(spec_of(1, {"a": 2, "b": 1}), lambda env, episode, time: does[time]))
    parallel_api_test(env, num_cycles=50)
    assert env.possible_agents == ["a_0", "a_1", "b"]
    env.close()


def test_where_nobody_is_left_a_parallel_env_takes_no_actions_as_pettingzoos_do() -> None:
    """SuperSuit's black_death asks so, among others."""
    pytest.importorskip("pettingzoo")
    from ue_rl.envs.agents import UnrealParallelEnv

    world = World(spec_of(1, {"a": 2}), lives(1, 2))
    env = UnrealParallelEnv(world)
    with pytest.raises(errors.UnexpectedMessage, match="Call reset"):
        env.step({})
    for _ in range(2):
        env.reset()
        while env.agents:
            env.step(act(env.agents))
        asked = len(world.requests)
        assert env.step({}) == ({}, {}, {}, {}, {}) == env.step({})
        assert len(world.requests) == asked, "nothing is sent"
        with pytest.raises(errors.UnexpectedMessage, match="nobody in this env can act"):
            env.step(act(["a_0"]))


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


def test_importing_ue_rl_needs_neither_pettingzoo_nor_ray() -> None:
    import subprocess

    code = (
        "import sys, ue_rl, ue_rl.envs.agents; print([m for m in ('pettingzoo', 'ray', 'torch') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
