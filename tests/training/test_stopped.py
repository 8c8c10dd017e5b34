"""Whatever ends a run, what was learnt is saved, said, and gone on from."""

from __future__ import annotations

import csv
import logging
import os
import re
import signal
import time
from pathlib import Path
from threading import Timer
from typing import Any

import psutil
import pytest
from stable_baselines3 import PPO

from ue_rl.connections.engines.lifecycle import Change, LifeState
from ue_rl.system.errors import ConfigurationError
from ue_rl.training import TrainingReport, TrainOptions, symptoms, train
from ue_rl.training.directory import RunDirectory
from ue_rl.training.saving.stopping import RunStopped
from ue_rl.training.watching import Watching

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="POSIX signals")
SMALL = {"n_steps": 32, "batch_size": 64, "n_epochs": 1}


def options(tmp_path: Path, **more: Any) -> TrainOptions:
    given: dict[str, Any] = {
        "timesteps": 512, "num_envs": 2, "seed": 1, "log_dir": str(tmp_path), "run_id": "r", "export": False,
        "eval_episodes": 0, "hyperparameters": SMALL, "device": "cpu",
    }  # fmt: skip
    return TrainOptions(**{**given, **more})


class Watched(TrainingReport):
    """Notes what is told, and does something at an env-step."""

    def __init__(self, at: int = 0, act: Any = None) -> None:
        self.changes: list[Change] = []
        self.told: list[str] = []
        self._at, self._act = at, act

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


def at_step(monkeypatch: pytest.MonkeyPatch, env_steps: int, act: Any) -> None:
    """Has `act` called once, by a callback, when so many env-steps are done."""
    done = []
    before = Watching._on_step

    def step(self: Watching) -> bool:
        if self.num_timesteps >= env_steps and not done:
            done.append(True)
            act()
        return before(self)

    monkeypatch.setattr(Watching, "_on_step", step)


def episodes(run: RunDirectory) -> list[int]:
    with run.episodes.open() as file:
        return [int(row["env_steps"]) for row in csv.DictReader(file)]


def weights(run: RunDirectory) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in PPO.load(run.model, device="cpu").policy.parameters()]


def test_sigterm_saves_and_resume_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_step(monkeypatch, 200, lambda: os.kill(os.getpid(), signal.SIGTERM))
    report = Watched()
    outcome = train(options(tmp_path), report=report)
    assert isinstance(outcome.stopped_by, RunStopped)
    assert outcome.stopped_by.exit_code == 143
    assert 200 <= outcome.env_steps < 512
    assert outcome.saved == outcome.env_steps
    assert outcome.run.model.exists()
    assert report.told == ["SIGTERM: stopping after this step, then saving"]
    whole = train(options(tmp_path), resume=RunDirectory(tmp_path / "r"))
    assert whole.stopped_by is None
    assert whole.env_steps == 512
    steps = episodes(whole.run)
    assert steps == sorted(steps)
    assert max(steps) > outcome.env_steps
    # and nothing was lost: the same weights as without the stop
    straight = train(options(tmp_path, run_id="straight"))
    assert weights(straight.run) == weights(whole.run)
    assert episodes(straight.run) == steps


def test_a_stop_in_the_first_episodes_loses_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_step(monkeypatch, 6, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert train(options(tmp_path, timesteps=128)).env_steps < 16
    journals: list[str] = []
    monkeypatch.setattr(logging.getLogger("ue_rl.envs.journal"), "warning", lambda text, *_: journals.append(text))
    whole = train(options(tmp_path, timesteps=128), resume=RunDirectory(tmp_path / "r"))
    straight = train(options(tmp_path, timesteps=128, run_id="straight"))
    assert journals == []
    assert weights(straight.run) == weights(whole.run)
    assert episodes(straight.run) == episodes(whole.run)


def test_a_report_that_fails_does_not_keep_a_run_from_being_saved(tmp_path: Path) -> None:
    class Gone(Watched):
        def ended(self) -> None:
            raise OSError("Input/output error")

    outcome = train(options(tmp_path, timesteps=128), report=Gone())
    assert outcome.saved == outcome.env_steps == 128


def test_a_disk_that_is_full_at_resume_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(options(tmp_path, timesteps=64))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunDirectory, "write_config", full)
    with pytest.raises(ConfigurationError, match=r"r cannot be written .*No space left.* Free some space"):
        train(options(tmp_path, timesteps=128), resume=RunDirectory(tmp_path / "r"))
    monkeypatch.undo()
    assert train(options(tmp_path, timesteps=128), resume=RunDirectory(tmp_path / "r")).env_steps == 128


