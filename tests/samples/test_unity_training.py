"""samples/unity: that an agent learns its demo's task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.harness.warm_cli import WarmCli
from tests.samples.unity_engine import MARKS, MONO

pytestmark = MARKS


@pytest.mark.learning
@pytest.mark.exhaustive
def test_ppo_learns_the_task_through_a_launched_engine(engine_exe: Path, tmp_path: Path, warm_cli: WarmCli) -> None:
    words = ["train", "--engine", f"{MONO} {engine_exe} --port {{port}} --num-envs {{num_envs}} --seed {{seed}}"]
    words += ["--num-envs", "16", "--timesteps", "20480", "--run-id", "reach", "--log-dir", str(tmp_path)]
    words += ["--n-steps", "64", "--batch-size", "128", "--learning-rate", "2e-3", "--set", "gamma=0.98", "--seed", "0"]
    done = warm_cli.start(words, output=tmp_path / "out.txt", cwd=tmp_path)
    assert done.wait(110) == 0, done.text
    lines = (tmp_path / "reach" / "episodes.csv").read_text().splitlines()
    returns = [float(line.split(",")[lines[0].split(",").index("return")]) for line in lines[1:]]
    assert np.mean(returns[:50]) < 0
    assert np.mean(returns[-100:]) > 2.5
