"""The benchmarks that need Ray, in their smallest size."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3", reason="the benchmarks need ue_rl[train]")

from tests.benchmarks.test_benchmarks import WITH_RAY, Small, check
from tests.harness.warm_cli import WarmCli


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("name", "small"),
    [
        pytest.param(*case, marks=() if case[0] == "bench_rllink" else pytest.mark.exhaustive)
        for case in WITH_RAY.items()
    ],
)
def test_it_prints_its_table(name: str, small: Small, tmp_path: Path, warm_cli: WarmCli) -> None:
    check(name, small, tmp_path, warm_cli)
