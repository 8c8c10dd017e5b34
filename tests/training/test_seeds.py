"""`ue-rl train --seeds`: a folder of runs with one table and one plot; killed and resumed, it is as if it never was."""

from __future__ import annotations

import csv
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from stable_baselines3 import PPO

from tests.harness.warm_cli import WarmCli
from tests.support.command_line import ok, refused, run
from ue_rl.system.errors import ConfigurationError
from ue_rl.training import seeds as module
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import TrainOptions
from ue_rl.training.seeds import SeedRun, draw, interval, train_seeds

TINY = "--num-envs 2 --n-steps 32 --batch-size 32 --set n_epochs=1 --no-export --threads 1 --device cpu"


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "seeds.csv").open() as file:
        return list(csv.DictReader(file))


def weights(folder: Path) -> bytes:
    return b"".join(p.detach().numpy().tobytes() for p in PPO.load(folder / "model.zip").policy.parameters())


def test_the_interval_is_students() -> None:
    mean, half = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (mean, half) == (3.0, pytest.approx(2.776 * np.sqrt(2.5 / 5)))
    assert np.isnan(interval([7.0])[1])
    assert interval([0.0, 1.0] * 50)[1] == pytest.approx(1.96 * np.std([0, 1] * 50, ddof=1) / 10)


@pytest.mark.slow
def test_a_folder_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_cli: WarmCli) -> None:
    """Two seeds, with an evaluation each; those that have ended are not run again, and more steps are."""
    words = f"train --run-id g --seed 7 --eval-episodes 0 {TINY} --timesteps 512 --seeds 2 --jobs 2 --log-dir"
    monkeypatch.setattr(module, "EngineProcess", functools.partial(Forked, warm_cli))
    output = ok(words, tmp_path)
    folder = tmp_path / "g"
    rows = table(folder)
    found = [(row["seed"], row["state"], row["env_steps"]) for row in rows]
    assert found == [("7", "done", "512"), ("8", "done", "512")]
    mean, half = interval([float(row["mean_return"]) for row in rows])
    assert f"{mean:.1f} +/- {half:.1f}" in output
    assert (folder / "seeds.png").read_bytes().startswith(b"\x89PNG")
    assert weights(folder / "seed-7") != weights(folder / "seed-8")
    assert RunDirectory(folder / "seed-8").read_config()["seed"] == 8
    assert "exists already" in str(refused(words, tmp_path))
    monkeypatch.setattr(sys, "executable", None)  # nothing may be started
    assert "begins" not in ok("train --resume --run-id g --log-dir", tmp_path)
    assert table(folder) == rows


class Forked:
    """Stands for the process of a run: one that need not import torch."""

    def __init__(self, cli: WarmCli, words: list[str], output: Any, port: None) -> None:
        assert words[:3] == [sys.executable, "-m", "ue_rl"]
        self._run = cli.start(words[3:], output=Path(output.name))
        self.ended, self.pid = self._run.ended, self._run.pid

    @property
    def exit_code(self) -> int | None:
        return self._run.code

    def end(self, grace: float = 0.0) -> None:
        assert self.ended.is_set()


def test_runs_that_fail_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"  # runs end at once, all others are as they were
    python.write_text(f"""#!/bin/sh
case "$*" in
    "-m ue_rl "*) echo "it broke"; exit 3;;
    *) exec {sys.executable} "$@";;
esac
""")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    result = run("train --run-id g --seeds 3 --log-dir", tmp_path)
    assert result.exit_code == 1, result.output
    assert result.output.count("ended by itself, with exit code 3") == 3
    assert "it broke" in result.output
    assert [row["state"] for row in table(tmp_path / "g")] == ["failed"] * 3
    assert "--resume" in result.output


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for options in ({"force": True}, {"resume": True}):
        with pytest.raises(ConfigurationError) as caught:
            train_seeds(TrainOptions(log_dir=str(tmp_path), run_id="mine", seeds=2), **options)
        assert caught.value.field == "run_id"
    assert not list((tmp_path / "mine").iterdir())


def test_the_plot_of_seeds_that_have_come_unequally_far(tmp_path: Path) -> None:
    for seed, count in ((0, 40), (1, 90), (2, 0)):
        folder = tmp_path / f"seed-{seed}"
        folder.mkdir()
        lines = [f"{10 * k},{k + seed},5,1.0" for k in range(1, count)]
        (folder / "episodes.csv").write_text("\n".join(["env_steps,return,length,seconds", *lines, "9"]))
    draw(tmp_path, [SeedRun(seed, "stopped", 0, None, None) for seed in range(3)], "three")
    assert (tmp_path / "seeds.png").stat().st_size > 5000


@pytest.mark.exhaustive
@pytest.mark.timeout(240)
def test_killed_and_resumed_it_is_as_if_it_never_was(tmp_path: Path) -> None:
    """Five seeds; everything is killed with kill -9 twice; the weights are those of runs by themselves."""
    words = [sys.executable, "-m", "ue_rl", "train", "--log-dir", str(tmp_path)]
    given = f"{TINY} --timesteps 6000 --eval-episodes 2 --eval-freq 1000 --save-freq 500".split()
    command = [*words, "--run-id", "g", "--seed", "3", *given, "--seeds", "5", "--jobs", "2"]
    for kill_after in (12, 14, None):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
            deadline = time.monotonic() + 20
            while left := [each for each in psutil.process_iter() if str(tmp_path) in " ".join(_words(each))]:
                assert time.monotonic() < deadline, left
                time.sleep(0.2)
        command = [*words, "--run-id", "g", "--resume"]
    output = process.communicate()[0]
    assert process.returncode == 0, output
    rows = table(tmp_path / "g")
    assert [(row["seed"], row["state"], row["env_steps"]) for row in rows] == [
        (str(seed), "done", "6016") for seed in range(3, 8)
    ]
    for seed in (3, 7):
        subprocess.run(
            [*words, "--run-id", f"alone-{seed}", "--seed", str(seed), *given], check=True, stdout=subprocess.DEVNULL
        )
        assert weights(tmp_path / "g" / f"seed-{seed}") == weights(tmp_path / f"alone-{seed}")


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
