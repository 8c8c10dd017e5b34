"""GroupTransport and GroupVecEnv: agents of a group as rows, ending at different times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.vec_env import VecNormalize

from tests.harness.scripted_agents import ACTS, CUT, ENDS, GONE, World, lives, spec_of
from tests.support.steps import begin
from ue_rl.envs.agents import GroupTransport, GroupVecEnv, NormalizedPolicy
from ue_rl.envs.agents.agent_rows import AgentRows
from ue_rl.envs.journal_transport import journal_of
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import ActionSpec, AgentGroup, EnvSpec
from ue_rl.protocol.transport import Transport
from ue_rl.system import errors


def actions(env: GroupVecEnv, value: float = 0.5) -> np.ndarray[Any, Any]:
    return np.full((env.num_envs, 2), value, np.float32)


def test_a_group_is_a_transport_of_as_many_envs_as_it_has_agents() -> None:
    group = GroupTransport(World(spec_of(3, {"striker": 2}), lives(4, 4)))
    assert isinstance(group, Transport)
    assert group.spec.num_envs == 6
    assert not group.spec.groups
    assert begin(group).obs[:, :2].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]


def test_rows_are_awaited_of_all_agents_of_the_engine() -> None:
    world = World(spec_of(3, {"striker": 2}), lives(4, 4))
    group = GroupTransport(world)
    begin(group)
    assert group.awaited_rows == 0
    group.send_actions(np.zeros((6, 2), np.float32))
    world.buffers.pending[:] = 1
    assert group.awaited_rows == 6
    group.receive()
    assert group.awaited_rows == 0


def test_agents_that_end_together_are_like_envs() -> None:
    world = World(spec_of(2, {"a": 2}), lives(2, 2))
    env = GroupVecEnv(world)
    assert env.reset()[:, 2:].tolist() == [[0, 0]] * 4
    env.step(actions(env))
    obs, rewards, dones, infos = env.step(actions(env))
    assert obs[:, 2:].tolist() == [[1, 0]] * 4
    assert rewards.tolist() == pytest.approx([0.5, 0.6, 0.5, 0.6])
    assert dones.all()
    assert [info["terminal_observation"][3] for info in infos] == [2] * 4
    assert [info["episode"]["l"] for info in infos] == [2] * 4
    assert not any("inactive" in info for info in infos)
    assert world.requests == ["reset", "step", "step", "reset [0, 1]"]


def test_an_ended_agent_waits_inactive_for_the_next_episode() -> None:
    world = World(spec_of(1, {"a": 2}), lives(1, 3))
    env = GroupVecEnv(world)
    env.reset()
    first = env.step(actions(env))
    assert first[2].tolist() == [True, False]
    assert first[3][0]["terminal_observation"].tolist() == [0, 0, 0, 1]
    assert first[3][0]["episode"]["l"] == 1
    assert "inactive" not in first[3][0]
    second = env.step(actions(env))
    assert second[0].tolist() == [[0, 0, 0, 1], [0, 1, 0, 2]]  # what it saw last; never what the engine left behind
    assert second[1].tolist() == [0, pytest.approx(0.6)]
    assert second[2].tolist() == [True, False]
    assert second[3][0] == {"inactive": True}
    assert env.inactive.tolist() == [True, False]
    third = env.step(actions(env))  # agent 1 ends, nobody is left: the next episode begins
    assert third[0].tolist() == [[0, 0, 1, 0], [0, 1, 1, 0]]
    assert third[2].tolist() == [True, True]
    assert third[3][0] == {"inactive": True}
    assert third[3][1]["episode"] == {"r": pytest.approx(1.8), "l": 3, "t": third[3][1]["episode"]["t"]}
    fourth = env.step(actions(env))
    assert fourth[3][0]["episode"]["l"] == 1  # the waiting was no part of it
    assert world.requests == ["reset", "step", "step", "step", "reset [0]", "step"]


def test_an_agent_comes_back_in_the_middle_of_an_episode() -> None:
    does = [[ACTS, ACTS], [ENDS, ACTS], [GONE, ACTS], [ACTS, ACTS], [ENDS, ACTS], [GONE, ENDS]]
    env = GroupVecEnv(World(spec_of(1, {"a": 2}), lambda env, episode, time: does[time]))
    env.reset()
    steps = [env.step(actions(env, k)) for k in range(5)]
    assert [bool(step[2][0]) for step in steps] == [True, True, True, True, True]
    assert [bool(step[3][0].get("inactive")) for step in steps] == [False, True, True, False, True]
    assert steps[2][0][0].tolist() == [0, 0, 0, 3]  # it has come: its first observation
    assert steps[2][1][0] == 0
    assert steps[3][3][0]["episode"] == {"r": 3.0, "l": 1, "t": steps[3][3][0]["episode"]["t"]}


def test_agents_that_are_not_there_at_the_start() -> None:
    does = [[ACTS, GONE], [ACTS, GONE], [ACTS, ACTS], [ENDS, CUT]]
    env = GroupVecEnv(World(spec_of(1, {"a": 2}, obs_low=(), obs_high=()), lambda env, episode, time: does[time]))
    assert env.reset().tolist() == [[0, 0, 0, 0], [0, 0, 0, 0]]
    first, second, third = (env.step(actions(env)) for _ in range(3))
    assert first[3][1] == second[3][1] == {"inactive": True}
    assert second[0][1].tolist() == [0, 1, 0, 2]
    assert third[3][1]["TimeLimit.truncated"]
    assert third[3][1]["episode"]["l"] == 1
    assert not third[3][0]["TimeLimit.truncated"]


def test_an_env_begins_anew_though_the_groups_rows_ended_long_before() -> None:
    world = World(spec_of(2, {"a": 1, "b": 1}), lambda env, episode, time: _ends(time, 1, 3))
    env = GroupVecEnv(world, "a", {"b": lambda obs: np.zeros((2, 2), np.float32)})
    env.reset()
    seen = [env.step(actions(env)) for _ in range(5)]
    assert [bool(step[3][0].get("inactive")) for step in seen] == [False, True, True, True, False]
    assert seen[3][0][0].tolist() == [0, 0, 1, 0]
    assert world.requests == ["reset", "step", "step", "step", "reset", "step"]


def _ends(time: int, *lengths: int) -> list[int]:
    return lives(*lengths)(0, 0, time)


@pytest.mark.parametrize("whole", [True, False])
def test_every_choice_is_legal_for_an_agent_that_cannot_act(whole: bool) -> None:
    one = EnvSpec(1, 1, action=ActionSpec.discrete(2))
    engine = EnvSpec(1, 1, num_envs=2, groups=(AgentGroup("a", 2, one),), features=frozenset({"MASK"}))
    part, buffers = AgentRows(engine, [0, 1] if whole else [1]), StepBuffers.of(engine)
    buffers.masks[:] = [1, 0]
    acted, live = np.ones(4, np.bool_), np.array([True, False, True, True])
    part.take_step(buffers, acted, live)
    mine = [[1, 0], [1, 1], [1, 0], [1, 0]] if whole else [[1, 1], [1, 0]]
    assert part.buffers.masks.tolist() == mine
    part.take_step(buffers, live, live.copy())  # it waits
    assert part.buffers.masks.tolist() == mine
    part.take_start(buffers, acted, live)  # an episode begins without it
    assert part.buffers.masks.tolist() == mine
    part.take_start(buffers, acted, acted)
    assert part.buffers.masks.tolist() == [[1, 0]] * len(mine)


def test_resets_go_with_the_step_of_other_envs() -> None:
    def script(env: int, episode: int, time: int) -> list[int]:
        return _ends(time, 1, 2) if env == 0 else _ends(time, 9, 9)

    world = World(spec_of(2, {"a": 1, "b": 1}), script)
    env = GroupVecEnv(world, "a", {"b": "random"})
    env.reset()
    for _ in range(3):
        step = env.step(actions(env))
    assert world.requests == ["reset", "step", "step", "step, reset [0]"]
    assert step[0][0].tolist() == [0, 0, 1, 0]
    assert step[3][0] == {"inactive": True}


class Recorder:
    """A policy that notes what it is shown."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.seen: list[Any] = []

    def predict(self, observation: Any, deterministic: bool = False) -> tuple[Any, None]:
        self.seen.append((observation.copy(), deterministic))
        return np.full((len(observation), 2), self.value, np.float32), None


