"""Agents learn through the bridge, over TCP, with the engine in another process; the samples' own runs."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from ue_rl.bridges import run_in_process
from ue_rl.connections.dialling import open_transport
from ue_rl.envs.agents import ActiveRolloutBuffer, ActiveRows, GroupVecEnv

FOLDER = Path(__file__).resolve().parents[3] / "samples" / "agents"


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the samples, from which they import each other; the engine's process finds it, too."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield FOLDER
    for name in ("cover", "sumo", "train_sumo"):
        sys.modules.pop(name, None)


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.learning
@pytest.mark.timeout(300)
def test_two_agents_learn_to_cover_two_places(samples: Path) -> None:
    with run_in_process(functools.partial(load("cover").CoverBridge, 16)) as engine:
        env = GroupVecEnv(open_transport(engine.url))
        env.seed(0)
        model = PPO(
            "MlpPolicy",
            env,
            n_steps=64,
            batch_size=512,
            n_epochs=8,
            gamma=0.95,
            learning_rate=2e-3,
            seed=0,
            device="cpu",
            rollout_buffer_class=ActiveRolloutBuffer,
        )
        model.learn(60_000, callback=ActiveRows())
        env.seed(1000)
        mean, _ = evaluate_policy(model, env, n_eval_episodes=200)
        env.close()
    assert mean >= 4.7  # covering both places at once is worth 5


@pytest.mark.learning
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_self_play_beats_its_own_past(samples: Path, tmp_path: Path) -> None:
    train = load("train_sumo")
    # half of the sample's run, with a pool that grows twice as fast: as many policies, and the same to be shown
    train.OPTIONS = replace(train.OPTIONS, save_steps=10_000, swap_steps=2_500, team_change=20_000)
    result = train.run(tmp_path, timesteps=60_000, seed=0)
    assert result.against_first >= 0.9
    assert result.against_middle >= 0.6
    assert result.elo >= 1500
    assert len(list((tmp_path / "opponents").glob("*.zip"))) >= 7
