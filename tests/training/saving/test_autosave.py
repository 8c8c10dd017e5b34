"""AutoSave: whatever ends a run, it is saved; statistics, files and hooks; and failures of saving itself."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.vec_env import VecNormalize

from tests.harness.exactness import At, Broken, Seen, begun, broken, differ, env_of, learn, new, whole
from tests.harness.warm_cli import WarmCli
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.system import errors
from ue_rl.training.saving.autosave import AutoSave
from ue_rl.training.saving.callbacks import WAITING
from ue_rl.training.saving.lock import RunLock

needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="POSIX signals")


class Frail(MemoryTransport):
    """Fails as soon as it has been asked `lasts` times."""

    lasts = 1 << 60
    sends = 1 << 60  # likewise, but it is noticed when the actions are sent

    def break_after(self, asked: int, what: str = "lasts") -> None:
        if what == "sends":
            self.sends = asked
        else:
            self.lasts = asked

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


pytestmark = pytest.mark.usefixtures("one_thread")


# -- what ends a run


@needs_signals
def test_a_signal_while_it_is_saved_at_the_end(tmp_path: Path) -> None:
    """The save is finished first, and then learn() is left as it would have been."""
    saved: list[Any] = []

    def extra(folder: Path) -> None:
        if saved:
            os.kill(os.getpid(), signal.SIGINT)
        saved.append(folder)

    autosave, model = begun("ppo", env_of(), tmp_path, extra=extra, save_freq=1000)
    with pytest.raises(KeyboardInterrupt, match="stopped by Ctrl-C"):
        model.learn(48, callback=autosave)
    assert autosave.last is not None
    assert autosave.last.env_steps == 48
    with pytest.raises(Broken):  # of an exception, however often Ctrl-C is pressed meanwhile
        model.learn(48, callback=[autosave, At(25, broken)])
    assert "Broken" in autosave.last.facts["reason"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_zero_minutes_are_no_minutes(tmp_path: Path) -> None:
    learn("ppo", env_of(), tmp_path, total=96, save_interval=0)
    assert len(list((tmp_path / "checkpoints").glob("0*"))) == 2, "the first and the last"


@pytest.mark.parametrize(
    ("what", "asked"),
    [
        ("sends", 25),
        *(("lasts", asked) for asked in (25, 33)),  # a step, a reset
        *(pytest.param("lasts", asked, marks=pytest.mark.exhaustive) for asked in (26, 28, 31, 32)),
    ],
)
def test_an_engine_that_fails_in_a_step_or_in_a_reset(tmp_path: Path, what: str, asked: int) -> None:
    env = env_of("dqn", Frail)
    autosave, model = begun("dqn", env, tmp_path / "parts")
    cast(Frail, env.transport).break_after(asked, what)
    with pytest.raises(errors.EngineDisconnected):
        model.learn(96, callback=autosave)
    assert autosave.last is not None
    assert "the engine is gone" in autosave.last.facts["reason"]
    assert autosave.last.facts["exact"]
    assert differ(learn("dqn", env_of("dqn"), tmp_path / "parts", total=96), whole("dqn", 96)) == []


@needs_signals
@pytest.mark.parametrize(
    ("number", "ends", "where"),
    [
        ("SIGTERM", SystemExit, "rollout"), ("SIGINT", KeyboardInterrupt, "train"), ("SIGHUP", SystemExit, "rollout"),
        *(
            pytest.param(number, ends, where, marks=pytest.mark.exhaustive)
            for number, ends, where in (
                ("SIGTERM", SystemExit, "train"), ("SIGINT", KeyboardInterrupt, "rollout"),
                ("SIGHUP", SystemExit, "train"),
            )
        ),
    ],
)  # fmt: skip
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
        callbacks.append(At(25, kill))
    else:
        learner: BaseAlgorithm = model
        train = learner.train

        def killed() -> None:
            kill()
            train()

        learner.train = killed  # type: ignore[method-assign]
    with pytest.raises(ends) as caught:
        model.learn(144, callback=callbacks)
    assert type(caught.value) is ends, "a kind of KeyboardInterrupt would end a script with exit code 1"
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
    autosave, model = begun("ppo", env, tmp_path)
    with pytest.raises(Broken):
        model.learn(48, callback=CallbackList([CallbackList([autosave, failing]), Seen()]))
    assert signal.getsignal(signal.SIGTERM) == before
    assert not vars(env).keys() & {"step_async", "step_wait", "ask_some", "take_answers"}
    assert not any(name.startswith("on_") for name in vars(failing))
    assert len(list((tmp_path / "checkpoints").glob("0*"))) == checkpoints
    with RunLock(tmp_path) as lock:
        assert lock.held


@needs_signals
def test_of_two_that_save_one_may_take_longer_than_a_step(tmp_path: Path) -> None:
    """Else the other one's signals, which are given back behind it, would break it off."""
    savers = [AutoSave(tmp_path / "one", extra=lambda folder: time.sleep(2 * WAITING)), AutoSave(tmp_path / "two")]
    stop = At(25, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        new("ppo", env_of()).learn(144, callback=[savers[0], stop, savers[1]])
    assert [each.last is not None and each.last.env_steps for each in savers] == [27, 27]


@needs_signals
@pytest.mark.parametrize(
    "what", ["signal", "engine", *(pytest.param(what, marks=pytest.mark.exhaustive) for what in ("callback", "end"))]
)
def test_two_that_save_are_told_of_the_same_end(tmp_path: Path, what: str) -> None:
    """Each has what an exact resume needs, though they share the env's journal."""
    before = signal.getsignal(signal.SIGTERM)
    env = env_of("ppo", Frail)
    savers = [AutoSave(tmp_path / name, save_freq=1000) for name in ("one", "two")]
    ends: dict[str, Callable[[], object]] = {
        "signal": lambda: os.kill(os.getpid(), signal.SIGINT),
        "callback": broken,
        "engine": lambda: cast(Frail, env.transport).break_after(3),
        "end": lambda: None,
    }
    model = savers[0].resume(PPO, env) or new("ppo", env)
    with ExitStack() as stack:
        if what != "end":
            stack.enter_context(pytest.raises((KeyboardInterrupt, Broken, errors.EngineDisconnected)))
        model.learn(48 if what == "end" else 144, callback=[savers[0], At(25, ends[what]), savers[1]])
    assert signal.getsignal(signal.SIGTERM) == before
    for name in ("one", "two"):
        found = AutoSave(tmp_path / name, signals=False).store.newest_first()
        assert [checkpoint.env_steps > 0 for checkpoint in found] == [True, False]
        assert differ(learn("ppo", env_of(), tmp_path / name), whole("ppo")) == []


SCRIPT = """
import sys
import torch
from tests.harness.exactness import *

torch.set_num_threads(1)
autosave, model = begun("ppo", env_of(), sys.argv[1])
model.learn(144, callback=[autosave, At(75, lambda: 1 / 0)])
"""


def test_a_script_that_an_exception_ends_goes_on_in_another_process(tmp_path: Path, warm_cli: WarmCli) -> None:
    """Nobody catches it: the run is saved when Python exits."""
    ended = warm_cli.run_script(SCRIPT, str(tmp_path / "parts"), folder=tmp_path)
    assert ended.returncode == 1
    assert "ZeroDivisionError" in ended.stderr
    assert "the run is saved up to env-step 75; start it again to go on" in ended.stderr
    last = learn("ppo", env_of(), tmp_path / "parts")
    assert differ(last, whole("ppo")) == []
    saved = PPO.load(tmp_path / "parts" / "model.zip", device="cpu")
    assert differ(saved, last) == []


@pytest.mark.exhaustive
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

autosave, model = begun("ppo", env_of(), sys.argv[1], save_freq=1000)
model.learn(144, callback=[autosave, At(75, fork)])
try:
    AutoSave(sys.argv[1]).resume(PPO, env_of())
except Exception as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_forked_child_saves_nothing(tmp_path: Path, warm_cli: WarmCli) -> None:
    """It ends as a script does, by an exception, saves, or learns to the end itself: the run is its parent's."""
    ended = warm_cli.run_script(FORKS, str(tmp_path / "run"), folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("0*"))
    assert found == ["0001_0_steps", "0002_144_steps"]
    assert ended.stdout.count("is being written by pid") == 1
    assert "the run is saved" not in ended.stderr


def test_an_exception_in_train_takes_the_state_as_it_is(tmp_path: Path) -> None:
    autosave, resumed = begun("ppo", env_of(), tmp_path, signals=False)
    model: BaseAlgorithm = resumed
    model.train = broken  # type: ignore[method-assign]
    with pytest.raises(Broken) as caught:
        model.learn(144, callback=autosave)
    del model.train
    saved = autosave.rescue(caught.value)
    assert saved is not None
    assert not saved.facts["exact"]
    assert autosave.rescue() is None, "once is enough"
    assert learn("ppo", env_of(), tmp_path).num_timesteps == 144


# -- statistics, files, hooks


def test_statistics_are_never_forgotten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    env = VecNormalize(env_of())
    autosave = AutoSave(tmp_path, signals=False)
    autosave.resume(PPO, env)
    new("ppo", env).learn(96, callback=autosave)
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


def test_a_save_that_fails_is_logged_and_the_run_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = {"full": False}

    def write(folder: Path) -> None:
        if disk["full"]:
            raise OSError(errno.ENOSPC, "No space left on device")

    def fill() -> None:
        disk["full"] = True

    model = learn("ppo", env_of(), tmp_path, callbacks=[At(25, fill)], save_freq=25, extra=write)
    assert model.num_timesteps == 144
    assert caplog.text.count("not saved: ") == 3, "two at a rollout's start, one at the end"
    assert "No space left on device" in caplog.text
    assert learn("ppo", env_of(), tmp_path).num_timesteps == 144


def test_weights_that_are_no_numbers_replace_no_good_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def spoil() -> None:
        with torch.no_grad():
            next(model.policy.parameters())[:] = torch.nan

    autosave, model = begun("dqn", env_of("dqn"), tmp_path, save_freq=30, keep=1, signals=False, lock=False)
    model.learn(144, callback=[autosave, At(75, spoil)])
    last = autosave.store.last
    assert last is not None
    assert last.env_steps < 75 + 30
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
    assert [checkpoint.env_steps for checkpoint in told] == [0, 144]
    assert (told[-1].path / "more.txt").read_text() == "more"
    assert (told[-1].path / "model.onnx").read_text() == "VecNormalize"
    assert "not this one" in caplog.text
    assert not (tmp_path / "model.zip").exists(), "`after` does that instead"
    manifest = json.loads((told[-1].path / "manifest.json").read_text())
    assert (manifest["algorithm"], manifest["exact"], manifest["num_envs"]) == ("PPO", True, 3)


def test_what_is_refused(tmp_path: Path) -> None:
    learn("ppo", env_of(), tmp_path, total=48)
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