def test_other_groups_are_played_by_policies() -> None:
    world = World(spec_of(2, {"striker": 2, "goalie": 1}), lives(5, 5, 5))
    policy = Recorder(-0.25)
    env = GroupVecEnv(world, "striker", {"goalie": policy})
    env.reset()
    env.step(actions(env, 0.5))
    assert world.received[0][:, 0].tolist() == [0.5, 0.5, -0.25, 0.5, 0.5, -0.25]
    assert policy.seen[0][0][:, :2].tolist() == [[0, 2], [1, 2]]
    env.set_player("goalie", policy, deterministic=True)
    env.step(actions(env))
    assert policy.seen[1][0][:, 3].tolist() == [1, 1]
    assert policy.seen[1][1]


def test_an_inference_interface_plays_and_hears_of_new_episodes() -> None:
    class Interface:
        heard: list[Any] = []  # noqa: RUF012

        def run_inference_for(self, agents: Any, observations: Any) -> Any:
            return np.full((len(agents), 2), 0.75, np.float32)

        def reset(self, rows: Any) -> None:
            self.heard.append(rows)

    world = World(spec_of(2, {"a": 1, "b": 1}), lives(2, 2))
    interface = Interface()
    env = GroupVecEnv(world, "a", {"b": interface})
    env.reset()
    for _ in range(2):
        env.step(actions(env))
    assert world.received[0][1, 0] == 0.75
    assert interface.heard == [[0, 1], [0, 1]]


