"""AutoSave: what a run goes on from, and engines that cannot go on exactly."""

from __future__ import annotations

import dataclasses
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter
from stable_baselines3.common.vec_env import DummyVecEnv

from tests.harness.exactness import At, Broken, Drift, Liar, Seen, begun, broken, differ, env_of, learn, new, whole
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.calls.parameters import randomize
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system import errors
from ue_rl.training import Curriculum
from ue_rl.training.saving.autosave import AutoSave

pytestmark = pytest.mark.usefixtures("one_thread")


def test_parameters_and_lessons_go_on(tmp_path: Path) -> None:
    lessons = [
        {"name": name, "params": {"pull": pull},
         "completion_criteria": {"measure": "reward", "threshold": -30, "min_lesson_length": 2}}
        for name, pull in (("weak", [0.2, 0.8]), ("strong", [0.8, 1.6]), ("last", 2.0))
    ]  # fmt: skip

    def run(folder: str, *stops: int) -> Any:
        curriculum = Curriculum(lessons, seed=5)
        env = env_of()
        randomize(env.transport, {"pull": (0, 1)}, seed=2)
        curriculum.attach(env)
        more = [curriculum, *(At(stop, broken) for stop in stops)]
        model = learn("ppo", env, tmp_path / folder, callbacks=more, parts={"curriculum": curriculum})
        return model, curriculum.state(), curriculum.generators()

    whole, *states = run("whole")
    assert states[0][""]["lesson"] == 2
    for stop in (20, 55, 56, 90, 115):
        run("parts", stop)
    last, *after = run("parts")
    assert differ(last, whole) == []
    assert after == states


def test_the_values_of_the_present_episodes_are_known_after_a_resume(tmp_path: Path) -> None:
    def part(stop: int) -> tuple[Any, Any]:
        env = env_of()
        drawing = randomize(env.transport, {"pull": (0, 1)}, seed=2)
        assert drawing is not None
        autosave, model = begun("ppo", env, tmp_path, signals=False, lock=False)
        first = {name: dict(values) for name, values in drawing.values.items()}
        with pytest.raises(Broken):
            model.learn(144, callback=[autosave, At(stop, broken)])
        autosave.rescue()
        return first, drawing.values

    before, last = part(25)
    assert before == {0: {}, 1: {}, 2: {}}
    assert part(50)[0] == last


def test_learning_goes_on_in_other_ways(tmp_path: Path) -> None:
    """reset_num_timesteps=False counts from where the run is; a second learn() in one process goes on, too."""
    learn("a2c", env_of("a2c"), tmp_path, total=45)
    env = env_of("a2c")
    autosave = AutoSave(tmp_path, signals=False)
    model = autosave.resume(A2C, env)
    assert model is not None
    assert model.num_timesteps == 45
    model.learn(15, callback=autosave, reset_num_timesteps=False)
    assert model.num_timesteps == 60
    model.learn(15, callback=autosave, reset_num_timesteps=False)
    assert autosave.last is not None
    assert (model.num_timesteps, autosave.last.env_steps) == (75, 75)
    again = AutoSave(tmp_path, signals=False).resume(A2C, env_of("a2c"))
    assert again is not None
    again.learn(45, callback=AutoSave(tmp_path / "other", signals=False))
    assert again.num_timesteps >= 45


@pytest.mark.parametrize("name", ["ppo", pytest.param("sac", marks=pytest.mark.exhaustive)])
def test_a_run_that_was_complete_is_prolonged(tmp_path: Path, name: str) -> None:
    learn(name, env_of(name), tmp_path / "parts", total=96)
    last = learn(name, env_of(name), tmp_path / "parts", total=144)
    assert last.num_timesteps == 144
    assert differ(last, whole(name)) == []


