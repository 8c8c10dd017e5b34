"""A step in two halves gives out what a whole step does, over every carrier; in between the first half is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.connections.engines.test_several import several
from tests.envs.conftest import memory_and_all_carriers
from tests.envs.test_vec_env import maker
from tests.harness.scripted_agents import ACTS, World, spec_of
from tests.harness.several import FragileSource, MaskedWalk, Walk
from tests.support.same import assert_same
from ue_rl.bridges import GymnasiumBridge
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.agents import GroupVecEnv
from ue_rl.envs.overlap_vec_env import OverlapVecEnv
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.system.errors import ActionError, ConfigurationError, UnexpectedMessage


class Seeing:
    """An Acting that keeps what it is told."""

    def __init__(self, env: UnrealVecEnv) -> None:
        self.seen: Any = None
        self.forgot = 0
        self.env = OverlapVecEnv(env, self)
        self.first = self.env.first

    def see_first(self, obs: Any, dones: Any) -> None:
        self.seen = rows(obs, self.first), dones[self.first].copy()

    def forget_first(self) -> None:
        self.seen = None
        self.forgot += 1


def rows(obs: Any, half: Any) -> Any:
    return {name: rows(part, half) for name, part in obs.items()} if isinstance(obs, dict) else obs[half].copy()


def step(env: OverlapVecEnv, actions: Any) -> Any:
    """A step in two halves, as a policy takes it that knows nothing of the second half's actions at first."""
    ahead = np.zeros_like(actions)
    ahead[env.first] = actions[env.first]
    env.ask_first(ahead)
    return env.step(actions)


@memory_and_all_carriers(["box", "multi-discrete"], "box")
def test_a_step_in_two_halves_is_a_whole_step(opened: Any, name: str) -> None:
    halved, whole = (opened(maker(name), 5, send_info=True, max_episode_steps=9) for _ in range(2))
    for env in (halved, whole):
        env.seed(11)
    assert_same(halved.reset(), whole.reset())
    acting = Seeing(halved)
    random = np.random.default_rng(5)
    ended = 0
    for _ in range(48):
        actions = np.array([halved.action_space.sample() for _ in range(5)])
        actions = random.permutation(actions)
        got, want = step(acting.env, actions), whole.step(actions)
        for info in (*got[3], *want[3]):
            info.get("episode", {}).pop("t", None)
        assert_same(got, want)
        assert_same(acting.seen, (got[0][:3], got[2][:3]))
        assert_same([dict(info) for info in halved.reset_infos], [dict(info) for info in whole.reset_infos])
        ended += int(got[2].sum())
    assert ended > 20


def test_with_masks_and_several_engines() -> None:
    def play(take: Callable[[Any, Any], Any], halved: bool) -> list[Any]:
        env: Any = UnrealVecEnv(several(MaskedWalk, (3, 2, 4)), monitor=False)
        if halved:
            env = Seeing(env).env
            assert env.first.tolist() == [True, True, False, True, False, True, True, False, False]
        env.seed(7)
        seen = [env.reset()]
        random = np.random.default_rng(1)
        for _ in range(40):
            masks = env.env_method("action_masks")
            seen += [*take(env, np.array([random.choice(np.flatnonzero(mask)) for mask in masks])), masks]
        return seen

    assert_same(play(step, True), play(lambda env, actions: env.step(actions), False))


