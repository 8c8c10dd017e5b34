"""`ue-rl check` of an engine with MuJoCo."""

from __future__ import annotations

import contextlib
import tempfile

import pytest

pytest.importorskip("mujoco.batch", reason="MujocoBridge needs mujoco 4.0")

from ue_rl.bridges import run_in_thread
from ue_rl.devtools.check import CheckReport, check
from ue_rl.devtools.check.text_peer import PER_ENV, SHARED
from ue_rl.plugins.mujoco import MujocoBridge

# What is MuJoCo's own in an engine: its seeds, ends, spaces and the next trainer.
EACH_RUN = ("a seed twice", "ends of episodes", "bounds and choices of actions", "what actions do", "next trainer")


def of_mujoco(task: str, only: tuple[str, ...] = ()) -> CheckReport:
    # MuJoCo writes its warnings into a file of the current folder
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        bridge = MujocoBridge(task, num_envs=2)
        with run_in_thread(bridge) as engine:
            return check(engine.url, only=only)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "only"),
    [("Reacher", EACH_RUN), pytest.param("HalfCheetah", (), marks=pytest.mark.exhaustive)],
)
def test_nothing_is_wrong(task: str, only: tuple[str, ...]) -> None:
    result = of_mujoco(task, only)
    assert result.mistakes == [], result
    assert {finding.carrier for finding in result.findings} - {""} == {SHARED, PER_ENV}
