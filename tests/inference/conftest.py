"""What the tests of inference may be told from outside."""

from __future__ import annotations

import os
from pathlib import Path

import onnxruntime
import pytest

from tests.inference.serving import exported


@pytest.fixture(autouse=True)
def _graph_optimizations(monkeypatch: pytest.MonkeyPatch) -> None:
    """UE_RL_TEST_ORT_PLAIN=1: onnxruntime computes the graphs as they are, with no nodes fused."""
    if os.environ.get("UE_RL_TEST_ORT_PLAIN") != "1":
        return
    real = onnxruntime.SessionOptions

    def options() -> onnxruntime.SessionOptions:
        made = real()
        made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return made

    monkeypatch.setattr(onnxruntime, "SessionOptions", options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the file that a test exports."""
    return tmp_path / "policy.onnx"


@pytest.fixture(scope="session")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported("Pendulum-v1", tmp_path_factory.mktemp("models") / "pendulum.onnx")


@pytest.fixture(scope="session")
def cart_pole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported("CartPole-v1", tmp_path_factory.mktemp("models") / "cart_pole.onnx")


@pytest.fixture(scope="session")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For Pendulum."""
    path = tmp_path_factory.mktemp("models") / "recurrent.onnx"
    return exported("Pendulum-v1", path, "RecurrentPPO", "MlpLstmPolicy")