@pytest.mark.parametrize("strikes", [0, 1], ids=["first half", "second half"])
@pytest.mark.parametrize("where", ["ask", "collect", "collect_resets"])
def test_an_engine_that_is_lost_in_a_half_ends_the_episodes_of_all_its_envs(where: str, strikes: int) -> None:
    """Its other half too: rows of an engine that has gone are never those of the step before."""
    sources = [FragileSource(lambda life, at=at: Walk(2, at)) for at in (0, 2)]
    env = UnrealVecEnv(EnginesTransport(sources, restarts=Restarts(5, 60.0, first_pause=0.0)))
    env.seed(3)
    env.reset()
    acting = Seeing(env)
    source, lost = sources[1], 0
    for number in range(30):
        actions = np.full(4, number % 3)
        if number % 6 == 4 and strikes:
            acting.env.ask_first(actions)
            acting.see_first = lambda obs, dones: source.breaks.append(where)  # type: ignore[method-assign]
            obs, rewards, dones, infos = acting.env.step(actions)
            del acting.see_first  # type: ignore[misc]
        else:
            source.breaks += [where] if number % 6 == 4 else []
            obs, rewards, dones, infos = step(acting.env, actions)
        gone = [at for at, info in enumerate(infos) if "engine_lost" in info]
        if gone:
            lost += 1
            assert set(gone) <= {2, 3}
            assert dones[[2, 3]].all()
            for at in gone:
                assert infos[at]["TimeLimit.truncated"]
                assert "terminal_observation" in infos[at]
                assert obs[at, 2] == 0  # the first observation of a new episode
        assert np.isfinite(rewards).all()
    assert lost, "no strike hit"
    source.breaks.clear()
    for number in range(8):
        assert step(acting.env, np.full(4, number % 3))[0][:, 0].tolist() == [0, 1, 2, 3]


def test_an_interrupted_half_is_dropped_by_a_reset() -> None:
    env = Seeing(UnrealVecEnv(MemoryTransport(GymnasiumBridge("CartPole-v1", 4)))).env
    env.seed(1)
    first = env.reset()
    env.ask_first(np.zeros(4, np.int64))
    env.seed(1)
    assert_same(env.reset(), first)
    obs = step(env, np.ones(4, np.int64))[0]
    env.seed(1)
    env.reset()
    assert_same(step(env, np.ones(4, np.int64))[0], obs)


@pytest.mark.parametrize("acts_on", [True, False])
def test_half_a_step_is_completed_with_the_same_actions_or_not_at_all(acts_on: bool) -> None:
    whole = UnrealVecEnv(MemoryTransport(GymnasiumBridge("CartPole-v1", 4)))
    env = Seeing(whole).env
    env.seed(1)
    env.reset()
    env.ask_first(np.ones(4, np.int64))
    assert whole.under_way
    goes_on: Any = env if acts_on else whole
    if acts_on:
        with pytest.raises(ActionError):
            env.step(np.full(4, 7))  # refused: what was asked stays asked
    for _ in range(2):
        with pytest.raises(UnexpectedMessage, match="broken off") as caught:
            goes_on.step(np.zeros(4, np.int64))
        assert caught.value.cure == "call reset() first"
    env.reset()
    assert not whole.under_way
    step(env, np.zeros(4, np.int64))
    assert not whole.under_way


def test_an_env_that_was_left_behind_in_a_step_may_be_stepped_as_a_whole_after_a_reset() -> None:
    """Between the halves nothing is under way over the connection, and yet the envs are not at the same step."""
    whole = UnrealVecEnv(MemoryTransport(GymnasiumBridge("CartPole-v1", 4)))
    seeing = Seeing(whole)
    whole.reset()
    seeing.env.ask_first(np.ones(4, np.int64))
    whole.take_answers(seeing.first.copy())
    with pytest.raises(UnexpectedMessage, match="broken off"):
        whole.step(np.zeros(4, np.int64))
    whole.reset()
    whole.step(np.zeros(4, np.int64))


def test_an_engine_of_one_env_has_no_halves() -> None:
    with pytest.raises(ConfigurationError, match="an engine of one env has no two halves"):
        UnrealVecEnv(several(Walk, (3, 1))).halves()


def test_an_agent_does_not_rest() -> None:
    env = GroupVecEnv(World(spec_of(2, {"seeker": 2}), lambda episode, step, env: [ACTS, ACTS]))
    env.reset()
    with pytest.raises(ConfigurationError, match="does not rest"):
        env.transport.send_actions(np.zeros((4, 2), np.float32), resting=[0])
