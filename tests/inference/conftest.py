"""What the tests of inference may be told from outside."""

from __future__ import annotations

import os
from pathlib import Path

import onnxruntime
import pytest


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