class Table(BaseCallback, KVWriter):
    """SB3's rows, without the times."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []

    def _on_training_start(self) -> None:
        self.model.logger.output_formats[:] = [self]

    def _on_step(self) -> bool:
        return True

    def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
        left_out = ("time/fps", "time/time_elapsed", "time/iterations")
        self.rows.append({name: value for name, value in key_values.items() if name not in left_out})

    def close(self) -> None:
        pass


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_row_that_was_begun_before_the_stop_is_whole(tmp_path: Path, name: str) -> None:
    whole, parts = Table(), Table()
    learn(name, env_of(name), tmp_path / "whole", callbacks=[whole])
    learn(name, env_of(name), tmp_path / "parts", callbacks=[At(75, broken)])
    learn(name, env_of(name), tmp_path / "parts", callbacks=[parts])
    assert any("train/loss" in row for row in whole.rows)
    assert parts.rows == whole.rows[-len(parts.rows) :]


def test_saving_changes_nothing(tmp_path: Path) -> None:
    """With a checkpoint in nearly every step, in mid-rollout too."""
    seldom = learn("ppo_normalized", env_of("ppo_normalized"), tmp_path / "seldom", total=96)
    often = learn("ppo_normalized", env_of("ppo_normalized"), tmp_path / "often", total=96, save_freq=9, keep=2)
    assert differ(seldom, often) == []
    kept = sorted(path.name for path in (tmp_path / "often" / "checkpoints").glob("0*"))
    assert len(kept) == 2
    assert kept[-1].endswith("_96_steps")
    assert int(kept[-1][:4]) >= 6


def test_a_killed_process_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    """Nothing is saved at the end, and the newest checkpoint is broken besides."""
    autosave, model = begun("ppo", env_of(), tmp_path / "parts", save_freq=30, signals=False, lock=False)
    with pytest.raises(Broken):
        model.learn(144, callback=[autosave, At(100, broken)])
    assert autosave.last is not None
    (autosave.last.path / "state.pkl").write_bytes(b"")
    assert differ(learn("ppo", env_of(), tmp_path / "parts"), whole("ppo")) == []


# -- engines that cannot


class Seedless(MemoryTransport):
    """An engine that takes no seeds."""

    def _open(self) -> EnvSpec:
        spec = super()._open()
        return dataclasses.replace(spec, features=spec.features - {"SEED"})


class Grudge(Drift):
    """Its rewards depend on what was before the present episode; its observations do not show it."""

    seen = 0

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        self.seen += 1
        return obs, reward - self.seen, *rest


GAMES = {"liar": Liar, "grudge": Grudge}


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("seedless", "the engine takes no seeds"),
        ("liar", "the engine is not deterministic"),
        ("grudge", "led to other rewards: the engine is not deterministic, or remembers earlier episodes"),
    ],
)
def test_an_engine_that_cannot_go_on_exactly(
    tmp_path: Path, engine: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    def env() -> UnrealVecEnv:
        return env_of(transport=Seedless) if engine == "seedless" else env_of(game=GAMES[engine])

    learn("ppo", env(), tmp_path, callbacks=[At(120, broken)])
    seen = Seen()
    caplog.clear()
    assert learn("ppo", env(), tmp_path, callbacks=[seen]).num_timesteps == 144
    assert sum(why in record.message for record in caplog.records) == 1
    again, after = seen.infos[:8], seen.infos[8]  # 96 env-steps are those of the rollout's start
    assert not any("engine_lost" in info for infos in again for info in infos)
    for info in after:
        assert why in info["engine_lost"]
        assert "episode" not in info
        assert info["TimeLimit.truncated"]
    np.testing.assert_array_equal(after[0]["terminal_observation"].shape, (3,))
    assert not any("engine_lost" in info for infos in seen.infos[9:] for info in infos)


def test_other_numbers_of_envs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    learn("ppo_normalized", env_of("ppo"), tmp_path / "on", callbacks=[At(25, broken)])
    model = learn("ppo_normalized", env_of("ppo", num_envs=2), tmp_path / "on", total=80)
    assert model.num_timesteps >= 80
    assert "not exact" in caplog.text
    learn("sac", env_of("sac"), tmp_path / "off", callbacks=[At(9, broken)])
    with pytest.raises(errors.ConfigurationError, match="as many envs as it began with"):
        learn("sac", env_of("sac", num_envs=2), tmp_path / "off")


def test_a_policy_that_acts_differently_begins_fresh_episodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    learn("ppo", env_of(), tmp_path, callbacks=[At(75, broken)])
    env = env_of()
    autosave = AutoSave(tmp_path, signals=False)
    model = autosave.resume(PPO, env)
    assert model is not None
    with torch.no_grad():
        for weight in model.policy.parameters():
            weight.add_(0.5)
    seen = Seen()
    model.learn(144, callback=[autosave, seen])
    assert "the policy acts differently than before" in caplog.text
    assert [["engine_lost" in info for info in infos] for infos in seen.infos[:2]] == [[True] * 3, [False] * 3]


def test_envs_of_other_kinds_are_saved_as_well(tmp_path: Path) -> None:
    env = DummyVecEnv([Drift])
    autosave = AutoSave(tmp_path, signals=False)
    assert autosave.resume(PPO, env) is None
    new("ppo", env).learn(64, callback=autosave)
    model = AutoSave(tmp_path, signals=False).resume(PPO, DummyVecEnv([Drift]))
    assert model is not None
    assert model.num_timesteps == 64
    assert not autosave.last.facts["exact"]  # type: ignore[union-attr]


def test_a_run_without_resume_keeps_what_it_can(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first episodes began before AutoSave knew of the env."""
    env = env_of()
    autosave = AutoSave(tmp_path, signals=False, lock=False)
    with pytest.raises(Broken):
        new("ppo", env).learn(144, callback=[autosave, At(6, broken)])
    autosave.rescue()
    caplog.set_level(logging.WARNING)
    assert learn("ppo", env_of(), tmp_path).num_timesteps == 144
    assert "began without a seed" in caplog.text


def older(folder: Path) -> None:
    """Makes a checkpoint one of before its state had its present form."""
    path = folder / "state.pkl"
    path.write_bytes(pickle.dumps({**pickle.loads(path.read_bytes()), "format": 1}))


def test_a_checkpoint_whose_state_has_another_form_is_read_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learn("ppo", env_of(), tmp_path, callbacks=[At(50, broken)], extra=older)
    caplog.set_level(logging.WARNING)
    assert learn("ppo", env_of(), tmp_path).num_timesteps >= 144
    assert "was saved by another version of this library" in caplog.text


def test_steps_that_are_answered_from_the_journal_are_not_saved_again(tmp_path: Path) -> None:
    """A checkpoint of fewer env-steps than the one that was resumed would be the newest."""
    for _ in range(2):  # the second one resumes, and ends before it has passed the first one's end
        autosave, model = begun("ppo", env_of(), tmp_path, signals=False, lock=False, save_freq=1)
        with pytest.raises(Broken):
            model.learn(144, callback=[autosave, At(3, broken)] if autosave.resumed else [autosave, At(6, broken)])
        autosave.rescue()
        steps = [checkpoint.env_steps for checkpoint in reversed(list(autosave.store.newest_first()))]
        assert steps == sorted(steps)
