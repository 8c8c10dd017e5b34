"""Heuristic mode of samples/godot: what a script plays, and what is shown of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from tests.samples.godot_engine import GODOT, PROBE, PROJECT, godot_environment, needs_godot, running
from ue_rl.training.demonstrations.cloning import clone
from ue_rl.training.demonstrations.dataset import read
from ue_rl.training.demonstrations.recording import record_played

pytestmark = needs_godot


def shown(home: Path, *words: str, until: str) -> tuple[list[str], str]:
    """The lines about envs up to the first with `until`, and all that Godot said; it is ended then."""
    command = [str(GODOT), "--path", str(PROJECT), "--fixed-fps", "60", "--heuristic=1", *words]
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=godot_environment(home)
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                if until in line:
                    break
            if until == "nothing":
                assert process.wait(60) == 1
        finally:
            process.kill()
    return [line for line in lines if line.startswith("env ")], "\n".join(lines)


def test_the_sample_s_script_keeps_the_pole_upright(tmp_path: Path) -> None:
    lines, said = shown(tmp_path, "--envs=1", "--seed=3", "--show=1", until="step 500")
    assert lines[0].startswith("env 0: x=")
    assert lines[0].endswith(" | reward 0, return 0, step 0")
    assert lines[-1].endswith(" | reward 1, return 500, step 500, truncated")
    assert "wait for a trainer" not in said


def test_each_env_is_shown_and_an_action_that_is_none_ends_it(tmp_path: Path) -> None:
    """The probe's action holds for three ticks; at its third one in env 0 it has a choice that does not exist."""
    lines, said = shown(tmp_path, "-s", str(PROBE), until="nothing")
    assert lines[:4] == [
        "env 0: ticks=0 sum=0 gravity[m/s^2]=9.8 the seed=-1 | reward 0, return 0, step 0",
        "env 1: ticks=0 sum=0.1 gravity[m/s^2]=9.8 the seed=-1 | reward 0, return 0, step 0",
        "env 0: ticks=3 sum=-0.5 gravity[m/s^2]=9.8 the seed=-1 | reward 0.5, return 0.5, step 1",
        "env 1: ticks=3 sum=-0.4 gravity[m/s^2]=9.8 the seed=-1 | reward 0.5, return 0.5, step 1",
    ]
    assert lines[-2].endswith("return 1.5, step 3")
    assert "ACT holds a choice that is not one of -1 to 1" in said


@pytest.mark.exhaustive
def test_what_the_sample_s_script_does_is_recorded_and_cloned(tmp_path: Path) -> None:
    with running(tmp_path, "--demo=1", num_envs=2) as engine:
        env = engine.connect()
        env.seed(1)
        assert record_played(env, tmp_path / "demos", 4) == 4
        env.close()
    seen, acted = read(tmp_path / "demos").pairs()
    wanted = np.clip(6 * seen[:, 2] + seen[:, 3] + 0.2 * seen[:, 0] + 0.3 * seen[:, 1], -1, 1)
    np.testing.assert_allclose(acted[:, 0], wanted, atol=1e-3)
    with running(tmp_path, num_envs=2) as engine:
        env = engine.connect(max_episode_steps=200)
        model = PPO("MlpPolicy", env, n_steps=8, batch_size=16, device="cpu", seed=0)
        clone(model, read(tmp_path / "demos").of(env.observation_space, env.action_space), epochs=60, seed=0)
        env.seed(7)
        assert evaluate_policy(model, env, 2, warn=False)[0] > 180
        env.close()


def test_the_ball_s_script_reaches_its_targets(tmp_path: Path) -> None:
    lines, _ = shown(tmp_path, "--task=rolling_ball", "--envs=1", "--seed=3", "--show=1", until="step 150")
    assert float(lines[-1].partition("return ")[2].split(",")[0]) > 2
