"""AutoSave: what ends a run and what it goes on from; engines that cannot go on exactly; failures of saving itself."""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import KVWriter
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.harness.exactness import CASES, At, Broken, Drift, Liar, bridge, broken, differ, learn, new
from tests.harness.warm_cli import WarmCli
from ue_rl import errors
from ue_rl.calls.parameters import randomize
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.saving.autosave import AutoSave
from ue_rl.saving.lock import RunLock
from ue_rl.spec import EnvSpec
from ue_rl.system import durable
from ue_rl.testing import MemoryTransport
from ue_rl.training import Curriculum

needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="POSIX signals")


class Frail(MemoryTransport):
    """Fails as soon as it has been asked `lasts` times."""

    lasts = 1 << 60
    sends = 1 << 60  # likewise, but it is noticed when the actions are sent

    def _ask(self, actions: Any, resets: Any) -> None:
        self.sends -= 1
        if self.sends < 0:
            raise errors.EngineDisconnected("the engine is gone")
        super()._ask(actions, resets)

    def _collect(self) -> None:
        self.lasts -= 1
        if self.lasts < 0:
            raise errors.EngineDisconnected("the engine is gone")
        super()._collect()


class Seedless(MemoryTransport):
    """An engine that takes no seeds."""

    def _open(self) -> EnvSpec:
        spec = super()._open()
        return dataclasses.replace(spec, features=spec.features - {"SEED"})


pytestmark = pytest.mark.usefixtures("one_thread")


def env_of(name: str = "ppo", transport: Callable[..., Any] = MemoryTransport, **options: Any) -> UnrealVecEnv:
    return UnrealVecEnv(transport(bridge(CASES[name][1], **options)))


@functools.cache
def whole(name: str) -> BaseAlgorithm:
    """The model of a run that was never stopped."""
    with tempfile.TemporaryDirectory() as folder:
        return learn(name, env_of(name), Path(folder))


