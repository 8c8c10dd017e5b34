"""Whatever ends a run, what was learnt is saved, said, and gone on from."""

from __future__ import annotations

import csv
import logging
import os
import re
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any, Protocol

import psutil
import pytest
from stable_baselines3 import PPO

from tests.harness.exactness import At, broken, env_of, learn
from tests.support.acting import at_step
from ue_rl.connections.engines.lifecycle import Change, LifeState
from ue_rl.system.errors import ConfigurationError
from ue_rl.training import TrainingReport, TrainOptions, train
from ue_rl.training.directory import RunDirectory
from ue_rl.training.saving.stopping import RunStopped
from ue_rl.training.symptoms import Symptoms
from ue_rl.training.watching import Watching

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="POSIX signals")
SMALL = {"n_steps": 16, "batch_size": 32, "n_epochs": 1}
LONG = {**SMALL, "n_steps": 32}


class Options(Protocol):
    """Makes the options of a short run with two envs."""

    def __call__(self, **given: Any) -> TrainOptions: ...


@pytest.fixture
def options(tmp_path: Path, cartpole: str) -> Options:
    """In the engine of this process; `url=None`: it starts one."""

    def make(**given: Any) -> TrainOptions:
        usual = {
            "timesteps": 128, "seed": 1, "log_dir": str(tmp_path), "run_id": "r", "export": False, "eval_episodes": 0,
            "hyperparameters": SMALL, "device": "cpu", "url": cartpole,
        }  # fmt: skip
        return TrainOptions(**{**usual, **given})

    return make


def kill(number: int) -> Callable[[], None]:
    """Sends this process the signal."""
    return lambda: os.kill(os.getpid(), number)


