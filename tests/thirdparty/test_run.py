"""run.py: what is known to fail, and how outcomes are judged. Upstream's tests themselves need their sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def run(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(HERE / "run.py")


def test_each_known_failure_has_a_suite_a_kind_and_a_reason(run: ModuleType) -> None:
    for carrier in run.CARRIERS:
        for suite, entries in run.expectations(carrier).items():
            assert suite in run.SUITES
            for entry in entries:
                assert entry["kind"] in ("by design", "missing", "upstream")
                assert len(entry["reason"]) > 20
                assert entry["tests"]


def test_unknown_failures_and_mended_ones_are_told(run: ModuleType) -> None:
    known = [
        {"kind": "by design", "tests": ["a.py::test_one[*Text(*]*"]},
        {"kind": "missing", "tests": ["a.py::test_two", "a.py::test_three*"]},
        {"kind": "upstream", "tests": ["a.py::test_four"], "sometimes": True},
    ]
    outcomes = {
        "a.py::test_one[Text(1, 6)]": {"outcome": "failed", "error": ""},
        "a.py::test_one[Box(2,)]": {"outcome": "failed", "error": "why"},
        "a.py::test_two": {"outcome": "passed", "error": ""},
        "a.py::test_three[x]": {"outcome": "failed", "error": ""},
        "a.py::test_four": {"outcome": "passed", "error": ""},
        "a.py::test_five": {"outcome": "skipped", "error": ""},
    }
    unknown, mended, kinds = run.judge(outcomes, known)
    assert unknown == ["a.py::test_one[Box(2,)]: why"]
    assert mended == ["a.py::test_two"]
    assert kinds == {"by design": 1, "missing": 1}


@pytest.mark.exhaustive
def test_a_suite_runs_over_an_engine(run: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_vec_envs.py").write_text(
        "import gymnasium as gym\n"
        "from stable_baselines3.common.vec_env import DummyVecEnv\n"
        "from gymnasium.vector import SyncVectorEnv\n"
        "make = lambda: gym.make('CartPole-v1')\n"
        "def test_hosted():\n"
        "    assert type(DummyVecEnv([make])).__module__ == 'adapter'\n"
        "    assert DummyVecEnv([make] * 2).reset().shape == SyncVectorEnv([make] * 2).reset()[0].shape == (2, 4)\n"
        "def test_fails():\n"
        "    assert DummyVecEnv([make]).envs\n"
    )
    outcomes = run.run_suite("vec-env", tmp_path, "tcp", [], 60)
    assert {test: line["outcome"] for test, line in outcomes.items()} == {
        "test_vec_envs.py::test_hosted": "passed",
        "test_vec_envs.py::test_fails": "failed",
    }
