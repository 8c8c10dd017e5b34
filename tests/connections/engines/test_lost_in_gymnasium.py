"""An engine is lost under an env of Gymnasium: what each autoreset mode says of it, and when."""

from __future__ import annotations

import numpy as np
import pytest

from tests.connections.engines.conftest import A, steps_of, two
from tests.harness.several import FragileSource, MaskedWalk, Walk
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.envs.gym_env import UnrealEnv
from ue_rl.envs.vector_env import UnrealVectorEnv
from ue_rl.system import errors


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
