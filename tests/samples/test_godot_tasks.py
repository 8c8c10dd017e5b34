"""The tasks of samples/godot with 3D physics: spaces, episodes, and the same seed giving the same run to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from tests.samples.godot_engine import Engine, check_of_godot, needs_godot, running
from ue_rl.devtools import check as compliance
from ue_rl.devtools.check import Verdict
from ue_rl.devtools.check.text_peer import PER_ENV, SHARED

if TYPE_CHECKING:  # the processes of `checked` import this file, and need no torch
    from ue_rl import UnrealVecEnv

pytestmark = needs_godot

NUM_ENVS = 4
SPACES = {"rolling_ball": spaces.Box(-1, 1, (2,)), "catcher": spaces.Discrete(3)}
Rows = NDArray[np.float32]


@pytest.fixture(scope="module")
def ball(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(tmp_path_factory.mktemp("ball"), "--task=rolling_ball", num_envs=NUM_ENVS) as started:
        yield started


@pytest.fixture(scope="module")
def catcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(tmp_path_factory.mktemp("catcher"), "--task=catcher", num_envs=NUM_ENVS) as started:
        yield started


@pytest.fixture
def task(request: pytest.FixtureRequest) -> tuple[str, Engine]:
    fixture = {"rolling_ball": "ball", "catcher": "catcher"}[request.param]
    return request.param, request.getfixturevalue(fixture)


def rollout(env: UnrealVecEnv, steps: int = 200) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """Observations, rewards and dones of a seeded run with seeded actions that hold for ten steps each."""
    env.action_space.seed(5)
    env.seed(11)
    seen, rewards, dones = [env.reset()], [], []
    for step in range(steps):
        if step % 10 == 0:
            actions = np.array([env.action_space.sample() for _ in range(env.num_envs)])
        obs, reward, done, _ = env.step(actions)
        seen.append(obs)
        rewards.append(reward)
        dones.append(done)
    return np.array(seen), np.array(rewards), np.array(dones)


@pytest.mark.parametrize("task", ["rolling_ball", pytest.param("catcher", marks=pytest.mark.exhaustive)], indirect=True)
def test_the_same_seeds_and_actions_give_the_same_run_to_the_bit(task: tuple[str, Engine], tmp_path: Path) -> None:
    """On both wirings, after other episodes, and in a fresh process."""
    name, engine = task
    runs = []
    for channel in ("shared", "per_env"):
        env = engine.connect(channel)
        assert env.action_space == SPACES[name]
        assert env.engine_spec.features >= {"SEED", "TRUNC"}
        runs.append(rollout(env))
        env.close()
    with running(tmp_path, f"--task={name}", num_envs=NUM_ENVS) as fresh:
        env = fresh.connect()
        runs.append(rollout(env))
        env.close()
    obs, rewards, dones = runs[0]
    assert dones.any(), "no episode ended: resets in mid-run were not compared"
    assert len(np.unique(obs[0], axis=0)) == NUM_ENVS
    for others in runs[1:]:
        for mine, other in zip((obs, rewards, dones), others, strict=True):
            np.testing.assert_array_equal(mine, other)


def checked(name: str) -> compliance.CheckReport:
    return check_of_godot(f"--task={name}", num_envs=3)


@pytest.mark.ahead(job=checked)
@pytest.mark.parametrize(
    "name", ["rolling_ball", *(pytest.param(each, marks=pytest.mark.exhaustive) for each in ("cart_pole", "catcher"))]
)
def test_the_checker_finds_nothing(name: str, result: compliance.CheckReport) -> None:
    assert [f for f in result.findings if f.outcome in (Verdict.FAIL, Verdict.WARN)] == []
    assert result.exit_code == 0
    assert {f.check for f in result.findings if f.outcome is Verdict.PASS} >= {"a seed twice", "next trainer"}
    assert {f.carrier for f in result.findings} >= {SHARED, PER_ENV}


@pytest.mark.parametrize("task", SPACES, indirect=True)
def test_an_env_that_is_not_asked_stands_still(task: tuple[str, Engine]) -> None:
    _, engine = task

    def run(disturbed: bool) -> list[str]:
        with engine.dial() as sock:
            action = "ACT=1" if task[0] == "catcher" else "ACT=1,-1"
            engine.ask(sock, "ACT=RESET;ENV=0;SEED=1")
            seen = [engine.ask(sock, "ACT=RESET;ENV=1;SEED=2"), engine.ask(sock, f"{action};ENV=1")]
            if disturbed:
                for _ in range(20):
                    engine.ask(sock, f"{action};ENV=0")
                engine.ask(sock, "ACT=RESET;ENV=0")
            return [*seen, engine.ask(sock, f"{action};ENV=1"), engine.ask(sock, f"{action};ENV=1")]

    assert run(disturbed=True) == run(disturbed=False)


def play(
    engine: Engine, choose: Callable[[Rows], NDArray[Any]], steps: int
) -> tuple[list[float], list[int], set[bool]]:
    """Returns and lengths of the episodes that a hand-written policy plays, and how they ended."""
    env = engine.connect()
    env.seed(1)
    obs = env.reset()
    returns, lengths, truncated = [], [], set()
    for _ in range(steps):
        obs, _rewards, dones, infos = env.step(choose(obs))
        for info, done in zip(infos, dones, strict=True):
            if done:
                returns.append(info["episode"]["r"])
                lengths.append(info["episode"]["l"])
                truncated.add(info["TimeLimit.truncated"])
    env.close()
    return returns, lengths, truncated


def test_a_ball_that_is_steered_to_the_target_reaches_it(ball: Engine) -> None:
    """Towards where the target will be, against the ball's own speed: worth more than one target in an episode."""
    returns, lengths, truncated = play(
        ball, lambda obs: np.clip(4 * obs[:, 4:6] + 2 * obs[:, 6:8] - 3 * obs[:, 2:4], -1, 1), 300
    )
    assert len(returns) >= 2 * NUM_ENVS
    assert np.mean(returns) > 1.5
    assert max(lengths) == 150
    assert True in truncated


