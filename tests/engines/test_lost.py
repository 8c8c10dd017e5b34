"""An engine is lost: its episodes end as truncated with the last good observation, and it comes back."""

from __future__ import annotations

import functools
import logging
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import DQN, PPO

from tests.harness.scripted_agents import GONE, World, lives, spec_of
from tests.harness.several import FragileSource, FragileTransport, MaskedWalk, Walk
from ue_rl import errors
from ue_rl.agents import GroupVecEnv, SelfPlay, SelfPlayOptions
from ue_rl.agents.group import GroupTransport
from ue_rl.agents.multi_agent_env import AgentsEnv
from ue_rl.agents.sides import SidesTransport
from ue_rl.engines import part as part_of_engines
from ue_rl.engines import restarts as restarts_of_engines
from ue_rl.engines.lifecycle import Change, Life, LifeState
from ue_rl.engines.restarts import Restarts
from ue_rl.engines.transport import EnginesTransport
from ue_rl.envs.gym_env import UnrealEnv
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.envs.vector_env import UnrealVectorEnv

A = np.zeros(4, np.int64)


def two(kind: Any = Walk, restarts: Restarts | None = None, **options: Any) -> tuple[EnginesTransport, FragileSource]:
    """Engines with 2 envs each; the second one is to be broken."""
    sources = [FragileSource(lambda life, at=at: kind(2, at, **options), f"m{at}") for at in (0, 2)]  # type: ignore[misc]
    return EnginesTransport(sources, restarts=restarts or Restarts()), sources[1]


def steps_of(observations: Any) -> list[float]:
    return [float(row[2]) for row in observations]


@pytest.mark.parametrize("moment", ["ask", "collect"])
@pytest.mark.parametrize("kind", [Walk, MaskedWalk])
def test_lost_in_a_step(moment: str, kind: Any) -> None:
    transport, fragile = two(kind)
    env = UnrealVecEnv(transport)
    env.reset()
    env.step(A)
    fragile.breaks = [moment]
    obs, rewards, dones, infos = env.step(A)
    assert dones.tolist() == [False, False, True, True]
    assert rewards.tolist() == [2, 2, 0, 0]
    assert steps_of(obs) == [2, 2, 0, 0]  # the new episodes' first
    for info in infos[2:]:
        assert info["TimeLimit.truncated"] is True
        assert info["terminal_observation"][2] == 1  # the last that came
        assert "went away" in info["engine_lost"]
        assert "engine 1 (m2)" in info["engine_lost"]
        assert "episode" not in info
    assert not any("engine_lost" in info for info in infos[:2])
    if kind is MaskedWalk:
        assert [info["action_mask"].tolist() for info in infos] == [[1, 1, 0]] * 4
    obs, rewards, dones, infos = env.step(A)
    assert steps_of(obs) == [3, 3, 1, 1]
    assert len(fragile.bridges) == 2
    obs, rewards, dones, infos = env.step(A)
    assert [info.get("episode", {}).get("l") for info in infos] == [4, 4, None, None]
    env.close()


@pytest.mark.parametrize("moment", ["ask_resets", "collect_resets", "open"])
def test_lost_in_the_first_reset(moment: str) -> None:
    transport, fragile = two()
    env = UnrealVecEnv(transport)
    fragile.breaks = [moment] if moment != "open" else ["collect_resets", "open", "open"]
    env.seed(10)
    env.set_options({"a": 1})
    obs = env.reset()
    assert obs[:, 1].tolist() == [10, 11, 12, 13]  # the same seeds
    resets = [entry for entry in fragile.bridges[-1].log if entry[0] == "reset"]
    assert [(entry[2], entry[3]) for entry in resets] == [(12, {"a": 1}), (13, {"a": 1})]
    assert env.reset_infos == [{"step": 0}] * 4


