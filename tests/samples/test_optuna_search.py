"""The search that `ue-rl init --tune` writes: what a kill cuts short is begun again, and what falls behind is ended."""

from __future__ import annotations

import runpy
import sqlite3
import subprocess
import sys
import time
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.command_line import ok
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.devtools.testing.chaos_engine import chaos_command
from ue_rl.training.config import resolve

optuna = pytest.importorskip("optuna")

RECIPE = Path(__file__).resolve().parents[2] / "samples" / "recipes" / "optuna_search.py"
DRAWN = {"learning_rate": 1e-3, "1 - gamma": 0.01, "n_steps": 32, "batch_size": 64, "n_epochs": 3}


class StubTrial(optuna.trial.FixedTrial):
    """Draws what it is given, remembers what it is told, and falls behind at `behind`."""

    def __init__(self, behind: int | None, **params: float) -> None:
        super().__init__({**DRAWN, **params})
        self.behind = behind
        self.told: dict[int, float] = {}

    def report(self, value: float, step: int) -> None:
        self.told[step] = value

    def should_prune(self) -> bool:
        return self.behind in self.told


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    return runpy.run_path(str(RECIPE))


def test_init_writes_the_recipe_as_it_stands(tmp_path: Path) -> None:
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as server:
        said = ok("init --tune", server.url, "--output", tmp_path)
    written = tmp_path / "optuna_search.py"
    assert written.read_bytes() == RECIPE.read_bytes()
    assert f"python {written} {server.url}" in said


def test_a_trial_is_compared_at_each_twentieth_and_ended_where_it_falls_behind(recipe: dict[str, Any]) -> None:
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as server:
        whole = StubTrial(behind=None)
        assert recipe["objective"](whole, server.url, 400) > 5
        assert set(whole.told) <= set(range(20, 400, 20))
        assert len(whole.told) >= 15  # no episode has ended before the first few
        behind = StubTrial(behind=200)
        with pytest.raises(optuna.TrialPruned):
            recipe["objective"](behind, server.url, 400)
        assert max(behind.told) == 200
        assert behind.user_attrs["hyperparameters"]["gamma"] == 0.99


def test_a_network_that_has_learnt_nan_is_a_trial_that_falls_behind(recipe: dict[str, Any]) -> None:
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as server:
        with pytest.warns(UserWarning, match="out of the range"), pytest.raises(optuna.TrialPruned, match="nan"):
            recipe["objective"](StubTrial(behind=None, learning_rate=1e30), server.url, 1000)


def test_a_trial_that_has_fallen_silent_is_begun_again(
    recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    """As of a search that was killed a minute ago: its trial has drawn, and says nothing any more."""
    monkeypatch.chdir(tmp_path)
    place = "sqlite:///search.db"
    with run_in_thread(GymnasiumBridge("CartPole-v1", 1)) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = optuna.storages.RDBStorage(place, heartbeat_interval=1)
        name = f"PPO, 64 steps of {server.url}"
        study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
        study.enqueue_trial(recipe["TRIED_FIRST"])
        killed = study.ask()
        drawn = recipe["TRIED_FIRST"]
        assert killed.suggest_float("learning_rate", 1e-5, 1e-2, log=True) == drawn["learning_rate"]
        storage.record_heartbeat(killed.number + 1)
        with closing(sqlite3.connect(tmp_path / "search.db")) as database, database:
            database.execute("UPDATE trial_heartbeats SET heartbeat = datetime('now', '-1 minute')")
        recipe["main"](server.url, 1, 64)
        first, again = optuna.load_study(study_name=name, storage=storage).trials
    assert [first.state.name, again.state.name] == ["FAIL", "COMPLETE"]
    assert again.system_attrs["failed_trial"] == first.number
    assert again.params == drawn
    assert resolve({}, tmp_path / "best.yaml").hyperparameters == again.user_attrs["hyperparameters"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_search_that_is_killed_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "search.py"
    text = RECIPE.read_text("utf-8")
    assert "SILENCE = 20" in text
    script.write_text(text.replace("SILENCE = 20", "SILENCE = 4"), "utf-8")
    words = [sys.executable, str(script), chaos_command(), "2", "2048"]
    first = subprocess.Popen(words, cwd=tmp_path)
    engines: list[psutil.Process] = []
    while not engines:  # its first trial has drawn, and begins
        assert first.poll() is None
        time.sleep(0.1)
        below = psutil.Process(first.pid).children(recursive=True)
        engines = [each for each in below if "ue_rl.devtools.testing.engines.chaos" in each.cmdline()]
    first.kill()
    first.wait()
    assert psutil.wait_procs(engines, timeout=30)[1] == []
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    storage = f"sqlite:///{tmp_path / 'search.db'}"
    (study,) = optuna.get_all_study_summaries(storage)
    killed, *others = optuna.load_study(study_name=study.study_name, storage=storage).trials
    assert killed.state.name == "FAIL"
    again = [trial for trial in others if trial.system_attrs.get("failed_trial") == killed.number]
    assert [trial.params for trial in again] == [killed.params]
    assert [trial.state.name for trial in others] == ["COMPLETE"] * 2
    best = max(others, key=lambda trial: trial.value)
    assert resolve({}, tmp_path / "best.yaml").hyperparameters == best.user_attrs["hyperparameters"]
    more = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert f"3 trials, mean return from {min(t.value for t in others):.1f}" in more.stdout, more.stderr