def test_a_ball_that_rolls_off_ends_its_episode(ball: Engine) -> None:
    returns, lengths, truncated = play(ball, lambda obs: np.tile(np.float32([1, 0]), (len(obs), 1)), 60)
    assert truncated == {False}
    assert max(lengths) < 60
    assert all(value < 1 for value in returns)


def test_rays_see_what_the_ball_runs_into(ball: Engine) -> None:
    """In each of many starts a pillar within reach is seen, and the ray's length is no less than the gap."""
    env = ball.connect()
    firsts = []
    for seed in range(0, 120, NUM_ENVS):
        env.seed(seed)
        firsts.append(env.reset())
    env.close()
    rays = np.concatenate(firsts)[:, 8:]
    assert ((rays > 0) & (rays <= 1)).all()
    # A start is 1.5 m or more from the middle of a pillar, whose half is 0.5 m, and 0.71 m at its corner.
    assert rays.min() * 3 > 1.5 - 0.72
    assert 0.05 < (rays < 1).mean() < 0.6


def test_a_cart_below_the_lower_ball_catches_it(catcher: Engine) -> None:
    def follow(obs: Rows) -> NDArray[Any]:
        side = 3 * obs[:, 2] - 0.2 * 8 * obs[:, 1]  # metres, and metres per second
        return (1 + np.sign(side) * (np.abs(side) > 0.1)).astype(np.int64)

    returns, lengths, _ = play(catcher, follow, 250)
    idle, short, ends = play(catcher, lambda obs: np.ones(len(obs), np.int64), 250)
    assert False in ends  # a third ball was missed
    assert max(short) < max(lengths) == 200
    assert np.mean(returns) > np.mean(idle) + 3