def test_a_normalized_model_sees_normalized_observations() -> None:
    env = VecNormalize(GroupVecEnv(World(spec_of(1, {"a": 1}), lives(5))))
    env.reset()
    policy = Recorder(0)
    raw = np.array([[1, 2, 3, 4]], np.float32)
    NormalizedPolicy(policy, env).predict(raw)
    np.testing.assert_array_equal(policy.seen[0][0], env.normalize_obs(raw))


def test_seeds_are_those_of_each_envs_first_row() -> None:
    world = World(spec_of(2, {"a": 2}), lives(2, 2))
    env = GroupVecEnv(world)
    env.seed(7)
    env.reset()
    assert world.seeds[0] == [7, 9]


@pytest.mark.parametrize(
    ("groups", "arguments", "message"),
    [
        ({}, {}, "has no agents"),
        ({"a": 1, "b": 1}, {}, "which group learns"),
        ({"a": 1, "b": 1}, {"group": "c"}, "no such group"),
        ({"a": 1, "b": 1}, {"group": "a", "others": {"a": "random"}}, "learner's own"),
        ({"a": 1, "b": 1}, {"group": "a", "others": {"b": 3}}, "not a policy"),
    ],
)
def test_what_cannot_be_is_refused_by_name(groups: Any, arguments: Any, message: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=message):
        GroupTransport(World(spec_of(1, groups), lives(1, 1)), **arguments)


def test_a_group_that_nobody_plays_is_named_before_anything_is_sent() -> None:
    world = World(spec_of(1, {"a": 1, "b": 1}), lives(1, 1))
    env = GroupVecEnv(world, "a")
    with pytest.raises(errors.ConfigurationError, match=r'nobody acts.*got b.*others=\{"b"'):
        env.reset()
    assert world.requests == []


def test_an_agent_has_no_reset_of_its_own() -> None:
    group = GroupTransport(World(spec_of(1, {"a": 2}), lives(1, 1)))
    begin(group)
    with pytest.raises(errors.ConfigurationError, match="no reset of its own"):
        group.send_actions(np.zeros((2, 2), np.float32), resets=[0])


def test_agents_keep_no_journal() -> None:
    env = GroupVecEnv(World(spec_of(3, {"striker": 2}), lives(4, 4)))
    assert env.keep_journal(1) is None
    assert journal_of(env) is None
    env.reset()
    env.step(actions(env))
