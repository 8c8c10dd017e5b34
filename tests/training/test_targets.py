"""Where a run's numbers go beside progress.csv: services that are missing, fail, are resumed, and the real ones."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from ue_rl.system.errors import ConfigurationError
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
    monkeypatch.setitem(sys.modules, "mlflow", None)  # as where it is not installed
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


class FakeMlflow:
    """Refuses a whole request for one name, as MLflow does."""

    def __init__(self) -> None:
        self.kept: dict[str, list[tuple[int, float]]] = {}
        self.requests = 0

    def get_experiment_by_name(self, name: str) -> Any:
        return types.SimpleNamespace(experiment_id="1")

    def create_run(self, experiment: str, run_name: str) -> Any:
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="r"))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        self.requests += 1
        for metric in metrics:
            if not re.fullmatch(r"[\w. /-]+", metric.key) or metric.key == "refused":
                error = RuntimeError(f"Invalid value {metric.key}")
                error.error_code = "INVALID_PARAMETER_VALUE"  # type: ignore[attr-defined]
                raise error
        for metric in metrics:
            self.kept.setdefault(metric.key, []).append((metric.step, metric.value))

    def set_terminated(self, run_id: str) -> None:
        pass


@pytest.fixture
def fake_mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeMlflow:
    client = FakeMlflow()
    entities = types.ModuleType("mlflow.entities")
    tracking = types.ModuleType("mlflow.tracking")
    entities.__dict__.update(
        Metric=lambda key, value, timestamp, step: types.SimpleNamespace(key=key, value=value, step=step),
        Param=lambda key, value: (key, value),
    )
    tracking.__dict__.update(MlflowClient=lambda: client)
    for module in (types.ModuleType("mlflow"), entities, tracking):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return client


NAMES = ("engine/speed (m/s)", "engine/hit@1", "engine/hit#1", "engine/Höhe", "a//b", "../up", "x" * 300, "train/loss")


def test_a_name_that_mlflow_refuses_costs_no_other_metric(tmp_path: Path, fake_mlflow: FakeMlflow) -> None:
    tables: list[Any] = targets_of(resolve({"log_to": "mlflow"}, None), tmp_path)
    warned: list[str] = []
    logger = open_tables(tmp_path, warned.append, tensorboard=False, others=tables)
    for step in (64, 128):
        for number, name in enumerate(NAMES):
            logger.record(name, number)
        logger.dump(step)
    assert not warned
    assert len(fake_mlflow.kept) == len(NAMES), "no two are called the same"
    assert sorted(values[0][1] for values in fake_mlflow.kept.values()) == list(range(len(NAMES)))
    assert all([step for step, _ in values] == [64, 128] for values in fake_mlflow.kept.values())
    assert {"engine/speed _m/s_", "engine/hit_1", "engine/Höhe", "train/loss", "a/b"} <= set(fake_mlflow.kept)
    logger.record("refused", 1)
    logger.record("train/loss", 2)
    logger.dump(192)
    logger.close()
    assert fake_mlflow.kept["train/loss"][-1] == (192, 2.0)
    assert len(warned) == 1
    assert "refused" in warned[0]


def test_names_that_mlflow_refuses_are_sent_to_itself_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking = pytest.importorskip("mlflow.tracking", reason="the extra mlflow is not installed: it is large")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    tables: list[Any] = targets_of(resolve({"log_to": "mlflow"}, None), tmp_path)
    logger = open_tables(tmp_path, pytest.fail, tensorboard=False, others=tables)
    for number, name in enumerate(NAMES):
        logger.record(name, number)
    logger.dump(64)
    logger.close()
    found = tracking.MlflowClient().get_run(tables[0].id).data.metrics
    assert sorted(found.values()) == list(range(len(NAMES)))
