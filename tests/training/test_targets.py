"""Where a run's numbers go beside progress.csv: services that are missing, fail, are resumed, and the real ones."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from ue_rl.errors import ConfigurationError
from ue_rl.training.config import resolve
from ue_rl.training.run import train
from ue_rl.training.tables import open_tables
from ue_rl.training.targets import targets_of


class FakeRun:
    def __init__(self) -> None:
        self.sent: list[dict[str, float]] = []
        self.fails = self.finished = False

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        pass

    def log(self, values: dict[str, float]) -> None:
        if self.fails:
            raise RuntimeError("no network")
        self.sent.append(values)

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A wandb that keeps what it gets."""
    module = types.ModuleType("wandb")
    runs: list[FakeRun] = []
    asked: list[dict[str, Any]] = []

    def init(**arguments: Any) -> FakeRun:
        asked.append(arguments)
        runs.append(FakeRun())
        return runs[-1]

    module.__dict__.update(init=init, runs=runs, asked=asked)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_numbers_go_to_the_service_by_env_steps(tmp_path: Path, fake: Any) -> None:
    options = resolve({"log_to": "wandb"}, None)
    warned: list[str] = []
    for goes_on in (False, True):
        logger = open_tables(tmp_path, warned.append, tensorboard=False, others=targets_of(options, tmp_path))
        logger.record("rollout/ep_rew_mean", 3)
        logger.record("time/note", "text")
        logger.dump(64)
        fake.runs[-1].fails = True
        for _ in range(2):
            logger.record("a", 1.0)
            logger.dump(128)
        logger.close()
        assert fake.asked[-1]["id"] == fake.asked[0]["id"]
        assert fake.runs[-1].sent == [{"rollout/ep_rew_mean": 3.0, "env_steps": 64}]
        assert fake.runs[-1].finished
        assert len(warned) == 1 + goes_on
        assert "no network" in warned[-1]
    assert not list(tmp_path.glob("events.*"))


@pytest.mark.parametrize("wrong", ["wandb,nothing", "", [], 3])
def test_only_targets_that_there_are(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="log_to"):
        resolve({"log_to": wrong}, None)


def test_a_package_that_is_missing_is_named_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ue_rl.training.run.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"mlflow is not installed.*ue_rl\[mlflow\]"):
        train(resolve({"log_to": ["mlflow"], "log_dir": str(tmp_path)}, None))
    assert not list(tmp_path.iterdir())


def test_wandb_itself_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="the extra wandb is not installed: its service takes seconds to start")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    _logged(tmp_path, "wandb")
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))


def test_mlflow_itself_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = pytest.importorskip("mlflow.tracking", reason="the extra mlflow is not installed: it is large")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    first, second = _logged(tmp_path, "mlflow"), _logged(tmp_path, "mlflow")
    assert first == second, "a run that is resumed goes on in the same one"
    history = tracking.MlflowClient().get_metric_history(first, "rollout/ep_rew_mean")
    assert [(metric.step, metric.value) for metric in history] == [(64, 3.0), (64, 3.0)]


def _logged(tmp_path: Path, name: str) -> str:
    tables: list[Any] = targets_of(resolve({"log_to": name}, None), tmp_path)
    logger = open_tables(tmp_path, pytest.fail, tensorboard=False, others=tables)
    logger.record("rollout/ep_rew_mean", 3)
    logger.dump(64)
    logger.close()
    return str(tables[0].id)
