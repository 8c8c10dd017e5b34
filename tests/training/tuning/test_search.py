"""A search: its trials are processes that none outlives, and none of them is lost. The trials here only pretend."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
from optuna.trial import TrialState

from ue_rl.system.errors import ConfigurationError, UeRlError
from ue_rl.training.config import read_config, resolve
from ue_rl.training.tuning import search as searching
from ue_rl.training.tuning.pictures import importances
from ue_rl.training.tuning.search import BEST, Search, check, created, existing, resumed

FAKE = Path(__file__).with_name("fake_trial.py")


@pytest.fixture(autouse=True)
def _no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "trial_command", lambda config: [sys.executable, str(FAKE), str(config)])


def made(tmp_path: Path, **given: Any) -> tuple[Any, Path]:
    options = resolve({"timesteps": 1000, "log_dir": str(tmp_path), **given}, None)
    return options, created(options, False)


def pretending(folder: Path) -> list[psutil.Process]:
    """The trials of a search that run."""
    return [each for each in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(each.info["cmdline"] or ())]


def test_a_search_finds_writes_and_draws(tmp_path: Path) -> None:
    options, folder = made(tmp_path, hyperparameters={"gamma": 0.9})
    said: list[str] = []
    search = Search(options, folder, jobs=2, tell=said.append)
    search.run(12)
    trials = search.study.trials
    assert search.done == len(trials) == 12
    assert trials[0].params == {}
    assert search.unchanged == pytest.approx(10.0)
    best = search.best
    assert best is not None
    assert best.value == max(trial.value for trial in trials if trial.state is TrialState.COMPLETE)
    assert best.value >= 10.0
    written = resolve({}, folder / BEST)
    assert written.hyperparameters == best.user_attrs["hyperparameters"]
    assert written.hyperparameters["gamma"] == 0.9
    assert (written.run_id, written.log_dir, written.timesteps) == (None, str(tmp_path), 1000)
    for name in ("history.png", "importance.png"):
        assert (folder / name).read_bytes()[:4] == b"\x89PNG"
    assert sum(importances(search.study).values()) == pytest.approx(1.0)
    assert pretending(folder) == []
    assert len(said) == 12


def test_a_trial_that_falls_behind_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter(
        [{"learning_rate": 1e-3 * rank} for rank in (1, 2, 3, 4)] + [{"learning_rate": 1e-5, "batch_size": 15}]
    )
    monkeypatch.setattr(searching, "suggest", lambda trial, o: next(found))
    options, folder = made(tmp_path)
    said: list[str] = []
    search = Search(options, folder, tell=said.append)
    search.run(6)
    last = search.study.trials[-1]
    assert last.state is TrialState.PRUNED
    assert last.intermediate_values[250] < 0.1
    assert "pruned at env-step" in said[-1]
    assert pretending(folder) == []


def test_a_search_that_is_killed_loses_no_trial(tmp_path: Path) -> None:
    code = (
        "import sys; from ue_rl.training.tuning import search; from ue_rl.training.config import resolve\n"
        f"search.trial_command = lambda config: [sys.executable, {str(FAKE)!r}, str(config)]\n"
        f"options = resolve(dict(timesteps=1000, seed=99, log_dir={str(tmp_path)!r}, run_id='x'), None)\n"
        "search.Search(options, search.created(options, False), jobs=2).run(4)"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    folder = tmp_path / "x"
    while len(list(folder.glob("trials/*/episodes.csv"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    assert len(pretending(folder)) >= 2
    process.kill()
    process.wait()
    while pretending(folder):  # the keepers end them
        time.sleep(0.05)
    options = resumed({}, existing(tmp_path, None))
    options.seed = 1
    search = Search(options, folder, jobs=2)
    before = search.study.trials
    assert [trial.state for trial in before] == [TrialState.RUNNING] * 2
    search.run(4)
    trials = search.study.trials
    assert search.done == 4
    assert [trial.state for trial in trials[:2]] == [TrialState.FAIL] * 2
    again = {trial.user_attrs["again"]: trial for trial in trials if "again" in trial.user_attrs}
    assert sorted(again) == [0, 1]
    assert [again[number].params for number in (0, 1)] == [trial.params for trial in before]
    assert search.unchanged == pytest.approx(10.0)
    assert len(trials) == 6
    assert all(trial.state.is_finished() for trial in trials)


def test_a_search_that_goes_on_draws_other_trials(tmp_path: Path) -> None:
    options, folder = made(tmp_path, seed=5)
    Search(options, folder, jobs=2, sampler="random", pruner="none").run(2)
    search = Search(resumed({}, folder), folder)  # as it was begun
    assert isinstance(search.study.sampler, optuna.samplers.RandomSampler)
    assert isinstance(search.study.pruner, optuna.pruners.NopPruner)
    assert search.study.user_attrs["jobs"] == 2
    search.run(4)
    rates = [trial.params["learning_rate"] for trial in search.study.trials[1:]]
    assert len(set(rates)) == 3


def test_a_signal_keeps_the_trials_that_run(tmp_path: Path) -> None:
    options, folder = made(tmp_path, seed=99)
    search = Search(options, folder, jobs=2, tell=lambda text: None)
    looks = iter(range(1_000_000))

    def look(running: Any) -> None:
        if next(looks) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    search._look_at = look  # type: ignore[method-assign]
    search.run(4, signalled=lambda text: None)
    assert str(search.stopped) == "stopped by SIGTERM"
    assert pretending(folder) == []
    states = [trial.state for trial in search.study.trials]
    assert states == [TrialState.FAIL] * 2 + [TrialState.WAITING] * 2
    assert search.done == 0


def test_a_trial_that_somebody_kills_is_begun_again_and_one_that_fails_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter([13, 13, 13, 13, 14])
    monkeypatch.setattr(searching, "suggest", lambda trial, o: {"batch_size": next(sizes)})
    options, folder = made(tmp_path)
    search = Search(options, folder, tell=lambda text: None)
    search.run(3)
    states = [trial.state for trial in search.study.trials]
    assert states == [TrialState.COMPLETE] + [TrialState.FAIL] * 5
    assert search.done == 3, "unchanged, the one that was killed four times, the one that failed"


def test_options_that_do_not_work_end_the_search_with_what_was_printed(tmp_path: Path) -> None:
    options, folder = made(tmp_path, hyperparameters={"batch_size": 14})
    with pytest.raises(UeRlError, match=r"(?s)as its options are.*no such batch"):
        Search(options, folder, tell=lambda text: None).run(3)


def test_a_search_that_goes_on_keeps_what_its_trials_share(tmp_path: Path) -> None:
    options, folder = made(tmp_path, run_id="x")
    Search(options, folder, tell=lambda text: None).run(1)
    assert resumed({"timeout": 5.0}, folder).timeout == 5.0
    with pytest.raises(ConfigurationError, match="timesteps"):
        resumed({"timesteps": 9}, folder)
    with pytest.raises(ConfigurationError, match="exists already"):
        created(options, False)
    assert read_config(folder / "run.yaml")["timesteps"] == 1000
    assert list(created(options, True).iterdir()) == []
    with pytest.raises(ConfigurationError, match="no search"):
        existing(tmp_path, "y")
    (tmp_path / "z").mkdir()
    options.run_id = "z"
    with pytest.raises(ConfigurationError, match="something else"):
        created(options, True)


def test_what_cannot_be_searched_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="backend"):
        check(resolve({"backend": "rllib"}, None), 1)
    running = resolve({"url": "127.0.0.1"}, None)
    check(running, 1)
    with pytest.raises(ConfigurationError, match="jobs"):
        check(running, 2)
    for given in ({"seeds": 2}, {"trace": "a"}, {"metrics": "0"}, {"init_from": "a"}):
        with pytest.raises(ConfigurationError, match=next(iter(given))):
            check(resolve(given, None), 1)
    evaluated = resolve({"eval_freq": 9, "eval_url": "a"}, None)
    check(evaluated, 1)
    with pytest.raises(ConfigurationError, match="eval_url"):
        check(evaluated, 2)


@pytest.mark.learning
def test_two_trials_of_cartpole_side_by_side(tmp_path: Path) -> None:
    words = ["tune", "--n-trials", "2", "--jobs", "2", "--timesteps", "3000", "--run-id", "x", "--log-dir"]
    done = subprocess.run(
        [sys.executable, "-m", "ue_rl", *words, tmp_path], check=False, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert "the best of 2 trials" in done.stdout
    assert resolve({}, tmp_path / "x" / BEST).timesteps == 3000