@pytest.mark.parametrize("moment", ["ask_resets", "collect_resets"])
def test_lost_in_the_second_round_trip(moment: str) -> None:
    """Env 2 ends; as it is reset its engine is lost, and env 3 was in mid-episode."""
    transport, fragile = two()
    env = UnrealVecEnv(transport)
    env._seeds = [4, 7, 4, 7]  # lengths 3, 6, 3, 6
    env.reset()
    env.step(A)
    env.step(A)
    fragile.breaks = [moment]
    obs, rewards, dones, infos = env.step(A)
    assert dones.tolist() == [True, False, True, True]
    assert rewards.tolist() == [3, 3, 3, 3]  # the rewards of this step are good
    assert [info.get("TimeLimit.truncated") for info in infos] == [False, False, False, True]
    assert infos[3]["terminal_observation"].tolist() == [3, 7, 3, 0]
    assert "engine_lost" in infos[3]
    assert infos[3]["step"] == 3  # what the engine said of this step
    assert "engine_lost" not in infos[2]  # its episode had ended by itself
    assert infos[2]["episode"]["r"] == 6
    assert "episode" not in infos[3]
    assert steps_of(obs) == [0, 3, 0, 0]
    obs, rewards, dones, infos = env.step(A)
    assert steps_of(obs) == [1, 4, 1, 1]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_gymnasiums_vector_env_in_a_step(mode: str) -> None:
    transport, fragile = two(MaskedWalk)
    env = UnrealVectorEnv(transport, autoreset_mode=mode)
    env.reset()
    env.step(A)
    fragile.breaks = ["collect"]
    obs, rewards, ended, cut, infos = env.step(A)
    assert ended.tolist() == [False] * 4
    assert cut.tolist() == [False, False, True, True]
    assert rewards.tolist() == [2, 2, 0, 0]
    if mode == "SameStep":
        assert [row[2] for row in infos["final_obs"][2:]] == [1, 1]
        assert "went away" in infos["final_info"]["engine_lost"][2]
        assert steps_of(obs) == [2, 2, 0, 0]
        return
    assert steps_of(obs) == [2, 2, 1, 1]  # the last good one
    assert "went away" in infos["engine_lost"][3]
    assert infos["action_mask"].tolist() == [[1, 1, 0]] * 2 + [[1, 0, 1]] * 2
    if mode == "Disabled":
        with pytest.raises(errors.ConfigurationError):
            env.step(A)
        obs, _ = env.reset(options={"reset_mask": np.array([False, False, True, True])})
        assert steps_of(obs) == [2, 2, 0, 0]
    obs, rewards, ended, cut, infos = env.step(A)
    assert not ended.any()
    assert not cut.any()
    assert steps_of(obs) == ([3, 3, 1, 1] if mode == "Disabled" else [3, 3, 0, 0])


def test_next_step_lost_as_an_episode_begins() -> None:
    transport, fragile = two()
    env = UnrealVectorEnv(transport)
    env.reset(seed=[4, 7, 4, 7])  # lengths 3, 6, 3, 6
    for _ in range(3):
        env.step(A)
    fragile.breaks = ["collect"]
    obs, rewards, _, cut, infos = env.step(A)  # envs 0 and 2 begin, 1 and 3 take step 4
    assert steps_of(obs) == [0, 4, 0, 3]
    assert cut.tolist() == [False, False, False, True]
    assert rewards.tolist() == [0, 4, 0, 0]
    assert infos["_engine_lost"].tolist() == [False, False, False, True]
    obs, *_ = env.step(A)
    assert steps_of(obs) == [1, 5, 1, 0]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_lost_in_a_reset_of_some_envs_is_told_by_the_next_step(mode: str) -> None:
    transport, fragile = two()
    env = UnrealVectorEnv(transport, autoreset_mode=mode)
    env.reset(seed=[7, 7, 7, 7])
    env.step(A)
    fragile.breaks = ["collect_resets"]
    obs, _ = env.reset(seed=11, options={"reset_mask": np.array([True, False, True, False])})
    assert steps_of(obs) == [0, 1, 0, 1]
    obs, rewards, _, cut, infos = env.step(A)
    assert cut.tolist() == [False, False, False, True]
    assert rewards.tolist() == [1, 2, 1, 0]
    if mode == "SameStep":
        assert infos["final_obs"][3][2] == 1
        assert steps_of(obs) == [1, 2, 1, 0]
    else:
        assert steps_of(obs) == [1, 2, 1, 1]
        assert "went away" in infos["engine_lost"][3]
    if mode == "Disabled":
        env.reset(options={"reset_mask": np.array([False, False, False, True])})
    obs, *_ = env.step(A)
    assert steps_of(obs) == {"NextStep": [2, 3, 2, 0], "SameStep": [2, 3, 2, 1], "Disabled": [2, 3, 2, 1]}[mode]


