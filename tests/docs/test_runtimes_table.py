"""The table of runtimes in docs/deploy.md is what benchmarks/onnx_runtimes.py measured last."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.exported_cases import cases

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_is_that_of_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import onnx_runtimes as benchmark

    held: Any = json.loads((ROOT / "benchmarks" / "onnx_runtimes.json").read_text())
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8").splitlines()
    for row in benchmark.summary(held):
        assert row in page
    sys.modules.pop("onnx_runtimes")


def test_a_case_alone_is_that_of_the_whole_table(tmp_path: Path) -> None:
    *_, among = cases(tmp_path, ("PPO, Box", "TD3"))
    (alone,) = cases(tmp_path, ("TD3",))
    assert (alone.feeds["obs"] == among.feeds["obs"]).all()