class Seen(BaseCallback):
    """Notes the infos of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.infos: list[list[dict[str, Any]]] = []

    def _on_step(self) -> bool:
        self.infos.append(self.locals["infos"])
        return True


# -- what ends a run


@needs_signals
def test_a_signal_while_it_is_saved_at_the_end(tmp_path: Path) -> None:
    """The save is finished first, and then learn() is left as it would have been."""
    saved: list[Any] = []

    def extra(folder: Path) -> None:
        if saved:
            os.kill(os.getpid(), signal.SIGINT)
        saved.append(folder)

    env = env_of()
    autosave = AutoSave(tmp_path, extra=extra, save_freq=1000)
    model = autosave.resume(PPO, env) or new("ppo", env)
    with pytest.raises(KeyboardInterrupt, match="stopped by Ctrl-C"):
        model.learn(96, callback=autosave)
    assert autosave.last is not None
    assert autosave.last.env_steps == 96
    with pytest.raises(Broken):  # of an exception, however often Ctrl-C is pressed meanwhile
        model.learn(96, callback=[autosave, At(50, broken)])
    assert "Broken" in autosave.last.facts["reason"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_zero_minutes_are_no_minutes(tmp_path: Path) -> None:
    learn("ppo", env_of(), tmp_path, save_interval=0)
    assert len(list((tmp_path / "checkpoints").glob("0*"))) == 2, "the first and the last"


@pytest.mark.parametrize(("what", "asked"), [*(("lasts", asked) for asked in (25, 26, 60, 61, 62, 63)), ("sends", 25)])
def test_an_engine_that_fails_in_a_step_or_in_a_reset(tmp_path: Path, what: str, asked: int) -> None:
    env = env_of("sac", Frail)
    autosave = AutoSave(tmp_path / "parts")
    model = autosave.resume(SAC, env) or new("sac", env)
    setattr(env.transport, what, asked)
    with pytest.raises(errors.EngineDisconnected):
        model.learn(288, callback=autosave)
    assert autosave.last is not None
    assert "the engine is gone" in autosave.last.facts["reason"]
    assert autosave.last.facts["exact"]
    assert differ(learn("sac", env_of("sac"), tmp_path / "parts"), whole("sac")) == []


@needs_signals
@pytest.mark.parametrize("where", ["rollout", "train"])
@pytest.mark.parametrize(
    ("number", "ends"), [("SIGTERM", SystemExit), ("SIGINT", KeyboardInterrupt), ("SIGHUP", SystemExit)]
)
def test_a_signal(tmp_path: Path, where: str, number: str, ends: type[BaseException]) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def kill() -> None:
        os.kill(os.getpid(), getattr(signal, number))

    env = env_of()
    autosave = AutoSave(tmp_path / "parts")
    model = new("ppo", env) if autosave.resume(PPO, env) is None else None
    assert model is not None
    callbacks: list[BaseCallback] = [autosave]
    if where == "rollout":
        callbacks.append(At(50, kill))
    else:
        train = model.train

        def killed() -> None:
            kill()
            train()

        model.train = killed  # type: ignore[method-assign]
    with pytest.raises(ends) as caught:
        model.learn(288, callback=callbacks)
    if ends is SystemExit:
        assert caught.value.code == 128 + getattr(signal, number)  # type: ignore[attr-defined]
    assert signal.getsignal(signal.SIGTERM) == before
    assert differ(learn("ppo", env_of(), tmp_path / "parts"), whole("ppo")) == []


class Failing(BaseCallback):
    """Raises when it is told of `when`."""

    def __init__(self, when: str) -> None:
        super().__init__()
        setattr(self, when, broken)

    def _on_step(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("when", "checkpoints"),
    [
        ("_on_training_start", 0), ("_on_rollout_start", 1), ("_on_step", 2), ("_on_rollout_end", 2),
        ("_on_training_end", 2),
    ],
)  # fmt: skip
def test_a_callback_that_fails_leaves_nothing_behind(tmp_path: Path, when: str, checkpoints: int) -> None:
    """Nobody else would tell AutoSave: the run is saved, and its signals and its lock are given back."""
    before = signal.getsignal(signal.SIGTERM)
    env, failing = env_of(), Failing(when)
    autosave = AutoSave(tmp_path)
    model = autosave.resume(PPO, env) or new("ppo", env)
    with pytest.raises(Broken):
        model.learn(96, callback=CallbackList([CallbackList([autosave, failing]), Seen()]))
    assert signal.getsignal(signal.SIGTERM) == before
    assert env.on_failure is None
    assert not any(name.startswith("on_") for name in vars(failing))
    assert len(list((tmp_path / "checkpoints").glob("0*"))) == checkpoints
    with RunLock(tmp_path) as lock:
        assert lock.held


@needs_signals
@pytest.mark.parametrize("what", ["signal", "callback", "engine", "end"])
def test_two_that_save_are_told_of_the_same_end(tmp_path: Path, what: str) -> None:
    """Each has what an exact resume needs, though they share the env's journal."""
    before = signal.getsignal(signal.SIGTERM)
    env = env_of("ppo", Frail)
    savers = [AutoSave(tmp_path / name, save_freq=1000) for name in ("one", "two")]
    ends: dict[str, Callable[[], object]] = {
        "signal": lambda: os.kill(os.getpid(), signal.SIGINT),
        "callback": broken,
        "engine": lambda: setattr(env.transport, "lasts", 3),
        "end": lambda: None,
    }
    model = savers[0].resume(PPO, env) or new("ppo", env)
    with ExitStack() as stack:
        if what != "end":
            stack.enter_context(pytest.raises((KeyboardInterrupt, Broken, errors.EngineDisconnected)))
        model.learn(96 if what == "end" else 288, callback=[savers[0], At(50, ends[what]), savers[1]])
    assert signal.getsignal(signal.SIGTERM) == before
    for name in ("one", "two"):
        found = AutoSave(tmp_path / name, signals=False).store.newest_first()
        assert [checkpoint.env_steps > 0 for checkpoint in found] == [True, False]
        assert differ(learn("ppo", env_of(), tmp_path / name), whole("ppo")) == []


SCRIPT = """
import sys
import torch
from ue_rl.testing import MemoryTransport
from tests.harness.exactness import *

torch.set_num_threads(1)
env = UnrealVecEnv(MemoryTransport(bridge()))
autosave = AutoSave(sys.argv[1])
model = autosave.resume(PPO, env) or new("ppo", env)
model.learn(288, callback=[autosave, At(150, lambda: 1 / 0)])
"""