def test_same_step_lost_in_the_second_round_trip() -> None:
    transport, fragile = two()
    env = UnrealVectorEnv(transport, autoreset_mode="SameStep")
    env.reset(seed=[7, 7, 4, 7])
    for _ in range(2):
        env.step(A)
    fragile.breaks = ["ask_resets", "open"]
    obs, _, ended, cut, infos = env.step(A)
    assert ended.tolist() == [False, False, True, False]
    assert cut.tolist() == [False, False, False, True]
    assert steps_of(obs) == [3, 3, 0, 0]
    assert [row[2] for row in infos["final_obs"][2:]] == [3, 3]
    assert "went away" in infos["final_info"]["engine_lost"][3]
    assert infos["final_info"]["_engine_lost"].tolist() == [False, False, False, True]


def test_a_gymnasium_env() -> None:
    source = FragileSource(lambda life: Walk(1))
    env = UnrealEnv(EnginesTransport([source], restarts=Restarts()))
    env.reset(seed=7)
    env.step(1)
    source.breaks = ["collect"]
    obs, reward, ended, cut, info = env.step(1)
    assert (obs.tolist(), reward, ended, cut) == ([0, 7, 1, 1], 0, False, True)
    assert "went away" in info["engine_lost"]
    with pytest.raises(errors.ConfigurationError, match="its episode is over"):
        env.step(1)
    source.breaks = ["collect_resets"]
    obs, _ = env.reset(seed=8)
    assert obs.tolist() == [0, 8, 0, 0]
    assert env.step(1)[1] == 1.25


def test_lost_between_steps_in_a_call() -> None:
    transport, fragile = two(features=("TIME_SCALE",))
    env = UnrealVecEnv(transport)
    env.reset()
    env.set_params({"gravity": 5.0})
    fragile.breaks = ["call"]
    with pytest.raises(errors.CommandFailed, match="was lost"):
        env.get_params(env_id=3)
    env.set_time_scale(3)  # the other one takes it at once
    with pytest.raises(errors.CommandFailed, match="not come back yet"):
        env.get_params(env_id=3)
    assert env.get_params(env_id=1) == {"gravity": 5}
    _, _, dones, infos = env.step(A)
    assert dones.tolist() == [False, False, True, True]
    assert "engine_lost" in infos[3]
    again = fragile.bridges[1]
    assert (again.gravity, again.scale) == ([5.0, 5.0], 3)  # as it was set
    assert env.get_params(env_id=3) == {"gravity": 5}
    fragile.breaks = ["call"]
    with pytest.raises(errors.CommandFailed):
        env.get_params(env_id=3)
    assert steps_of(env.reset()) == [0] * 4  # a reset instead of a step
    assert steps_of(env.step(A)[0]) == [1] * 4


def test_parameters_of_an_episode_whose_reset_was_lost_are_not_drawn_again() -> None:
    transport, fragile = two()
    env = UnrealVecEnv(transport)
    randomizer = env.randomize({"gravity": (1, 2)}, seed=1)
    assert randomizer is not None
    fragile.breaks = ["collect_resets"]
    env.reset()
    expected = type(randomizer)(env.engine_spec, {"gravity": (1, 2)}, 1)
    assert [randomizer.values[e] for e in range(4)] == [expected(e) for e in range(4)]
    assert [entry[4] for entry in fragile.bridges[1].log] == pytest.approx(
        [randomizer.values[e]["gravity"] for e in (2, 3)]
    )


