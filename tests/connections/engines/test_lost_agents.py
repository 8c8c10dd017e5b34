"""An engine whose envs hold agents is lost: all its agents end, and what counted in its game counts no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import PPO

from tests.harness.scripted_agents import GONE, World, lives, spec_of
from tests.harness.several import FragileSource
from tests.support.steps import advance, begin
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.envs.agents import GroupVecEnv, SelfPlay, SelfPlayOptions
from ue_rl.envs.agents.group import GroupTransport
from ue_rl.envs.agents.multi_agent_env import AgentsEnv
from ue_rl.envs.agents.sides import SidesTransport


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
        spec = spec_of(count, groups)
        sources.append(FragileSource(lambda life, n=n, spec=spec: FragileWorld(sources[n], spec, script)))  # type: ignore[misc]
    return EnginesTransport(sources, restarts=Restarts()), sources[-1]


def grouped(*args: Any) -> tuple[GroupVecEnv, FragileSource]:
    """Those of `worlds`, reset."""
    transport, fragile = worlds(*args)
    env = GroupVecEnv(transport)
    env.reset()
    return env, fragile


def act(env: GroupVecEnv) -> Any:
    return env.step(np.full((env.num_envs, 2), 0.5, np.float32))


def test_agents_end_with_their_engine() -> None:
    env, fragile = grouped(lives(5, 5), {"a": 2})
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
    env, fragile = grouped(lives(1, 4), {"a": 2})
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
    env, fragile = grouped(lambda env, n, t: lives(2 + 3 * env, 2 + 3 * env)(env, n, t), {"a": 2}, (1, 2))
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
    assert begin(group).lost == set()
    fragile.breaks = ["collect"]
    assert advance(group, 0).lost == {2, 3}
    assert begin(group, [2, 3]).lost == set()


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