def test_any_exception_saves_and_leaves_its_traceback_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise MemoryError("no room for a rollout")

    at_step(monkeypatch, 200, fail)
    outcome = train(options(tmp_path))
    assert isinstance(outcome.stopped_by, MemoryError)
    assert outcome.saved is not None
    assert outcome.saved >= 200 - 64
    assert outcome.crash is not None
    assert "no room for a rollout" in outcome.crash.read_text()
    assert "in fail" in outcome.crash.read_text()
    assert train(options(tmp_path), resume=RunDirectory(tmp_path / "r")).env_steps == 512


def test_an_engine_that_is_killed_comes_back_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    report = Watched()
    at_step(monkeypatch, 200, lambda: os.kill(report.processes()[1], signal.SIGKILL))
    outcome = train(options(tmp_path, num_engines=2, timesteps=2048), report=report)
    assert outcome.stopped_by is None
    assert outcome.env_steps == 2048
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


def test_an_engine_that_hangs_does_not_hold_up_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = Watched()

    def hang() -> None:
        os.kill(report.processes()[0], signal.SIGSTOP)
        Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()

    at_step(monkeypatch, 200, hang)
    begun = time.monotonic()
    outcome = train(options(tmp_path, timeout=60.0), report=report)
    assert time.monotonic() - begun < 40
    assert isinstance(outcome.stopped_by, RunStopped)
    assert outcome.saved == outcome.env_steps >= 200
    assert not [pid for pid in report.processes() if psutil.pid_exists(pid)]
    assert train(options(tmp_path), resume=RunDirectory(tmp_path / "r")).env_steps == 512


def test_the_figures_after_a_resume_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of the rollout that was under way are the run's already: they are no work of the resumed one."""
    small = {**SMALL, "n_steps": 128}
    at_step(monkeypatch, 400, lambda: os.kill(os.getpid(), signal.SIGTERM))
    first = train(options(tmp_path, hyperparameters=small, timesteps=768))
    assert first.env_steps % 256, "it is stopped in the middle of a rollout"
    shown: list[int] = []

    class Shown(Watched):
        def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:
            shown.append(env_steps)

    again = train(options(tmp_path, hyperparameters=small, timesteps=768), resume=first.run, report=Shown())
    assert (again.before, again.env_steps) == (first.env_steps, 768)
    assert shown[0] > first.env_steps, "the bar begins where the run was"


def test_a_run_that_is_stopped_among_recorded_steps_is_as_far_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {**SMALL, "n_steps": 128}
    with monkeypatch.context() as patch:
        at_step(patch, 400, lambda: os.kill(os.getpid(), signal.SIGTERM))
        first = train(options(tmp_path, hyperparameters=small, timesteps=768))
    at_step(monkeypatch, 300, lambda: os.kill(os.getpid(), signal.SIGTERM))
    again = train(options(tmp_path, hyperparameters=small, timesteps=768), resume=first.run)
    assert isinstance(again.stopped_by, RunStopped)
    assert (again.before, again.env_steps, again.saved) == (first.env_steps,) * 3


def test_a_resumed_game_is_judged_by_what_the_engine_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run goes on with recorded steps; meanwhile nothing comes from the engine, and nothing of it is constant."""
    monkeypatch.setattr(symptoms.Symptoms.__init__, "__kwdefaults__", {"long": 200, "enough": 100})
    given = options(tmp_path, hyperparameters={**SMALL, "n_steps": 512}, num_envs=1)
    at_step(monkeypatch, 400, lambda: os.kill(os.getpid(), signal.SIGTERM))
    first = train(given)
    report = Watched()
    again = train(given, resume=first.run, report=report)
    assert again.env_steps == 512
    assert not [text for text in report.told if "never changed" in text or "no episode" in text]