def test_the_quota() -> None:
    transport, fragile = two(restarts=Restarts(1, 60))
    env = UnrealVecEnv(transport)
    env.reset()
    fragile.breaks = ["collect"]
    env.step(A)
    fragile.breaks = ["collect"]
    with pytest.raises(errors.RestartsSpent, match=r"engine 1 \(m2\): the engine went away; it was lost 2 times"):
        env.step(A)
    assert transport.lives[1].state is LifeState.QUOTA_SPENT
    assert transport.lives[0].state is LifeState.IDLE
    with pytest.raises(errors.ConnectionUnusable, match="2 times"):
        env.reset()
    assert fragile.closed


def test_without_restarts_a_loss_is_final() -> None:
    fragile = FragileSource(lambda life: Walk(2))
    env = UnrealVecEnv(EnginesTransport([fragile]))
    env.reset()
    fragile.breaks = ["collect"]
    with pytest.raises(errors.EngineDisconnected):
        env.step(A[:2])
    with pytest.raises(errors.ConnectionUnusable):
        env.reset()


def test_an_engine_that_comes_back_as_another_game_is_refused() -> None:
    source = FragileSource(lambda life: Walk(2 + life))
    env = UnrealVecEnv(EnginesTransport([source], restarts=Restarts()))
    env.reset()
    source.breaks = ["collect"]
    with pytest.raises(errors.ConnectionUnusable, match=r"not the one that was lost.*ENV_COUNT.*expected 2; got 3"):
        env.step(A[:2])


