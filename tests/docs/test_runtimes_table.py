"""The table of runtimes in docs/deploy.md is what benchmarks/onnx_runtimes.py measured last."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_is_that_of_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import onnx_runtimes as benchmark

    held: Any = json.loads((ROOT / "benchmarks" / "onnx_runtimes.json").read_text())
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8").splitlines()
    for row in benchmark.summary(held):
        assert row in page
    sys.modules.pop("onnx_runtimes")
