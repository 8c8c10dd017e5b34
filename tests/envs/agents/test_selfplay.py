"""Sides, the pool of past policies, Elo ratings, and the callback that plays a model against its past."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

from tests.harness.scripted_agents import World, lives, spec_of
from tests.support.steps import advance, begin
from ue_rl.envs.agents import GroupVecEnv, SelfPlay, SelfPlayOptions, SidesTransport
from ue_rl.envs.agents.pool import K, Past, Pool, expected_result
from ue_rl.envs.agents.sides import Match, two_sides
from ue_rl.system import errors

HALVES = {"wrestler": 2}


def constant(value: float) -> Any:
    return lambda obs: np.full((len(obs), 2), value, np.float32)


def step(env: GroupVecEnv, value: float = 0.5) -> Any:
    return env.step(np.full((env.num_envs, 2), value, np.float32))


@pytest.mark.parametrize("groups", [HALVES, {"red": 1, "blue": 1}])
def test_the_learner_has_one_side_in_every_env_and_the_opponent_the_other(groups: dict[str, int]) -> None:
    world = World(spec_of(3, groups), lives(2, 2))
    transport = SidesTransport(world, opponent=constant(-0.25))
    env = GroupVecEnv(transport)
    assert env.num_envs == 3
    assert env.reset()[:, 1].tolist() == [0, 1, 0]  # which agent it is
    step(env)
    assert world.received[0][:, 0].tolist() == [0.5, -0.25, -0.25, 0.5, 0.5, -0.25]


def test_sides_of_several_agents() -> None:
    assert two_sides(spec_of(1, {"a": 4})) == ([0, 1], [2, 3])
    assert two_sides(spec_of(1, {"a": 2, "ball": 1, "b": 2}), ["b", "a"]) == ([3, 4], [0, 1])
    world = World(spec_of(2, {"a": 2, "b": 2}), lives(1, 1, 1, 1))
    env = GroupVecEnv(SidesTransport(world))
    assert env.reset()[:, :2].tolist() == [[0, 0], [0, 1], [1, 2], [1, 3]]


@pytest.mark.parametrize("groups", [{"a": 1}, {"a": 3}, {"a": 1, "b": 2}, {"a": 1, "b": 1, "c": 1}])
def test_no_two_equal_sides_are_refused(groups: dict[str, int]) -> None:
    with pytest.raises(errors.ConfigurationError, match="two equal sides"):
        SidesTransport(World(spec_of(1, groups), lives(1, 1, 1)))


def test_sides_and_opponents_change_with_an_envs_next_episode() -> None:
    def script(env: int, episode: int, time: int) -> list[int]:
        return lives(2, 2)(env, episode, time) if env == 0 else lives(4, 4)(env, episode, time)

    world = World(spec_of(2, HALVES), script)
    transport = SidesTransport(world, opponent=constant(0.1))
    env = GroupVecEnv(transport)
    env.reset()
    step(env)
    transport.swap_sides()
    transport.play_against("second", constant(0.2))
    step(env)
    assert world.received[1][:, 0].tolist() == pytest.approx([0.5, 0.1, 0.1, 0.5])  # of the episode under way nothing
    assert transport.finished_games() == [Match(0, 0, "")]
    assert transport.finished_games() == []
    step(env)
    assert world.received[2][:, 0].tolist() == pytest.approx([0.2, 0.5, 0.1, 0.5])
    obs, *_ = step(env)
    assert transport.finished_games() == [Match(0, 1, "second"), Match(1, 1, "")]
    assert obs[:, :2].tolist() == [[0, 1], [1, 0]]
    step(env)
    assert world.received[4][:, 0].tolist() == pytest.approx([0.2, 0.5, 0.5, 0.2])
    assert transport.opponent_of == ["second", "second"]


def test_a_game_that_is_broken_off_does_not_count() -> None:
    transport = SidesTransport(World(spec_of(1, HALVES), lives(3, 3)))
    env = GroupVecEnv(transport)
    env.reset()
    step(env)
    env.reset()
    assert transport.finished_games() == []


def test_elo() -> None:
    assert expected_result(1200, 1200) == 0.5
    assert expected_result(1600, 1200) == pytest.approx(10 / 11)


def test_a_pool_is_kept_in_its_folder(tmp_path: Path) -> None:
    model = PPO("MlpPolicy", GroupVecEnv(SidesTransport(World(spec_of(1, HALVES), lives(3, 3)))), device="cpu")
    pool = Pool(tmp_path / "opponents", 1000)
    pool.add(0, model)
    pool.add(0, model)
    past = pool.policies[0]
    pool.rate(past, 1)
    assert (pool.elo, past.elo) == (1000 + K / 2, 1000 - K / 2)
    pool.save()
    again = Pool(tmp_path / "opponents", 5)
    assert (again.elo, again.policies) == (pool.elo, [Past(0, 1000 - K / 2)])
    obs = np.ones((3, 4), np.float32)
    mine = again.policy(again.policies[0], type(model.policy)).predict(obs, deterministic=True)[0]
    np.testing.assert_array_equal(mine, model.predict(obs, deterministic=True)[0])
    assert not list(tmp_path.rglob("*half-*"))


@pytest.mark.parametrize("content", ["{", '{"elo": 1}', '{"elo": "x", "policies": []}'])
def test_a_broken_pool_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "pool.json").write_text(content)
    with pytest.raises(errors.ConfigurationError, match=r"pool\.json cannot be read"):
        Pool(tmp_path, 1200)


def test_a_policy_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "pool.json").write_text(json.dumps({"elo": 1, "policies": [{"steps": 5, "elo": 1}]}))
    model = PPO("MlpPolicy", "CartPole-v1", device="cpu")
    pool = Pool(tmp_path, 1200)
    with pytest.raises(errors.ConfigurationError, match=r"000000000005\.zip cannot be read as a policy"):
        pool.policy(pool.policies[0], type(model.policy))


def test_an_opponent_whose_statistics_are_missing_is_refused(tmp_path: Path) -> None:
    env = VecNormalize(GroupVecEnv(SidesTransport(World(spec_of(1, HALVES), lives(3, 3)))))
    model = PPO("MlpPolicy", env, device="cpu")
    pool = Pool(tmp_path, 1000)
    pool.add(5, model)
    again = Pool(tmp_path, 1000)
    again.policy(again.policies[0], type(model.policy))
    (tmp_path / "000000000005.pkl").unlink()
    again.keep_loaded(set())
    with pytest.raises(errors.ConfigurationError, match=r"000000000005\.pkl.*statistics.*[Pp]ut it back"):
        again.policy(again.policies[0], type(model.policy))


def learner(tmp_path: Path, normalize: bool = False, **options: Any) -> tuple[PPO, SelfPlay, SidesTransport]:
    """Two sides whose agent 0 always wins: its reward is what it does, which is set to be more."""
    transport = SidesTransport(World(spec_of(4, HALVES), lives(3, 3)))
    env = GroupVecEnv(transport)
    callback = SelfPlay(env, tmp_path, SelfPlayOptions(**options), seed=1)
    wrapped = VecNormalize(env) if normalize else env
    model = PPO("MlpPolicy", wrapped, n_steps=8, batch_size=32, n_epochs=1, device="cpu", seed=1)
    return model, callback, transport


def test_a_run_saves_draws_rates_and_writes_down(tmp_path: Path) -> None:
    model, callback, _ = learner(
        tmp_path, save_steps=64, swap_steps=16, window=2, play_against_latest_model_ratio=0.3, team_change=96
    )
    model.learn(320, callback=callback)
    assert [past.steps for past in callback.pool.policies] == [0, 64, 128, 192, 256, 320]
    with (tmp_path / "self_play.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 320 // 3 // 4 * 4  # every env's episodes of three steps
    assert {row["side"] for row in rows} == {"wrestler_0", "wrestler_1"}
    seen = list(dict.fromkeys(row["opponent"] for row in rows))
    assert "latest" in seen
    assert len(seen) >= 4
    late = {row["opponent"] for row in rows if int(row["env_steps"]) > 290}
    assert late <= {"latest", f"{192:012}", f"{256:012}"}  # the window
    rated = [row for row in rows if row["opponent"] != "latest"]
    assert float(rows[-1]["elo"]) == round(callback.pool.elo, 2)
    first = rated[0]
    assert float(first["elo"]) == 1200 + K * (float(first["result"]) - 0.5)
    assert json.loads((tmp_path / "opponents" / "pool.json").read_text())["elo"] == callback.pool.elo


def test_a_full_disk_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, callback, _ = learner(tmp_path, save_steps=64, swap_steps=16, play_against_latest_model_ratio=0.5)

    class FullDisk(Pool):
        def save(self) -> None:
            if model.num_timesteps > 100:
                raise OSError(28, "No space left on device")
            super().save()

    callback.pool = FullDisk(tmp_path / "opponents", 1200)
    model.learn(256, callback=callback)
    assert model.num_timesteps == 256
    said = [record.getMessage() for record in caplog.records if record.name == SelfPlay.__module__]
    assert len(said) == 1
    assert "No space left on device" in said[0]


def test_elo_is_logged(tmp_path: Path) -> None:
    model, callback, _ = learner(tmp_path, save_steps=64, swap_steps=16, play_against_latest_model_ratio=0.0)
    told: dict[str, Any] = {}
    model.learn(32, callback=callback)
    record = model.logger.record
    model.logger.record = lambda key, value, *args, **kwargs: (told.update({key: value}), record(key, value))[1]  # type: ignore[method-assign, assignment]
    callback._on_rollout_end()
    assert told["self_play/elo"] == callback.pool.elo
    assert told["self_play/pool"] == 1
    assert told["self_play/opponent_elo"] == callback.pool.policies[0].elo
    assert 0 <= told["self_play/win_rate"] <= 1


def test_resuming_keeps_pool_and_elo(tmp_path: Path) -> None:
    options = {"save_steps": 32, "swap_steps": 16, "play_against_latest_model_ratio": 0.0}
    model, callback, _ = learner(tmp_path, **options)
    model.learn(64, callback=callback)
    model.save(tmp_path / "model.zip")
    elo, policies = callback.pool.elo, list(callback.pool.policies)
    games = (tmp_path / "self_play.csv").read_text()
    second, again, _ = learner(tmp_path, **options)
    resumed = PPO.load(tmp_path / "model.zip", env=second.get_env(), device="cpu")
    assert again.pool.elo == elo
    assert [past.steps for past in again.pool.policies] == [0, 32, 64]
    assert again.pool.policies == policies
    resumed.learn(64, callback=again, reset_num_timesteps=False)
    assert [past.steps for past in again.pool.policies] == [0, 32, 64, 96, 128]
    assert (tmp_path / "self_play.csv").read_text().startswith(games)


def test_opponents_of_a_normalized_learner_see_what_it_saw(tmp_path: Path) -> None:
    model, callback, _ = learner(tmp_path, True, save_steps=1000, swap_steps=1000, play_against_latest_model_ratio=0.0)
    model.learn(64, callback=callback)
    (past,) = callback.pool.policies
    policy = callback.pool.policy(past, type(model.policy))
    frozen = pickle.loads((tmp_path / "opponents" / f"{past.name}.pkl").read_bytes())
    raw = np.ones((2, 4), np.float32)
    kind = type(model.policy).load(str(tmp_path / "opponents" / f"{past.name}.zip"), device="cpu")
    expected = kind.predict(frozen.normalize_obs(raw), deterministic=True)[0]
    np.testing.assert_array_equal(policy.predict(raw, deterministic=True)[0], expected)


def test_wrappers_that_change_what_is_seen_are_refused(tmp_path: Path) -> None:
    transport = SidesTransport(World(spec_of(2, HALVES), lives(3, 3)))
    env = GroupVecEnv(transport)
    model = PPO("MlpPolicy", VecFrameStack(env, 2), n_steps=8, batch_size=16, device="cpu")
    with pytest.raises(errors.ConfigurationError, match="other observations than the opponents"):
        model.learn(16, callback=SelfPlay(env, tmp_path))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"save_step": 3}, "Did you mean 'save_steps'"),
        ({"window": 0}, "positive integer"),
        ({"swap_steps": 1.5}, "positive integer"),
        ({"play_against_latest_model_ratio": 2}, "0 to 1"),
        ({"initial_elo": "high"}, "must be a number"),
        ({"sides": "red"}, "two groups"),
        ({"sides": 5}, "two groups"),
        ({"sides": {"red": 1, "blue": 2}}, "two groups"),
    ],
)
def test_wrong_options_are_named(section: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=message):
        SelfPlayOptions.of(section)


def test_options_of_a_yaml_section() -> None:
    options = SelfPlayOptions.of({"save_steps": 5000, "sides": ["red", "blue"]})
    assert options.save_steps == 5000
    assert options.sides == ("red", "blue")
    assert options.initial_elo == 1200


def test_a_refused_step_changes_nothing() -> None:
    class Counting:
        """An opponent that acts 1, 2, 3 .."""

        acted = 0

        def act(self, buffers: Any) -> Any:
            self.acted += 1
            return np.full((2, 2), self.acted, np.float32)

        def begin(self, rows: Any) -> None:
            """Nothing to forget."""

    world = World(spec_of(2, HALVES), lambda env, n, t: lives(*[9 if env else 2] * 2)(env, n, t))
    opponent = Counting()
    transport = SidesTransport(world, opponent=opponent)
    begin(transport)
    good, wrong = np.full((2, 2), 0.5, np.float32), np.full((2, 2), np.nan, np.float32)
    for _ in range(2):
        advance(transport, good)
    transport.swap_sides()
    transport.play_against("second", constant(0.25))
    for _ in range(3):
        for actions in (wrong, good[:1], good.astype(np.float64)):
            with pytest.raises(errors.ActionError):
                transport.send_actions(actions)
        with pytest.raises(errors.ConfigurationError):
            transport.reset([0], seeds=[-1])
    assert transport.finished_games() == []
    assert transport.side_of.tolist() == [0, 1]
    assert transport.opponent_of == ["", ""]
    assert opponent.acted == 2
    advance(transport, good)
    assert transport.finished_games() == [Match(0, 0, "")]
    assert (transport.side_of.tolist(), transport.opponent_of) == ([1, 1], ["second", ""])