@pytest.mark.parametrize("resets", [None, [1]])
def test_once_an_engine_was_waited_for_in_vain_the_others_are_given_less(
    resets: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have had as much time as it: engines that all hang must not cost a timeout each."""
    sources = [FragileSource(lambda life, at=at: Walk(2, at), f"m{at}") for at in (0, 2, 4, 6)]  # type: ignore[misc]
    transport = EnginesTransport(sources, restarts=Restarts())
    transport.connect()
    transport.reset()
    transport.receive()
    waited: list[tuple[int, float]] = []
    for part in transport._parts:
        assert isinstance(part.transport, FragileTransport)

        def collect(of: Any = part.transport, number: int = part.number, go_on: Any = part.transport._collect) -> None:
            waited.append((number, of.timeout))
            go_on()

        part.transport._collect = collect  # type: ignore[method-assign]
        part.transport.timeout = 60.0
    for source in (sources[1], sources[3]):
        source.breaks, source.error = ["collect"], lambda: errors.EngineTimeout("too late", fault="engine")
    transport.send_actions(np.zeros((8, 1), np.float32), resets)
    assert transport.receive().lost == {2, 3, 6, 7}
    assert waited == [(0, 60), (1, 60), (2, 0.5), (3, 0.5)]
    transport.send_actions(np.zeros((8, 1), np.float32), [2, 3, 6, 7])
    transport.receive()
    assert waited[4:] == [(0, 60), (2, 60)]  # and as long as ever the next time


def test_ctrl_c_is_no_loss() -> None:
    transport, fragile = two()
    env = UnrealVecEnv(transport)
    env.reset()
    fragile.error = KeyboardInterrupt  # type: ignore[assignment]
    fragile.breaks = ["collect"]
    with pytest.raises(KeyboardInterrupt):
        env.step(A)
    assert not fragile.losses
    with pytest.raises(errors.ConnectionUnusable):
        env.reset()


@pytest.mark.parametrize(
    "which", [errors.EngineTimeout, errors.MalformedMessage, errors.RingFull, errors.NonFiniteValue]
)
def test_whatever_an_engine_does_wrong_is_survived(which: type[errors.UeRlError]) -> None:
    transport, fragile = two()
    changes: list[Change] = []
    transport, fragile = two()
    transport = EnginesTransport([p.source for p in transport._parts], restarts=Restarts(), on_change=changes.append)
    env = UnrealVecEnv(transport)
    env.reset()
    fragile.error = lambda: which("wrong", fault="engine", env_id=1)
    fragile.breaks = ["collect"]
    _, _, dones, infos = env.step(A)
    assert dones.tolist() == [False, False, True, True]
    assert "env 3" in infos[2]["engine_lost"]  # counted over all engines
    states = [change.after for change in changes if change.engine == 1]
    failed = LifeState.TIMEOUT if issubclass(which, TimeoutError) else LifeState.CONNECTION_LOST
    begin = [LifeState.CONNECTING, LifeState.STREAMING, LifeState.PLAYING]
    assert states == [*begin, failed, LifeState.CLEANUP, *begin]
    env.close()
    assert [change.after for change in changes[-2:]] == [LifeState.CLEANUP, LifeState.IDLE]


def test_all_engines_at_once() -> None:
    sources = [FragileSource(lambda life, at=at: Walk(1, at)) for at in range(10)]  # type: ignore[misc]
    env = UnrealVecEnv(EnginesTransport(sources, restarts=Restarts()))
    env.reset()
    for n in (1, 5, 8):
        sources[n].breaks = ["collect"]
    _, _, dones, _ = env.step(np.zeros(10, np.int64))
    assert np.flatnonzero(dones).tolist() == [1, 5, 8]
    for source in sources:
        source.breaks = ["ask"]
    obs, _, dones, _ = env.step(np.zeros(10, np.int64))
    assert dones.all()
    assert steps_of(obs) == [0] * 10


def test_what_algorithms_store() -> None:
    """Truncated transitions whose next observation is the last good one; no return of a lost episode is counted."""
    transport, fragile = two()
    env = UnrealVecEnv(transport)
    model = DQN("MlpPolicy", env, learning_starts=1000, buffer_size=50)

    def break_at(local: Any, _: Any) -> bool:
        if local["self"].num_timesteps == 8:
            fragile.breaks = ["collect"]
        return True

    model.learn(24, callback=break_at)
    buffer = model.replay_buffer
    assert buffer is not None
    dones, cut = buffer.dones[:6], buffer.timeouts[:6]
    assert cut[2].tolist() == [0, 0, 1, 1]
    assert dones[2].tolist() == [0, 0, 1, 1]
    assert buffer.next_observations[2, 2:, 2].tolist() == [2, 2]
    assert buffer.observations[3, 2:, 2].tolist() == [0, 0]
    assert buffer.rewards[2].tolist()[2:] == [0, 0]
    # 8 steps of each env: two episodes of the first two, one whole one of the others; the lost ones are not counted
    assert [info["l"] for info in model.ep_info_buffer or ()] == [4] * 6
    env.close()


def test_ppo_learns_on() -> None:
    transport, fragile = two()
    env = UnrealVecEnv(transport)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=16, n_epochs=1)
    fragile.breaks = ["collect", "collect_resets", "open"]
    model.learn(64)
    assert model.num_timesteps == 64


# -- agents


class FragileWorld(World):
    """Scripted agents that are lost when their source says so."""

    def __init__(self, source: FragileSource, *args: Any) -> None:
        super().__init__(*args)
        self._source = source

    def _collect(self) -> None:
        self._source.may_break("collect" if self._todo[0] is not None else "collect_resets")
        super()._collect()


def worlds(
    script: Any, groups: dict[str, int], counts: tuple[int, ...] = (1, 1)
) -> tuple[EnginesTransport, FragileSource]:
    sources: list[FragileSource] = []
    for n, count in enumerate(counts):
        sources.append(
            FragileSource(lambda life, n=n, count=count: FragileWorld(sources[n], spec_of(count, groups), script))
        )  # type: ignore[misc]
    return EnginesTransport(sources, restarts=Restarts()), sources[-1]


def act(env: GroupVecEnv) -> Any:
    return env.step(np.full((env.num_envs, 2), 0.5, np.float32))


def test_agents_end_with_their_engine() -> None:
    transport, fragile = worlds(lives(5, 5), {"a": 2})
    env = GroupVecEnv(transport)
    env.reset()
    act(env)
    fragile.breaks = ["collect"]
    obs, rewards, dones, infos = act(env)
    assert dones.tolist() == [False, False, True, True]
    assert obs[:, 3].tolist() == [2, 2, 0, 0]
    assert rewards.tolist() == pytest.approx([0.5, 0.6, 0, 0])
    assert [info["terminal_observation"][3] for info in infos[2:]] == [1, 1]
    assert all("engine_lost" in info and "episode" not in info for info in infos[2:])
    assert all(info["TimeLimit.truncated"] for info in infos[2:])
    assert act(env)[0][:, 3].tolist() == [3, 3, 1, 1]


def test_an_inactive_agent_stays_inactive_when_its_engine_is_lost() -> None:
    transport, fragile = worlds(lives(1, 4), {"a": 2})
    env = GroupVecEnv(transport)
    env.reset()
    act(env)  # agent 0 of each env has ended
    fragile.breaks = ["collect"]
    _, _, dones, infos = act(env)
    assert infos[2] == {"inactive": True}
    assert "engine_lost" in infos[3]
    assert dones.tolist() == [True, False, True, True]
    _, _, dones, infos = act(env)
    assert dones[2]
    assert infos[2]["terminal_observation"][2:].tolist() == [0, 1]  # it has taken part again


def test_agents_in_the_second_round_trip() -> None:
    """Env 1 ends, env 2 is at its third step; both live in the second engine."""
    transport, fragile = worlds(lambda env, n, t: lives(2 + 3 * env, 2 + 3 * env)(env, n, t), {"a": 2}, (1, 2))
    env = GroupVecEnv(transport)
    env.reset()
    act(env)
    fragile.breaks = ["collect_resets"]
    obs, rewards, dones, infos = act(env)
    assert dones.all()
    assert rewards.tolist() == pytest.approx([0.5, 0.6] * 3)
    assert [("episode" in info, "engine_lost" in info) for info in infos] == [(True, False)] * 4 + [(False, True)] * 2
    assert [info["terminal_observation"][3] for info in infos] == [2] * 6
    assert obs[:, 3].tolist() == [0] * 6
    assert act(env)[0][:, 3].tolist() == [1] * 6


def test_a_game_that_was_lost_is_not_counted() -> None:
    transport, fragile = worlds(lives(2, 2), {"red": 1, "blue": 1})
    sides = SidesTransport(transport)
    env = GroupVecEnv(sides)
    env.reset()
    act(env)
    fragile.breaks = ["collect"]
    act(env)
    assert [game.env for game in sides.finished_games()] == [0]
    act(env)
    act(env)
    assert sorted(game.env for game in sides.finished_games()) == [0, 1]


def test_agents_by_name() -> None:
    transport, fragile = worlds(lives(5, 5), {"a": 2}, (1,))
    env = AgentsEnv(transport)
    env.reset(seed=3)
    action = {name: np.zeros(2, np.float32) for name in ("a_0", "a_1")}
    env.step(action)
    fragile.breaks = ["collect"]
    given = env.step(action)
    assert given.truncations == {"a_0": True, "a_1": True}
    assert given.terminations == {"a_0": False, "a_1": False}
    assert given.rewards == {"a_0": 0, "a_1": 0}
    assert all("engine_lost" in info for info in given.infos.values())
    assert given.observations["a_0"].tolist() == [0, 0, 0, 1]
    assert env.agents == []
    fragile.breaks = ["collect_resets"]
    observations, _ = env.reset()
    assert observations["a_1"].tolist() == [0, 1, 0, 0]
    assert env.agents == ["a_0", "a_1"]


def test_a_group_is_told_of_lost_rows() -> None:
    transport, fragile = worlds(lives(5, 5), {"a": 2})
    group = GroupTransport(transport)
    group.reset()
    assert group.receive().lost == set()
    fragile.breaks = ["collect"]
    group.send_actions(np.zeros((4, 2), np.float32))
    assert group.receive().lost == {2, 3}
    group.reset([2, 3])
    assert group.receive().lost == set()


# -- the parts


def test_restarts_pause_longer_each_time_an_engine_dies_at_once() -> None:
    restarts = Restarts(6, 60)
    error = errors.EngineDisconnected("gone", cure="look there")
    assert [restarts.lost(0, error, now) for now in (0, 1, 2, 3)] == pytest.approx([0, 0.1, 0.2, 0.4])
    assert restarts.lost(1, error, 3) == 0
    assert restarts.lost(0, error, 20) == 0  # it lived for a while
    assert restarts.lost(0, error, 21) == pytest.approx(0.1)
    with pytest.raises(errors.RestartsSpent, match=r"7 times within 60 s.*Look there"):
        restarts.lost(0, error, 22)
    assert restarts.counts == {0: 7, 1: 1}
    slow = Restarts(1, 10)
    assert [slow.lost(0, error, now) for now in (0, 11, 22, 33)] == [0] * 4


def test_an_engine_that_never_answers_a_step_spends_the_quota_however_long_it_takes_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restarts_of_engines, "_FIRST_PAUSE", 0.001)
    restarts = Restarts(2, 10)
    error = errors.EngineDisconnected("gone")
    vain = functools.partial(restarts.lost, 0, error, stepped=False)
    assert [vain(now=0), vain(now=100), restarts.lost(0, error, 200), vain(now=300), vain(now=400)] == [0] * 5
    with pytest.raises(errors.RestartsSpent, match="3 times in a row, and answered no step between"):
        vain(now=500)
    transport, fragile = two(restarts=Restarts(2, 1e-9))
    env = UnrealVecEnv(transport)
    env.reset()
    for _ in range(4):  # it answers a step each time
        fragile.breaks = ["collect"]
        env.step(A)
        env.step(A)
    with pytest.raises(errors.RestartsSpent, match="3 times in a row"):
        for _ in range(4):
            fragile.breaks = ["collect"]
            env.step(A)


def test_only_the_time_in_which_an_engine_plays_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that loads for 40 s and dies after a step would never be lost twice within a window of 60 s."""
    clock = [0.0]
    monkeypatch.setattr(
        part_of_engines,
        "time",
        types.SimpleNamespace(monotonic=lambda: clock[0], perf_counter=time.perf_counter, sleep=lambda seconds: None),
    )
    transport, fragile = two(restarts=Restarts(3, 60))
    made, fragile._make = fragile._make, lambda life: (clock.__setitem__(0, clock[0] + 40), made(life))[1]
    env = UnrealVecEnv(transport)
    env.reset()

    def lose(after: float) -> None:
        env.step(A)
        clock[0] += after
        fragile.breaks = ["collect"]
        env.step(A)

    for _ in range(8):  # one that plays for a while is lost as often as it likes
        lose(after=25)
    clock[0] += 25
    with pytest.raises(errors.RestartsSpent, match="lost 4 times within 60 s of play"):
        for _ in range(4):
            lose(after=0.1)
    assert clock[0] > 400


def test_waiting_for_an_answer_that_never_comes_is_no_play(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers a step and then hangs for 30 s, again and again, spends its quota too."""
    clock = [0.0]
    monkeypatch.setattr(
        part_of_engines,
        "time",
        types.SimpleNamespace(monotonic=lambda: clock[0], perf_counter=time.perf_counter, sleep=lambda seconds: None),
    )
    transport, fragile = two(restarts=Restarts(3, 60))
    env = UnrealVecEnv(transport)

    def late() -> errors.EngineTimeout:
        clock[0] += 30
        return errors.EngineTimeout("no answer")

    fragile.error = late
    monkeypatch.setattr(FragileTransport, "timeout", 30.0, raising=False)
    env.reset()
    with pytest.raises(errors.RestartsSpent, match="lost 4 times within 60 s of play"):
        for _ in range(4):
            env.step(A)
            fragile.breaks = ["collect"]
            env.step(A)


def test_episodes_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    transport, _ = two()
    env = UnrealVecEnv(transport)
    env.reset()
    with caplog.at_level(logging.INFO, "ue_rl.engines"):
        for _ in range(10):
            env.step(A)
    assert not caplog.records
    vector = UnrealVectorEnv(two()[0])
    vector.reset()
    states = []
    for _ in range(6):
        vector.step(A)
        states.append(vector.transport.lives[0].state)  # type: ignore[attr-defined]
    assert states == [LifeState.PLAYING] * 3 + [LifeState.EPISODE_OVER] + [LifeState.PLAYING] * 2


def test_a_step_before_any_reset() -> None:
    life = Life(0)
    for state in (LifeState.CONNECTING, LifeState.STREAMING):
        life.to(state)
    life.episode(over=True)
    assert life.state is LifeState.EPISODE_OVER


def test_names_of_what_train_shows() -> None:
    transport, fragile = two()
    env = UnrealVecEnv(transport)
    env.reset()
    fragile.breaks = ["collect"]
    env.step(A)
    env.step(A)
    assert [(e.name, e.state, e.num_envs, e.restarts) for e in transport.engines] == [
        ("m0", LifeState.PLAYING, 2, 0),
        ("m2", LifeState.PLAYING, 2, 1),
    ]
    assert transport.engine_envs == [range(2), range(2, 4)]
    assert [len(transport.latencies(n)) for n in (0, 1)] == [2, 1]
    assert (transport.latencies(0) > 0).all()
    assert transport.describe()["engines"] == "2"
    assert isinstance(transport._parts[0].transport, FragileTransport)


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_an_env_whose_episode_was_over_is_not_cut_off_by_a_loss_in_a_reset_of_others(mode: str) -> None:
    transport, fragile = two()
    env = UnrealVectorEnv(transport, autoreset_mode=mode)
    env.reset(seed=[7, 7, 7, 4])  # env 3's episode takes 3 steps, the others' 6
    for _ in range(3):
        env.step(A)
    fragile.breaks = ["collect_resets"]
    mask = np.array([False, False, True, False])
    obs, _ = env.reset(options={"reset_mask": mask})
    assert steps_of(obs) == [3, 3, 0, 3]
    if mode == "Disabled":
        env.reset(options={"reset_mask": np.array([False, False, False, True])})
    obs, rewards, ended, cut, infos = env.step(A)
    assert not ended.any()
    assert not cut.any()
    assert "engine_lost" not in infos
    assert steps_of(obs) == ([4, 4, 1, 0] if mode == "NextStep" else [4, 4, 1, 1])
    assert rewards.tolist() == ([4, 4, 1, 0] if mode == "NextStep" else [4, 4, 1, 1])
    assert steps_of(env.step(A)[0]) == ([5, 5, 2, 1] if mode == "NextStep" else [5, 5, 2, 2])


def test_rewards_of_a_game_that_was_lost_do_not_count_in_the_next_one(tmp_path: Path) -> None:
    """An agent ends with a reward of -1, its engine is lost, and the next game is played without that agent."""

    def script(env: int, episode: int, time: int) -> list[int]:
        if len(fragile.bridges) == 1:
            return lives(1, 4, 4, 4)(env, episode, time)
        return [GONE, *lives(2, 2, 2)(env, episode, time)]

    transport, fragile = worlds(script, {"a": 4}, (1,))
    env = GroupVecEnv(SidesTransport(transport))
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=8, device="cpu")
    callback = SelfPlay(env, tmp_path, SelfPlayOptions(play_against_latest_model_ratio=1.0))
    model._setup_learn(1000, callback=None)
    callback.init_callback(model)
    callback.on_training_start({}, {})

    def play(value: float) -> None:
        _, rewards, _, infos = env.step(np.full((2, 2), value, np.float32))
        callback.locals = {"rewards": rewards, "infos": infos}
        callback.on_step()

    play(-1)
    fragile.breaks = ["collect"]
    for value in (-1, 0.5, 0.5, 0.5):
        play(value)
    callback.close()
    rows = (tmp_path / "self_play.csv").read_text().splitlines()
    assert [row.split(",")[3] for row in rows[1:]] == ["1.0"]  # won: 0.6, and nothing else