class Watched(TrainingReport):
    """Notes what is told."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.told: list[str] = []

    def changed(self, change: Change) -> None:
        self.changes.append(change)

    def said(self, text: str) -> None:
        self.told.append(text)

    def warned(self, text: str) -> None:
        self.told.append(text)

    def signalled(self, text: str) -> None:
        self.told.append(text)

    def processes(self) -> list[int]:
        """Of the engines, in the order in which they were started."""
        found = (re.search(r"process (\d+)", change.reason) for change in self.changes)
        return [int(match[1]) for match in found if match]


def episodes(run: RunDirectory) -> list[int]:
    with run.episodes.open() as file:
        return [int(row["env_steps"]) for row in csv.DictReader(file)]


def weights(run: RunDirectory) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in PPO.load(run.model, device="cpu").policy.parameters()]


def test_sigterm_saves_and_resume_goes_on(options: Options) -> None:
    report = Watched()
    outcome = train(options(callback=at_step(50, kill(signal.SIGTERM))), report=report)
    assert isinstance(outcome.stopped_by, RunStopped)
    assert outcome.stopped_by.exit_code == 143
    assert 50 <= outcome.env_steps < 128
    assert outcome.saved == outcome.env_steps
    assert outcome.run.model.exists()
    assert report.told == ["SIGTERM: stopping after this step, then saving"]
    whole = train(options(), resume=outcome.run)
    assert whole.stopped_by is None
    assert whole.env_steps == 128
    steps = episodes(whole.run)
    assert steps == sorted(steps)
    assert max(steps) > outcome.env_steps
    # and nothing was lost: the same weights as without the stop
    straight = train(options(run_id="straight"))
    assert weights(straight.run) == weights(whole.run)
    assert episodes(straight.run) == steps


def test_a_stop_in_the_first_episodes_loses_nothing_either(options: Options, caplog: pytest.LogCaptureFixture) -> None:
    stopped = train(options(timesteps=64, callback=at_step(6, kill(signal.SIGTERM))))
    assert stopped.env_steps < 16
    caplog.clear()
    whole = train(options(timesteps=64), resume=stopped.run)
    straight = train(options(timesteps=64, run_id="straight"))
    said = [record for record in caplog.records if record.name == "ue_rl.envs.journal"]
    assert [record.getMessage() for record in said if record.levelno >= logging.WARNING] == []
    assert weights(straight.run) == weights(whole.run)
    assert episodes(straight.run) == episodes(whole.run)


def test_a_report_that_fails_does_not_keep_a_run_from_being_saved(options: Options) -> None:
    class Gone(Watched):
        def ended(self) -> None:
            raise OSError("Input/output error")

    outcome = train(options(timesteps=64), report=Gone())
    assert outcome.saved == outcome.env_steps == 64


def test_a_disk_that_is_full_at_resume_is_one_sentence(options: Options) -> None:
    class Full(RunDirectory):
        def write_config(self, options: TrainOptions) -> None:
            raise OSError(28, "No space left on device")

    path = train(options(timesteps=32)).run.path
    with pytest.raises(ConfigurationError, match=r"r cannot be written .*No space left.* Free some space"):
        train(options(timesteps=64), resume=Full(path))
    assert train(options(timesteps=64), resume=RunDirectory(path)).env_steps == 64


def test_any_exception_saves_and_leaves_its_traceback_in_a_file(options: Options) -> None:
    def fail() -> None:
        raise MemoryError("no room for a rollout")

    outcome = train(options(callback=at_step(50, fail)))
    assert isinstance(outcome.stopped_by, MemoryError)
    assert outcome.saved is not None
    assert outcome.saved >= 50 - 32
    assert outcome.crash is not None
    assert "no room for a rollout" in outcome.crash.read_text()
    assert "in fail" in outcome.crash.read_text()
    assert train(options(), resume=outcome.run).env_steps == 128


def test_an_engine_that_is_killed_comes_back_and_is_counted(
    options: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    report = Watched()
    stop = at_step(50, lambda: os.kill(report.processes()[1], signal.SIGKILL))
    outcome = train(options(url=None, num_envs=2, num_engines=2, callback=stop), report=report)
    assert outcome.stopped_by is None
    assert outcome.env_steps == 128
    assert outcome.restarts == 1
    said = [record.getMessage() for record in caplog.records if record.name == "ue_rl.connections.engines"]
    lost = [text for text in said if "went away; its process was ended by signal 9" in text]
    assert [text.partition(";")[0] for text in lost] == ["engine 1: the engine went away"]
    mine = [change.after for change in report.changes if change.engine == 1 and not change.of_episodes]
    assert mine[mine.index(LifeState.CONNECTION_LOST) :][:5] == [
        LifeState.CONNECTION_LOST,
        LifeState.CLEANUP,
        LifeState.LAUNCHING,
        LifeState.LOADING,
        LifeState.CONNECTING,
    ]
    assert len((tmp_path / "r" / "engines" / "engine-1.log").read_text().split("start 2:")) == 2
    assert not [pid for pid in report.processes() if psutil.pid_exists(pid)]


def test_an_engine_that_hangs_does_not_hold_up_a_stop(options: Options) -> None:
    report = Watched()

    begun = 0.0

    def hang() -> None:
        nonlocal begun
        begun = time.monotonic()
        os.kill(report.processes()[0], signal.SIGSTOP)
        Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()

    own = {"url": None, "num_envs": 2}
    outcome = train(options(**own, timeout=60.0, callback=at_step(50, hang)), report=report)
    assert time.monotonic() - begun < 40
    assert isinstance(outcome.stopped_by, RunStopped)
    assert outcome.saved == outcome.env_steps >= 50
    assert not [pid for pid in report.processes() if psutil.pid_exists(pid)]
    assert train(options(), resume=outcome.run).env_steps == 128


def test_the_figures_after_a_resume_add_up(options: Options) -> None:
    """Steps of the rollout that was under way are the run's already: they are no work of the resumed one."""
    first = train(options(hyperparameters=LONG, timesteps=192, callback=at_step(100, kill(signal.SIGTERM))))
    assert first.env_steps % 64, "it is stopped in the middle of a rollout"
    shown: list[int] = []

    class Shown(Watched):
        def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:
            shown.append(env_steps)

    again = train(options(hyperparameters=LONG, timesteps=192), resume=first.run, report=Shown())
    assert (again.before, again.env_steps) == (first.env_steps, 192)
    assert shown[0] > first.env_steps, "the bar begins where the run was"


def test_a_run_that_is_stopped_among_recorded_steps_is_as_far_as_it_was(options: Options) -> None:
    long = partial(options, hyperparameters=LONG, timesteps=192)
    first = train(long(callback=at_step(100, kill(signal.SIGTERM))))
    again = train(long(callback=at_step(75, kill(signal.SIGTERM))), resume=first.run)
    assert isinstance(again.stopped_by, RunStopped)
    assert (again.before, again.env_steps, again.saved) == (first.env_steps,) * 3


def test_a_resumed_game_is_judged_by_what_the_engine_sends(tmp_path: Path) -> None:
    """A run goes on with recorded steps; meanwhile nothing comes from the engine, and nothing of it is constant."""
    told: list[str] = []
    long = {"n_steps": 32}
    learn("ppo", env_of(num_envs=1), tmp_path, callbacks=[At(31, broken)], arguments=long)
    watching = Watching(told.append, partial(Symptoms, long=29, enough=27))
    assert learn("ppo", env_of(num_envs=1), tmp_path, total=96, callbacks=[watching]).num_timesteps == 96
    assert not [text for text in told if "never changed" in text or "no episode" in text]