def test_a_script_that_an_exception_ends_goes_on_in_another_process(tmp_path: Path, warm_cli: WarmCli) -> None:
    """Nobody catches it: the run is saved when Python exits."""
    ended = warm_cli.run_script(SCRIPT, str(tmp_path / "parts"), folder=tmp_path)
    assert ended.returncode == 1
    assert "ZeroDivisionError" in ended.stderr
    assert "the run is saved up to env-step 150; start it again to go on" in ended.stderr
    last = learn("ppo", env_of(), tmp_path / "parts")
    assert differ(last, whole("ppo")) == []
    saved = PPO.load(tmp_path / "parts" / "model.zip", device="cpu")
    assert differ(saved, last) == []


@pytest.mark.skipif(os.name != "posix", reason="what a shell sees of Ctrl-C")
def test_a_script_that_ctrl_c_ends_is_ended_by_it(tmp_path: Path) -> None:
    """Not with exit code 1, as after a mistake: Python gives that to kinds of KeyboardInterrupt."""
    text = SCRIPT.replace("1 / 0", "__import__('os').kill(__import__('os').getpid(), 2)")
    command = [sys.executable, "-c", text, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt: stopped by Ctrl-C")


FORKS = """
import os, sys
import torch
from ue_rl.testing import MemoryTransport
from tests.harness.exactness import *

torch.set_num_threads(1)

def save():
    autosave.save("mine")
    sys.exit(6)

def fork():
    for end, code in ((lambda: sys.exit(5), 5), (lambda: 1 / 0, 1), (save, 6), (None, 0)):
        child = os.fork()
        if not child:
            return end and end()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code

env = UnrealVecEnv(MemoryTransport(bridge()))
autosave = AutoSave(sys.argv[1], save_freq=1000)
model = autosave.resume(PPO, env) or new("ppo", env)
model.learn(288, callback=[autosave, At(150, fork)])
try:
    AutoSave(sys.argv[1]).resume(PPO, UnrealVecEnv(MemoryTransport(bridge())))
except Exception as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_forked_child_saves_nothing(tmp_path: Path, warm_cli: WarmCli) -> None:
    """It ends as a script does, by an exception, saves, or learns to the end itself: the run is its parent's."""
    ended = warm_cli.run_script(FORKS, str(tmp_path / "run"), folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("0*"))
    assert found == ["0001_0_steps", "0002_288_steps"]
    assert ended.stdout.count("is being written by pid") == 1
    assert "the run is saved" not in ended.stderr


def test_an_exception_in_train_takes_the_state_as_it_is(tmp_path: Path) -> None:
    env = env_of()
    autosave = AutoSave(tmp_path, signals=False)
    model = autosave.resume(PPO, env) or new("ppo", env)
    model.train = broken  # type: ignore[method-assign]
    with pytest.raises(Broken) as caught:
        model.learn(288, callback=autosave)
    del model.train
    saved = autosave.rescue(caught.value)
    assert saved is not None
    assert not saved.facts["exact"]
    assert autosave.rescue() is None, "once is enough"
    assert learn("ppo", env_of(), tmp_path).num_timesteps == 288


# -- what it goes on from


def test_parameters_and_lessons_go_on(tmp_path: Path) -> None:
    lessons = [
        {"name": name, "params": {"pull": pull},
         "completion_criteria": {"measure": "reward", "threshold": -30, "min_lesson_length": 4}}
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
    for stop in (40, 110, 111, 180, 230):
        run("parts", stop)
    last, *after = run("parts")
    assert differ(last, whole) == []
    assert after == states


def test_the_values_of_the_present_episodes_are_known_after_a_resume(tmp_path: Path) -> None:
    def part(stop: int) -> tuple[Any, Any]:
        env = env_of()
        drawing = randomize(env.transport, {"pull": (0, 1)}, seed=2)
        assert drawing is not None
        autosave = AutoSave(tmp_path, signals=False, lock=False)
        model = autosave.resume(PPO, env) or new("ppo", env)
        first = {name: dict(values) for name, values in drawing.values.items()}
        with pytest.raises(Broken):
            model.learn(288, callback=[autosave, At(stop, broken)])
        autosave.rescue()
        return first, drawing.values

    before, last = part(50)
    assert before == {0: {}, 1: {}, 2: {}}
    assert part(100)[0] == last


def test_learning_goes_on_in_other_ways(tmp_path: Path) -> None:
    """reset_num_timesteps=False counts from where the run is; a second learn() in one process goes on, too."""
    learn("a2c", env_of("a2c"), tmp_path, total=90)
    env = env_of("a2c")
    autosave = AutoSave(tmp_path, signals=False)
    model = autosave.resume(A2C, env)
    assert model is not None
    assert model.num_timesteps == 90
    model.learn(30, callback=autosave, reset_num_timesteps=False)
    assert model.num_timesteps == 120
    model.learn(30, callback=autosave, reset_num_timesteps=False)
    assert autosave.last is not None
    assert (model.num_timesteps, autosave.last.env_steps) == (150, 150)
    again = AutoSave(tmp_path, signals=False).resume(A2C, env_of("a2c"))
    assert again is not None
    again.learn(90, callback=AutoSave(tmp_path / "other", signals=False))
    assert again.num_timesteps >= 90


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_a_run_that_was_complete_is_prolonged(tmp_path: Path, name: str) -> None:
    learn(name, env_of(name), tmp_path / "parts", total=192)
    last = learn(name, env_of(name), tmp_path / "parts", total=288)
    assert last.num_timesteps == 288
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
    learn(name, env_of(name), tmp_path / "parts", callbacks=[At(150, broken)])
    learn(name, env_of(name), tmp_path / "parts", callbacks=[parts])
    assert any("train/loss" in row for row in whole.rows)
    assert parts.rows == whole.rows[-len(parts.rows) :]


def test_saving_changes_nothing(tmp_path: Path) -> None:
    """With a checkpoint in nearly every step, in mid-rollout too."""
    seldom = learn("ppo_normalized", env_of("ppo_normalized"), tmp_path / "seldom")
    often = learn("ppo_normalized", env_of("ppo_normalized"), tmp_path / "often", save_freq=9, keep=2)
    assert differ(seldom, often) == []
    kept = sorted(path.name for path in (tmp_path / "often" / "checkpoints").glob("0*"))
    assert len(kept) == 2
    assert kept[-1].endswith("_288_steps")
    assert int(kept[-1][:4]) > 12


def test_a_killed_process_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    """Nothing is saved at the end, and the newest checkpoint is broken besides."""
    env = env_of()
    autosave = AutoSave(tmp_path / "parts", save_freq=30, signals=False, lock=False)
    model = autosave.resume(PPO, env) or new("ppo", env)
    with pytest.raises(Broken):
        model.learn(288, callback=[autosave, At(200, broken)])
    assert autosave.last is not None
    (autosave.last.path / "state.pkl").write_bytes(b"")
    assert differ(learn("ppo", env_of(), tmp_path / "parts"), whole("ppo")) == []


# -- engines that cannot


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
        ("grudge", "led to other rewards"),
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
    assert learn("ppo", env(), tmp_path, callbacks=[seen]).num_timesteps == 288
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
    learn("ppo_normalized", env_of("ppo"), tmp_path / "on", callbacks=[At(150, broken)])
    model = learn("ppo_normalized", env_of("ppo", num_envs=2), tmp_path / "on", total=300)
    assert model.num_timesteps >= 300
    assert "not exact" in caplog.text
    learn("sac", env_of("sac"), tmp_path / "off", callbacks=[At(150, broken)])
    with pytest.raises(errors.ConfigurationError, match="as many envs as it began with"):
        learn("sac", env_of("sac", num_envs=2), tmp_path / "off")


def test_a_policy_that_acts_differently_begins_fresh_episodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    learn("ppo", env_of(), tmp_path, callbacks=[At(150, broken)])
    env = env_of()
    autosave = AutoSave(tmp_path, signals=False)
    model = autosave.resume(PPO, env)
    assert model is not None
    with torch.no_grad():
        for weight in model.policy.parameters():
            weight.add_(0.5)
    seen = Seen()
    model.learn(288, callback=[autosave, seen])
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


# -- statistics, files, hooks


def test_statistics_are_never_forgotten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    env = VecNormalize(env_of())
    autosave = AutoSave(tmp_path, signals=False)
    autosave.resume(PPO, env)
    new("ppo", env).learn(192, callback=autosave)
    bare, wrapped = env_of(), VecNormalize(env_of())
    for target in (bare, wrapped):
        model = AutoSave(tmp_path, signals=False, lock=False).resume(PPO, target)
        assert model is not None
        found = model.get_vec_normalize_env()
        assert found is not None
        np.testing.assert_array_equal(found.obs_rms.mean, env.obs_rms.mean)
        assert found.obs_rms.count == env.obs_rms.count
    assert "the env has no VecNormalize" in caplog.text
    assert {path.name for path in tmp_path.iterdir()} >= {"model.zip", "vecnormalize.pkl", "checkpoints"}


def test_a_save_that_fails_is_logged_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill() -> None:
        monkeypatch.setattr("ue_rl.saving.checkpoints.sync_file", full)

    model = learn("ppo", env_of(), tmp_path, callbacks=[At(50, fill)], save_freq=50)
    assert model.num_timesteps == 288
    assert caplog.text.count("not saved: ") == 3, "two at a rollout's start, one at the end"
    assert "No space left on device" in caplog.text
    monkeypatch.setattr("ue_rl.saving.checkpoints.sync_file", durable.sync_file)
    assert learn("ppo", env_of(), tmp_path).num_timesteps == 288


def test_weights_that_are_no_numbers_replace_no_good_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def spoil() -> None:
        with torch.no_grad():
            next(model.policy.parameters())[:] = torch.nan

    env = env_of("dqn")
    autosave = AutoSave(tmp_path, save_freq=30, keep=1, signals=False, lock=False)
    model = autosave.resume(DQN, env) or new("dqn", env)
    model.learn(288, callback=[autosave, At(150, spoil)])
    last = autosave.store.last
    assert last is not None
    assert last.env_steps < 150 + 30
    assert "learning has diverged" in caplog.text
    assert str(last) in caplog.text


def test_hooks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []

    def export(model: Any, path: Path, statistics: Any) -> None:
        path.write_text(type(statistics).__name__)
        raise errors.ExportError("not this one")

    options: dict[str, Any] = {
        "export": export, "after": told.append, "extra": lambda folder: (folder / "more.txt").write_text("more")
    }  # fmt: skip
    learn("ppo_normalized", env_of(), tmp_path, **options)
    assert [checkpoint.env_steps for checkpoint in told] == [0, 288]
    assert (told[-1].path / "more.txt").read_text() == "more"
    assert (told[-1].path / "model.onnx").read_text() == "VecNormalize"
    assert "not this one" in caplog.text
    assert not (tmp_path / "model.zip").exists(), "`after` does that instead"
    manifest = json.loads((told[-1].path / "manifest.json").read_text())
    assert (manifest["algorithm"], manifest["exact"], manifest["num_envs"]) == ("PPO", True, 3)


def test_what_is_refused(tmp_path: Path) -> None:
    learn("ppo", env_of(), tmp_path, total=96)
    autosave = AutoSave(tmp_path, signals=False)
    with pytest.raises(errors.ConfigurationError, match="another algorithm"):
        autosave.resume(A2C, env_of())
    autosave.rescue()
    with pytest.raises(errors.ConfigurationError, match="of another engine"):
        AutoSave(tmp_path, signals=False, lock=False).resume(PPO, env_of("dqn"))
    with RunLock(tmp_path), pytest.raises(errors.ConfigurationError, match="is being written by"):
        AutoSave(tmp_path, signals=False).resume(PPO, env_of())
    for path in (tmp_path / "checkpoints").rglob("model.zip"):
        path.unlink()
    with pytest.raises(errors.ConfigurationError, match="none of the checkpoints"):
        AutoSave(tmp_path, signals=False, lock=False).resume(PPO, env_of())


def test_a_run_without_resume_keeps_what_it_can(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first episodes began before AutoSave knew of the env."""
    env = env_of()
    autosave = AutoSave(tmp_path, signals=False, lock=False)
    with pytest.raises(Broken):
        new("ppo", env).learn(288, callback=[autosave, At(6, broken)])
    autosave.rescue()
    caplog.set_level(logging.WARNING)
    assert learn("ppo", env_of(), tmp_path).num_timesteps == 288
    assert "began without a seed" in caplog.text


def test_steps_that_are_answered_from_the_journal_are_not_saved_again(tmp_path: Path) -> None:
    """A checkpoint of fewer env-steps than the one that was resumed would be the newest."""
    for _ in range(2):  # the second one resumes, and ends before it has passed the first one's end
        env = env_of()
        autosave = AutoSave(tmp_path, signals=False, lock=False, save_freq=1)
        model = autosave.resume(PPO, env) or new("ppo", env)
        with pytest.raises(Broken):
            model.learn(288, callback=[autosave, At(3, broken)] if autosave.resumed else [autosave, At(6, broken)])
        autosave.rescue()
        steps = [checkpoint.env_steps for checkpoint in reversed(list(autosave.store.newest_first()))]
        assert steps == sorted(steps)
