"""One env with its agents as dicts: AgentsEnv, and the PettingZoo ParallelEnv over it."""

from __future__ import annotations

import sys
from typing import Any

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


def test_importing_ue_rl_needs_neither_pettingzoo_nor_ray() -> None:
    import subprocess

    code = (
        "import sys, ue_rl, ue_rl.envs.agents; print([m for m in ('pettingzoo', 'ray', 'torch') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
